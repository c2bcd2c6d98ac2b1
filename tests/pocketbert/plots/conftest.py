"""Tiny models with each kind of tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attention_models import write


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    folders: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in folders:
            folders[kind] = write(tmp_path_factory.mktemp(kind) / "model", kind)
        return folders[kind]

    return of
