"""What the modules share: a model to start from, and runs without graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cheap_tensorflow
import pytest
import tiny_finetuning


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model directory."""
    return tiny_finetuning.write_model(tmp_path_factory.mktemp("start") / "tiny")


@pytest.fixture(scope="module")
def eager_module() -> Iterator[None]:
    """As `eager`, for all tests of a module and the runs that they share: bits of a graph's run may differ."""
    with cheap_tensorflow.eager():
        yield


@pytest.fixture(scope="module")
def few_resamples() -> Iterator[None]:
    """Confidence intervals come from fewer resamples, each of which computes a metric."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pocketbert.tasks.scores._RESAMPLES", 20)
        yield
