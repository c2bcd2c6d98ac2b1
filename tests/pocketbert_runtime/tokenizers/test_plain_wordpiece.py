"""WordPiece in plain Python: equality with transformers' fast tokenizer, its inputs, and what it refuses."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_texts import awkward_texts

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizer_config import TokenizerConfig
from pocketbert_runtime.tokenizers.base import TextTokens
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece import WordPiece

GOLDENS = Path(__file__).parents[2] / "goldens" / "wordpiece_uncased.json"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "##s", "sat", "##urn", "on", "."]
PAD, UNK, CLS, SEP, MASK, THE, CAT, S, SAT, URN, ON, DOT = range(12)
NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask", "token_type_ids": "input_type_ids"}
OPTIONS = [(True, True, True), (True, False, True), (False, True, False), (False, False, False)]


def write(folder: Path, tokens: Sequence[str]) -> Path:
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WordPiece:
    return WordPiece(Vocabulary(path=write(tmp_path_factory.mktemp("vocabulary"), [*SPECIAL, *WORDS])))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return awkward_texts(400, ["the", "film", "naïve", "journey"], seed=29)


@pytest.fixture(scope="module")
def characters(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary with most characters in the texts, in all cases and decomposed, so that few words are unknown."""
    cases = {case for text in texts for case in (text, text.lower())}
    forms = cases | {unicodedata.normalize("NFD", case) for case in cases}
    letters = sorted(
        {character for form in forms for character in form if unicodedata.category(character)[0] in "LMNPS"}
    )
    tokens = [*SPECIAL, "the", "##ey", *letters, *(f"##{letter}" for letter in letters)]
    return write(tmp_path_factory.mktemp("characters"), tokens)


def reference(path: Path, lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool) -> Any:
    from transformers import BertTokenizerFast

    options = {"strip_accents": strip_accents, "tokenize_chinese_chars": tokenize_chinese_chars}
    return BertTokenizerFast(str(path), do_lower_case=lowercase, **options)


def rows_of(tokens: TextTokens) -> list[list[tuple[int, int, int]]]:
    """Id, start and end of the tokens of each text."""
    triples = list(zip(*(part.tolist() for part in tokens[:3]), strict=True))
    return [triples[begin:end] for begin, end in zip(tokens.splits, tokens.splits[1:], strict=False)]


@pytest.mark.parametrize(("lowercase", "strip_accents", "tokenize_chinese_chars"), OPTIONS)
def test_awkward_texts_have_transformers_tokens(
    characters: Path, texts: list[str], lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool
) -> None:
    options = {"strip_accents": strip_accents, "tokenize_chinese_chars": tokenize_chinese_chars}
    config = TokenizerConfig(lowercase=lowercase, **options)
    tokenizer = WordPiece(Vocabulary(path=characters, config=config))
    expected = reference(characters, lowercase, **options)(texts, add_special_tokens=False, return_offsets_mapping=True)
    rows = rows_of(tokenizer.tokens(texts))
    for text, row, ids, offsets in zip(texts, rows, expected["input_ids"], expected["offset_mapping"], strict=True):
        assert row == [(token, *offset) for token, offset in zip(ids, offsets, strict=True)], ascii(text)
    assert tokenizer.id_rows(texts) == expected["input_ids"]
    tokens = [token for row in expected["input_ids"] for token in row]
    assert len(tokens) > 5_000 and tokens.count(UNK) < len(tokens) / 10


@pytest.mark.parametrize("length", [5, 11, 40])
@pytest.mark.parametrize("pairs", [False, True])
def test_inputs_are_cut_and_padded_as_by_transformers(
    characters: Path, texts: list[str], length: int, pairs: bool
) -> None:
    tokenizer = WordPiece(Vocabulary(path=characters))
    second = texts[::-1] if pairs else None
    options = {"max_length": length, "padding": "max_length", "truncation": "longest_first"}
    expected = reference(characters, True, True, True)(texts, second, **options)
    inputs = tokenizer(texts, second, max_length=length, pad_to=length)
    for name, array in inputs.items():
        assert array.dtype == np.int32 and array.shape == (len(texts), length), name
    for reference_name, name in NAMES.items():
        np.testing.assert_array_equal(inputs[name], expected[reference_name])


@pytest.mark.data
def test_golden_texts_have_their_ids_and_offsets(shared: Path) -> None:
    path = shared / "data" / "vocab" / "bert-base-uncased.vocab.txt"
    tokenizer, golden = WordPiece(Vocabulary(path=path)), json.loads(GOLDENS.read_text("utf-8"))
    rows = rows_of(tokenizer.tokens([case["text"] for case in golden["single"]]))
    assert len(rows) == 337
    for case, row in zip(golden["single"], rows, strict=True):
        assert [list(token) for token in row] == [
            [token, *offsets] for token, offsets in zip(case["ids"], case["offsets"], strict=True)
        ]
    for case in golden["pairs"]:
        inputs = tokenizer([case["a"]], [case["b"]], max_length=case["max_length"], pad_to=case["max_length"])
        for reference_name, name in NAMES.items():
            np.testing.assert_array_equal(inputs[name], [case[reference_name]])


def test_rows_are_as_long_as_the_longest(tokenizer: WordPiece) -> None:
    inputs = tokenizer(["The CATS sat.", "", "dog saturn"])
    np.testing.assert_array_equal(
        inputs["input_word_ids"],
        [[CLS, THE, CAT, S, SAT, DOT, SEP], [CLS, SEP, *[PAD] * 5], [CLS, UNK, SAT, URN, SEP, PAD, PAD]],
    )
    np.testing.assert_array_equal(inputs["input_mask"].sum(axis=1), [7, 2, 5])
    assert tokenizer([])["input_word_ids"].shape == (0, 0)


def test_offsets_point_into_the_text(tokenizer: WordPiece) -> None:
    text = "\u200bTHE  çåţš[SEP]on\u0301 [MASK]."
    ids, starts, ends, splits = tokenizer.tokens([text, ""])
    assert ids.tolist() == [THE, CAT, S, SEP, ON, MASK, DOT] and splits.tolist() == [0, 7, 7]
    spans = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert spans == ["THE", "çåţ", "š", "[SEP]", "on", "[MASK]", "."]


def test_lone_surrogates_vanish(tokenizer: WordPiece) -> None:
    assert rows_of(tokenizer.tokens(["\ud800cat", "the \udfff"])) == [[(CAT, 1, 4)], [(THE, 0, 3)]]


@pytest.mark.parametrize("letter", ["s", "é"])
def test_long_word_is_one_unknown_token(tokenizer: WordPiece, letter: str) -> None:
    assert rows_of(tokenizer.tokens([letter * 100_000])) == [[(UNK, 0, 100_000)]]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("the cat",), {}, "texts must be a list of strings; received one text, 'the cat'"),
        ((["the", 7],), {}, "texts must be a list of strings; received 7 at index 1"),
        ((["the"], [None]), {}, "pairs must be a list of strings; received None at index 0"),
        ((["the", "cat"], ["on"]), {}, "received 2 texts and 1 pairs"),
        ((["the"],), {"max_length": 1}, "room for 2 special tokens; received 1"),
        ((["the"], ["on"]), {"max_length": 2}, "room for 3 special tokens; received 2"),
        ((["the"],), {"max_length": 9, "pad_to": 8}, "received pad_to=8, max_length=9"),
    ],
)
def test_bad_calls_are_one_line(tokenizer: WordPiece, arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        tokenizer(*arguments, **options)
