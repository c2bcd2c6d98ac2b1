"""How the Java tokenizers cut longer texts, compared with Python's."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import roberta_texts
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file

from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

pytestmark = pytest.mark.java
NAMES = ("input_word_ids", "input_mask", "input_type_ids")


def vocabulary(kind: str, folder: Path) -> Vocabulary:
    if kind == "wordpiece":
        letters = "abcdefghijklmnopqrstuvwxyz"
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        return Vocabulary(path=folder / "vocab.txt")
    if kind == "byte_bpe":
        path, merges = byte_bpe_files(folder)
        return Vocabulary(path=path, merges=merges, kind="byte_bpe")
    return Vocabulary(path=unigram_file(folder), kind="unigram")


@pytest.mark.parametrize("truncation", ["tail", "head-tail:3", "only-second"])
@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_inputs_are_pythons(java: Any, tmp_path: Path, kind: str, truncation: str) -> None:
    draw = random.Random(53)
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    texts = [" ".join(draw.choices(words, k=draw.randint(0, 9))) for _ in range(160)]
    pairs = [None if draw.random() < 0.4 else " ".join(draw.choices(words, k=draw.randint(0, 9))) for _ in texts]
    lines = [(text, pair, draw.choice((4, 7, 12, 31, 64))) for text, pair in zip(texts, pairs, strict=True)]
    files = tmp_path / "files"
    files.mkdir()
    tokenizer = open_tokenizer(dataclasses.replace(vocabulary(kind, files), truncation=truncation))
    head = open_tokenizer(dataclasses.replace(tokenizer.vocabulary, truncation="head"))
    (files / "truncation").write_text(truncation)
    different = 0
    for (text, pair, length), row in zip(lines, roberta_texts.run(java, files, tmp_path, lines), strict=True):
        second = None if pair is None else [pair]
        inputs = tokenizer([text], second, max_length=length, pad_to=length)
        assert row == [inputs[name].numpy()[0].tolist() for name in NAMES], (text, pair, length)
        plain = head([text], second, max_length=length, pad_to=length)
        different += row[0] != plain["input_word_ids"].numpy()[0].tolist()
    assert different > 15
