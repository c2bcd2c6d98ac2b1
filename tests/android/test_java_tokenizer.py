"""The Java tokenizer and the Python one, token by token and offset by offset."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from awkward_texts import awkward_texts

import pocketbert as pb
from pocketbert.tokenizers.bert_unicode import CODE_POINTS, normalization
from pocketbert_runtime.tokenizers.bert_characters import WORD
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import SPECIAL_TOKENS

pytestmark = pytest.mark.java

LOWERCASE = {"uncased": True, "cased": False}


def assert_equal(
    java: Any,
    folder: Path,
    vocabulary: Path,
    texts: Sequence[str],
    *,
    lowercase: bool,
    special: Literal["token", "text"] = "token",
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> list[list[int]]:
    """Compares ids, starts and ends; returns the ids."""
    inputs, outputs = folder / "texts.jsonl", folder / "tokens.jsonl"
    inputs.write_text("".join(f"{json.dumps(text)}\n" for text in texts), encoding="ascii")
    strip = lowercase if strip_accents is None else strip_accents
    java(
        "org.pocketbert.tokenizer.TokenizeMain",
        vocabulary,
        lowercase,
        strip,
        tokenize_chinese_chars,
        special,
        inputs,
        outputs,
    )
    tokens = [json.loads(line) for line in outputs.read_text(encoding="ascii").splitlines()]
    assert len(tokens) == len(texts)
    tokenizer = pb.WordPieceTokenizer(
        vocabulary,
        lowercase=lowercase,
        special_tokens_in_text=special,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )
    for start in range(0, len(texts), 500):
        part = texts[start : start + 500]
        expected = zip(
            *(tokenize_with_offset.to_list() for tokenize_with_offset in tokenizer.tokenize_with_offsets(part)),
            strict=True,
        )
        for text, row, reference in zip(part, tokens[start : start + 500], expected, strict=True):
            assert row == list(reference), ascii(text)
    return [ids for ids, _, _ in tokens]


@pytest.mark.data
@pytest.mark.parametrize("name", LOWERCASE)
def test_20000_generated_texts(java: Any, shared: Path, tmp_path: Path, name: str) -> None:
    vocabulary = shared / "data" / "vocab" / f"bert-base-{name}.vocab.txt"
    pieces = vocabulary.read_text(encoding="utf-8").splitlines()
    words = [piece for piece in pieces if piece.isalpha() and len(piece) > 2]
    texts = awkward_texts(20_000, words, seed=71)
    ids = assert_equal(java, tmp_path, vocabulary, texts, lowercase=LOWERCASE[name])
    # Enough tokens must be known.
    names = sum(token_id != 100 for row in ids for token_id in row)
    assert names > 100_000


@pytest.mark.data
@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "tokenize_chinese_chars"),
    [(True, False, True), (False, True, False), (True, True, False), (True, False, False), (False, False, False)],
)
def test_accent_and_ideograph_options(
    java: Any,
    shared: Path,
    tmp_path: Path,
    lowercase: bool,
    strip_accents: bool,
    tokenize_chinese_chars: bool,
) -> None:
    vocabulary = shared / "data" / "vocab" / "bert-base-multilingual-cased.vocab.txt"
    pieces = vocabulary.read_text(encoding="utf-8").split("\n")
    words = [piece for piece in pieces if piece.isalpha() and len(piece) > 2]
    assert_equal(
        java,
        tmp_path,
        vocabulary,
        awkward_texts(2_000, words, seed=83),
        lowercase=lowercase,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )


@pytest.mark.data
def test_literal_special_tokens_and_lone_surrogates(java: Any, shared: Path, tmp_path: Path) -> None:
    vocabulary = shared / "data" / "vocab" / "bert-base-uncased.vocab.txt"
    texts = awkward_texts(500, ["surrogate", "the"], seed=73)
    texts += [re.sub("[aeiou]", "\ud801", text) for text in texts[:50]] + ["\udfff", "a\udc00 \ud800b", "[SE\ud800P]"]
    assert_equal(java, tmp_path, vocabulary, texts, lowercase=True, special="text")
    assert_equal(java, tmp_path, vocabulary, texts, lowercase=True)


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_code_point(java: Any, tmp_path: Path, lowercase: bool) -> None:
    """Between two letters, each is dropped, a space, a separate word, or part of a word."""
    tables = normalization(lowercase)
    changed = tables.code[CODE_POINTS:][tables.kind[CODE_POINTS:] == WORD].tolist()
    characters = sorted({chr(code) for code in changed} | {"a"})
    vocabulary = tmp_path / "vocab.txt"
    pieces = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters)]
    vocabulary.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    codes = [code for code in range(CODE_POINTS) if not 0xD800 <= code < 0xE000]
    texts = [" ".join(f"a{chr(code)}a" for code in codes[start : start + 64]) for start in range(0, len(codes), 64)]
    ids = assert_equal(java, tmp_path, vocabulary, texts, lowercase=lowercase)
    # All results occur as continuations; the first letter is always "a".
    assert {token_id for row in ids for token_id in row} >= set(range(len(pieces) - len(characters), len(pieces)))
