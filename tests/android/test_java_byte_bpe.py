"""The Java byte-level BPE and Hugging Face's tokenizers, token by token and offset by offset."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import roberta_texts

from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files
from pocketbert.tokenizers.opening import open_tokenizer

SAVERS = Path(__file__).resolve().parents[1] / "goldens" / "savers"
pytestmark = pytest.mark.java


def library(files: Path, special: str = "token") -> Any:
    """Creates transformers' tokenizer from the files."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing

    tokenizer = Tokenizer(BPE.from_file(str(files / "vocab.json"), str(files / "merges.txt")))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, trim_offsets=True)
    ids = json.loads((files / "vocab.json").read_text(encoding="utf-8"))
    tokenizer.post_processor = RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    if special == "token":
        tokenizer.add_special_tokens(
            [AddedToken(token, lstrip=token == "<mask>", normalized=False) for token in roberta_texts.SPECIAL]
        )
    return tokenizer


def assert_equal(java: Any, files: Path, folder: Path, texts: Sequence[str], special: str = "token") -> None:
    rows = roberta_texts.run(java, files, folder, texts, special)
    assert len(rows) == len(texts)
    tokenizer = library(files, special)
    for start in range(0, len(texts), 1000):
        part = texts[start : start + 1000]
        expected = tokenizer.encode_batch(part, add_special_tokens=False)
        for text, row, reference in zip(part, rows[start : start + 1000], expected, strict=True):
            starts, ends = zip(*reference.offsets, strict=True) if reference.offsets else ((), ())
            assert row == [reference.ids, list(starts), list(ends)], ascii(text)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All bytes, and merges for long words, including spaces."""
    from tokenizers.implementations import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    lines = ["the   cat's 123 45 cats   sat\n\n", "aaaa aaab abab ababab don't won't über étude   日本 日本語"]
    tokenizer.train_from_iterator(lines * 9, 330, 2, special_tokens=list(roberta_texts.SPECIAL), show_progress=False)
    folder = tmp_path_factory.mktemp("toy")
    tokenizer.save_model(str(folder))
    return folder


@pytest.fixture(scope="module")
def roberta(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roberta")
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(shared / "data" / "vocab" / f"roberta.{name}", folder / name)
    return folder


def test_every_code_point(java: Any, toy: Path, tmp_path: Path) -> None:
    texts = roberta_texts.everything()
    spaces = [f"a{chr(code)}<mask>{chr(code)} '{chr(code)}" for code in range(0x3100)]
    assert_equal(java, toy, tmp_path, texts + spaces)


@pytest.mark.data
def test_20000_generated_texts(java: Any, roberta: Path, tmp_path: Path) -> None:
    ids = json.loads((roberta / "vocab.json").read_text(encoding="utf-8"))
    words = [token for token in ids if token.isascii() and token.isalpha() and len(token) > 2]
    texts = roberta_texts.hard_texts(words, 20_000, seed=91)
    endings = [first + second for first in "adelmrstvDS" for second in ("", *"elsdz")]
    contractions = [f"he'{ending} {ending}'{ending}e ''{ending}" for ending in endings]
    assert_equal(java, roberta, tmp_path, texts + contractions)
    assert_equal(java, roberta, tmp_path, texts[:2000], "text")


@pytest.mark.data
def test_xnli_texts(java: Any, shared: Path, roberta: Path, tmp_path: Path) -> None:
    assert_equal(java, roberta, tmp_path, roberta_texts.xnli(shared))


def test_pairs_are_transformers(java: Any, toy: Path, tmp_path: Path) -> None:
    from transformers import RobertaTokenizerFast

    tokenizer = RobertaTokenizerFast(str(toy / "vocab.json"), str(toy / "merges.txt"))
    texts = ["the cat", "the cat's 123 sat on", "", "aaaa aaab abab über"]
    # transformers treats an empty second text as none.
    seconds = [*filter(None, texts), None]
    lines = [(first, second, length) for first in texts for second in seconds for length in (4, 7, 12, 50)]
    rows = roberta_texts.run(java, toy, tmp_path, lines)
    for (first, second, length), row in zip(lines, rows, strict=True):
        expected = tokenizer(first, second, truncation="longest_first", max_length=length, padding="max_length")
        assert row == [expected["input_ids"], expected["attention_mask"], [0] * length], (first, second, length)


def test_lone_surrogates_are_replaced(java: Any, toy: Path, tmp_path: Path) -> None:
    texts = ["a\ud800b", "\udfff", "a \udc00\ud800 <mask>"]
    expected = ["a\ufffdb", "\ufffd", "a \ufffd\ufffd <mask>"]
    rows = roberta_texts.run(java, toy, tmp_path, texts)
    assert rows == roberta_texts.run(java, toy, tmp_path, expected) and rows[1][0]


def test_prefix_space_gives_their_tokens(java: Any, tmp_path: Path) -> None:
    """Texts and spans that transformers' own tokenizer gave, between added tokens too."""
    source = SAVERS / "transformers-4.57.6" / "roberta_prefix_space"
    files = tmp_path / "files"
    files.mkdir()
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(source / name, files / name)
    problems: list[str] = []
    vocabulary = read_vocabulary_files(source, problems)
    assert vocabulary is not None and problems == [] and vocabulary.add_prefix_space
    (files / "added.json").write_text(json.dumps([dataclasses.asdict(token) for token in vocabulary.added]))
    (files / "add_prefix_space").touch()
    tokenizer = open_tokenizer(vocabulary)
    texts = [row["text"] for row in json.loads((source / "expected.json").read_text("utf-8"))["texts"]]
    texts += ["\tthe", "\u00a0cat", "é", "<mask>é<mask> cat", "12 a", " a", "  a", "'s cat", "\n", "a</s>b c</s> d"]
    columns = tokenizer.tokenize_with_offsets(texts)
    parts = (columns.ids.to_list(), columns.starts.to_list(), columns.ends.to_list())
    expected = [list(row) for row in zip(*parts, strict=True)]
    for text, token_row, expected_row in zip(
        texts, roberta_texts.run(java, files, tmp_path, texts), expected, strict=True
    ):
        assert token_row == expected_row, ascii(text)
