"""A hub on this machine, and its client's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import hub_stand_in
import pytest
from hub_stand_in import Hub, write_model

CARD = b"---\nlicense: mit\n---\n# A model\n"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub-cache"


@pytest.fixture
def hub(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with the model lab/tiny, to which this process' client is connected."""
    with hub_stand_in.serve() as hub:
        folder = write_model(tmp_path / "pushed", num_layers=1)
        (folder / "README.md").write_bytes(CARD)
        (folder / "pytorch_model.bin").write_bytes(b"pickle")
        (folder / "modeling.py").write_bytes(b"raise SystemExit('code from the hub')")
        hub.push("lab/tiny", folder)
        hub_stand_in.connect(monkeypatch, hub.endpoint, cache)
        yield hub
    hub_stand_in.connect(monkeypatch, "http://127.0.0.1:9", cache)


@pytest.fixture
def offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Takes the connection away, as HF_HUB_OFFLINE does."""
    return lambda: hub_stand_in.connect(monkeypatch, "http://127.0.0.1:9", cache, offline=True)
