"""One small network, its model directory and its bundle, made once: an export takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import networks
import pytest

from pocketbert.model import Model
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

LENGTHS = (7, 19)


@pytest.fixture(scope="module", autouse=True)
def shared_conversions() -> Iterator[None]:
    """Networks that this process has converted before are not converted again; see `converted_files`."""
    import converted_files

    with converted_files.shared():
        yield


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Three classes and the vocabulary of `networks`; not to be changed."""
    tokenizer = WordPieceTokenizer(networks.vocabulary(tmp_path_factory.mktemp("vocabulary")))
    return networks.network(networks.bert_config(), tokenizer=tokenizer)


@pytest.fixture(scope="session")
def small_directory(small_model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small_model`'s model directory."""
    path = tmp_path_factory.mktemp("small") / "directory"
    small_model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def small_bundle(small_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`small_model`'s float32 bundle of lengths 7 and 19."""
    import converted_files

    from pocketbert_export.exporter import export

    path = tmp_path_factory.mktemp("small") / "float32"
    # Its bytes are those of any process' export.
    with converted_files.anew():
        export(small_directory, path, recipe="float32", lengths=LENGTHS)
    return path
