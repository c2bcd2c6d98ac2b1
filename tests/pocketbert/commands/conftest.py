"""A text, and the pretraining data that `pocketbert pretrain-data` makes of it."""

from __future__ import annotations

from pathlib import Path

import pretraining_text
import pytest

from pocketbert import cli


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text and its vocabulary."""
    root = tmp_path_factory.mktemp("pretrain-data")
    pretraining_text.write_text(root / "text.txt")
    pretraining_text.write_vocabulary(root / "vocab.txt")
    return root


@pytest.fixture(scope="session")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an undisturbed run with one worker."""
    output = tmp_path_factory.mktemp("expected") / "data"
    assert cli.main(pretraining_text.command(folder, output)) == 0
    return pretraining_text.tree(output)
