"""The Java unigram tokenizer and sentencepiece, token by token and offset by offset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import roberta_texts

pytestmark = pytest.mark.java

UNKNOWN = 3
# <mask> takes the white space before it, also U+0085, which the model's normalizer keeps.
LITERALS = re.compile(r"(\s*<mask>|<s>|<pad>|</s>|<unk>)")


def expected(processor: Any, texts: Sequence[str]) -> list[list[list[int]]]:
    """Ids and spans of texts without special tokens, from sentencepiece and the class's rule for spans."""
    rows = []
    encoded = processor.encode(list(texts), return_type="offset_mapping")
    for tokens, (_, origins) in zip(encoded, processor.normalize(list(texts), with_offsets=True), strict=True):
        ids, starts, ends = [token + 1 if token else UNKNOWN for token in tokens["ids"]], [], []
        end = 0
        for token in tokens["pieces"]:
            begin, end = end + len(token) - len(token.lstrip("\u2581")), end + len(token)
            # The first position of a later character. A token with only white space has an empty span.
            later = (index for index in range(end, len(origins) - 1) if origins[index] > origins[end - 1])
            starts.append(origins[begin])
            ends.append(origins[end] if begin == end else origins[next(later, len(origins) - 1)])
        rows.append([ids, starts, ends])
    return rows


def assert_equal(java: Any, files: Path, folder: Path, texts: Sequence[str], special: str = "token") -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(files / "sentencepiece.bpe.model"))
    special_ids = dict(zip(roberta_texts.SPECIAL, (0, 1, 2, UNKNOWN, processor.vocab_size() + 1), strict=True))
    rows = roberta_texts.run(java, files, folder, texts, special)
    assert len(rows) == len(texts)
    parts = [LITERALS.split(text) if special == "token" else [text] for text in texts]
    plain = iter(expected(processor, [part for row in parts for part in row[::2]]))
    for text, tokens, row in zip(texts, rows, parts, strict=True):
        columns: list[list[int]] = [[], [], []]
        begin = 0
        for number, part in enumerate(row):
            literal = part.lstrip()
            special_row = [[special_ids[literal]], [len(part) - len(literal)], [len(part)]] if number % 2 else None
            ids, starts, ends = special_row or next(plain)
            columns[0] += ids
            columns[1] += [begin + start for start in starts]
            columns[2] += [begin + end for end in ends]
            begin += len(part)
        assert tokens == columns, ascii(text)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "sentencepiece.bpe.model").write_bytes(roberta_texts.toy_model())
    return folder


@pytest.fixture(scope="module")
def xlmr(shared: Path, toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("xlmr")
    model = roberta_texts.xlmr_model(shared, (toy / "sentencepiece.bpe.model").read_bytes())
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    return folder


def test_every_code_point(java: Any, toy: Path, tmp_path: Path) -> None:
    assert_equal(java, toy, tmp_path, roberta_texts.everything())


@pytest.mark.data
def test_20000_generated_texts(java: Any, xlmr: Path, tmp_path: Path) -> None:
    words = ["▁the", "ing", "Straße", "ского", "中国", "मैं", "ความ", "house", "maison", "Haus"]
    texts = roberta_texts.hard_texts(words, 20_000, seed=97)
    assert_equal(java, xlmr, tmp_path, texts)
    assert_equal(java, xlmr, tmp_path, texts[:2000], "text")


@pytest.mark.data
def test_xnli_texts(java: Any, shared: Path, xlmr: Path, tmp_path: Path) -> None:
    assert_equal(java, xlmr, tmp_path, roberta_texts.xnli(shared))


def test_pairs_have_two_separators(java: Any, toy: Path, tmp_path: Path) -> None:
    (first, *_), (second, *_) = roberta_texts.run(java, toy, tmp_path, ["abc dé", "é 日"])
    ((ids, mask, types),) = roberta_texts.run(java, toy, tmp_path, [("abc dé", "é 日", 40)])
    row = [0, *first, 2, 2, *second, 2]
    assert ids == row + [1] * (40 - len(row))
    assert mask == [1] * len(row) + [0] * (40 - len(row)) and types == [0] * 40
