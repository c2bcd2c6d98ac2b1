"""The files that transformers wrote, and a vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import SENTIMENT, random_tensors, tiny_bert

from pocketbert.checkpoints.directory import write_directory
from pocketbert.configs import TokenizerConfig
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@pytest.fixture(scope="session")
def reference() -> Path:
    """Directories that transformers wrote, with its outputs."""
    return Path(__file__).resolve().parents[2] / "goldens" / "huggingface"


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    path = tmp_path / "pieces.txt"
    path.write_text("".join(f"piece{index}\n" for index in range(31)), encoding="utf-8")
    return path


@pytest.fixture
def written(tmp_path: Path, vocabulary: Path) -> Path:
    """A classifier's directory, to be damaged."""
    config = tiny_bert()
    path = tmp_path / "model"
    write_directory(
        path,
        config,
        (SENTIMENT,),
        random_tensors(config, (SENTIMENT,)),
        Vocabulary(path=vocabulary, config=TokenizerConfig()),
    )
    return path
