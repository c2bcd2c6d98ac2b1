from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from teacher_caches import fill, writer


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "first"
    with writer(folder) as store:
        fill(store)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "first"))
