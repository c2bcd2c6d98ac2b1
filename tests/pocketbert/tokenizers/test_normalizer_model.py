"""The model for FastBertNormalizer, compared with the normalization tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

import pocketbert as pb
from pocketbert.tokenizers.bert_unicode import CODE_POINTS, PRIVATE_USE, normalization
from pocketbert.tokenizers.normalizer_model import normalizer_model
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, SPACE

ABSENT = 0xE000
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.mark.one_of_each("True")
@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point(lowercase: bool) -> None:
    """Each becomes what the tables say, except where the splitting behind needs a stand-in."""
    codes = np.arange(CODE_POINTS)
    for low, high in ((0xD800, 0xDFFF), *PRIVATE_USE):
        codes = codes[(codes < low) | (codes > high)]
    model = normalizer_model(lowercase, frozenset("abc"), ABSENT)
    assert not model.left_out
    operation = tf_text.FastBertNormalizer(model_buffer=tf.constant(np.frombuffer(model.buffer, np.uint8)))
    results = operation.normalize(tf.constant([chr(code).encode() for code in codes])).numpy()
    tables = normalization(lowercase)
    counts = tables.count[codes]
    # A code point that vanishes may have its place behind the last one.
    starts = np.where(counts, tables.start[codes], 0)
    expected = np.array([chr(code_point).encode() for code_point in tables.code[starts]], object)
    for index in np.flatnonzero((counts != 1) | np.isin(tables.kind[starts], [SPACE, DROPPED])):
        entries = slice(starts[index], starts[index] + counts[index])
        expected[index] = "".join(
            " " if kind == SPACE else chr(code_point)
            for code_point, kind in zip(tables.code[entries], tables.kind[entries], strict=True)
            if kind != DROPPED
        ).encode()
    different = np.flatnonzero(results != expected)
    for index in different:
        assert chr(ABSENT) in results[index].decode(), f"U+{codes[index]:04X}"
    # Punctuation younger than Unicode 8, and 256 ideographs; some 400.
    assert 256 < len(different) < 1000


def tokenizer_of(folder: Path, pieces: list[str]) -> pb.WordPieceTokenizer:
    path = folder / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, *pieces]), encoding="utf-8")
    return pb.WordPieceTokenizer(path)


@pytest.mark.usefixtures("eager")
def test_characters_that_the_splitting_sees_differently(tmp_path: Path) -> None:
    """U+061D is punctuation for tensorflow-text and a letter for us, U+166D the other way round."""
    unknown = tokenizer_of(tmp_path, ["a", "b", "ab"])
    texts = ["a\u061db", "a\u166db", "a\U0002b820b", "a\u4e00b"]
    assert unknown.tokenize(texts).to_list() == [[1], [5, 1, 6], [1], [5, 1, 6]]
    names = tokenizer_of(tmp_path, ["a", "b", "a\u061db", "\u166d", "a\U0002b820b", "\u4e00"])
    assert names.tokenize(texts).to_list() == [[7], [5, 8, 6], [9], [5, 10, 6]]
    for tokenizer in (names, unknown):
        assert tokenizer.tokenize_with_offsets(texts).ids.to_list() == tokenizer.tokenize(texts).to_list()


@pytest.mark.usefixtures("eager")
def test_words_of_many_bytes(tmp_path: Path) -> None:
    """The fast way counts bytes; 100 characters of three or nine bytes are a word nevertheless."""
    tokenizer = tokenizer_of(tmp_path, ["\u0e01", "##\u0e01", "\u1100", "##\u1161", "##\u1100"])
    texts = ["\u0e01" * 34, "\u0e01" * 100, "\u0e01" * 101, "\uac00" * 50, "\uac00" * 51, "x\u0e01" * 40]
    counts = [len(row) for row in tokenizer.tokenize(texts).to_list()]
    assert counts == [34, 100, 1, 100, 1, 1]
