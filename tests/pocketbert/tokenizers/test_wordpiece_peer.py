"""Equality with transformers' fast tokenizer: tokens and offsets."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from awkward_texts import awkward_texts

import pocketbert as pb

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

GOLDENS = Path(__file__).parents[2] / "goldens" / "wordpiece_uncased.json"
NAMES = {"input_ids": "input_word_ids", "attention_mask": "input_mask", "token_type_ids": "input_type_ids"}
VOCABULARIES = {"uncased": True, "cased": False, "multilingual-cased": False, "chinese": True}

pytestmark = pytest.mark.data


def vocabulary(shared: Path, name: str) -> Path:
    return shared / "data" / "vocab" / f"bert-base-{name}.vocab.txt"


def peer(shared: Path, name: str, **options: Any) -> Any:
    from transformers import BertTokenizerFast

    return BertTokenizerFast(str(vocabulary(shared, name)), do_lower_case=VOCABULARIES[name], **options)


def words_of(path: Path) -> list[str]:
    return [piece for piece in path.read_text(encoding="utf-8").splitlines() if piece.isalpha() and len(piece) > 2]


def assert_equal(tokenizer: pb.WordPieceTokenizer, reference: Any, texts: list[str]) -> None:
    expected = reference(texts, add_special_tokens=False, return_offsets_mapping=True)
    ids, starts, ends = (
        tokenize_with_offset.to_list() for tokenize_with_offset in tokenizer.tokenize_with_offsets(texts)
    )
    assert len(ids) == len(texts)
    for row, text in enumerate(texts):
        offsets = list(zip(starts[row], ends[row], strict=True))
        assert ids[row] == expected["input_ids"][row], ascii(text)
        assert offsets == expected["offset_mapping"][row], ascii(text)
    assert tokenizer.tokenize(texts).to_list() == ids


@pytest.fixture(scope="module")
def uncased(shared: Path) -> pb.WordPieceTokenizer:
    return pb.WordPieceTokenizer(vocabulary(shared, "uncased"))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(GOLDENS.read_text(encoding="utf-8"))


def test_committed_golden_is_the_shared_one(goldens: Path) -> None:
    assert GOLDENS.read_bytes() == (goldens / GOLDENS.name).read_bytes()


def test_golden_texts(uncased: pb.WordPieceTokenizer, golden: dict[str, Any]) -> None:
    cases = golden["single"]
    assert len(cases) == 337
    ids, starts, ends = (
        tokenize_with_offset.to_list()
        for tokenize_with_offset in uncased.tokenize_with_offsets([case["text"] for case in cases])
    )
    assert ids == [case["ids"] for case in cases]
    offsets = [[list(pair) for pair in zip(*row, strict=True)] for row in zip(starts, ends, strict=True)]
    assert offsets == [case["offsets"] for case in cases]


def test_golden_pairs(uncased: pb.WordPieceTokenizer, golden: dict[str, Any]) -> None:
    cases = golden["pairs"]
    assert len(cases) == 60
    for case in cases:
        length = case["max_length"]
        inputs = uncased([case["a"]], [case["b"]], max_length=length, pad_to=length)
        for peer_name, name in NAMES.items():
            np.testing.assert_array_equal(inputs[name], [case[peer_name]])


@pytest.mark.usefixtures("eager")
@pytest.mark.one_of_each("cased", "chinese")
@pytest.mark.parametrize("name", VOCABULARIES)
def test_generated_texts(shared: Path, name: str) -> None:
    path = vocabulary(shared, name)
    tokenizer = pb.WordPieceTokenizer(path, lowercase=VOCABULARIES[name])
    count = 1_000 if name in ("uncased", "cased") else 200
    assert_equal(tokenizer, peer(shared, name), awkward_texts(count, words_of(path), seed=11))


OPTIONS = [
    # lowercase, strip_accents, tokenize_chinese_chars
    (True, False, True),
    (False, True, False),
    pytest.param(True, True, False, marks=pytest.mark.slow),
    pytest.param(True, False, False, marks=pytest.mark.slow),
    pytest.param(False, False, False, marks=pytest.mark.slow),
    pytest.param(False, True, True, marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("eager")
@pytest.mark.one_of_each("False-True-False")
@pytest.mark.parametrize(("lowercase", "strip_accents", "tokenize_chinese_chars"), OPTIONS)
def test_accent_and_ideograph_options(
    shared: Path, lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool
) -> None:
    from transformers import BertTokenizerFast

    # Its tokens have accents, both cases and ideographs.
    path = vocabulary(shared, "multilingual-cased")
    options = {"strip_accents": strip_accents, "tokenize_chinese_chars": tokenize_chinese_chars}
    tokenizer = pb.WordPieceTokenizer(path, lowercase, **options)
    reference = BertTokenizerFast(str(path), do_lower_case=lowercase, **options)
    texts = awkward_texts(300, words_of(path), seed=13)
    texts += ["İstanbul Ärger ÉCOLE", "中文 日本語abc 豈更車", "北京大学。", "e\u0301\u0323 한국어 Ω"]
    assert_equal(tokenizer, reference, texts)
    assert_equal(pickle.loads(pickle.dumps(tokenizer)), reference, texts[-4:])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_20000_generated_texts(shared: Path, name: str) -> None:
    path = vocabulary(shared, name)
    tokenizer = pb.WordPieceTokenizer(path, lowercase=VOCABULARIES[name])
    reference = peer(shared, name)
    texts = awkward_texts(20_000, words_of(path), seed=23)
    for start in range(0, len(texts), 500):
        assert_equal(tokenizer, reference, texts[start : start + 500])


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_special_tokens_as_text(shared: Path) -> None:
    path = vocabulary(shared, "uncased")
    tokenizer = pb.WordPieceTokenizer(path, special_tokens_in_text="text")
    texts = awkward_texts(400, words_of(path), seed=31) + ["a [SEP] b", "[MASK]"]
    assert_equal(tokenizer, peer(shared, "uncased", split_special_tokens=True), texts)
    assert tokenizer.sep_token_id not in tokenizer.tokenize(texts).values


@pytest.mark.parametrize("max_length", [3, 4, 7, 8, 19, 128])
def test_truncation_of_pairs(shared: Path, uncased: pb.WordPieceTokenizer, max_length: int) -> None:
    words = words_of(vocabulary(shared, "uncased"))
    firsts, seconds = awkward_texts(60, words, seed=41), awkward_texts(60, words, seed=43)
    # All pairs of small lengths: ties and odd places decide who gives.
    for first in range(6):
        for second in range(6):
            firsts.append(" ".join(["the"] * first))
            seconds.append(" ".join(["of"] * second))
    expected = peer(shared, "uncased")(
        firsts, seconds, truncation="longest_first", max_length=max_length, padding="longest", return_tensors="np"
    )
    inputs = uncased(firsts, seconds, max_length=max_length)
    for peer_name, name in NAMES.items():
        np.testing.assert_array_equal(inputs[name], expected[peer_name])


@pytest.mark.parametrize("max_length", [2, 3, 9, 128])
def test_truncation_of_single_texts(shared: Path, uncased: pb.WordPieceTokenizer, max_length: int) -> None:
    texts = awkward_texts(80, words_of(vocabulary(shared, "uncased")), seed=47)
    expected = peer(shared, "uncased")(
        texts, truncation=True, max_length=max_length, padding="max_length", return_tensors="np"
    )
    inputs = uncased(texts, max_length=max_length, pad_to=max_length)
    for peer_name, name in NAMES.items():
        np.testing.assert_array_equal(inputs[name], expected[peer_name])


def test_ascii_characters_one_by_one(shared: Path, uncased: pb.WordPieceTokenizer) -> None:
    """Printable ASCII takes a shorter way than other texts; every character, alone and beside every kind."""
    characters = [chr(code) for code in range(0x80)]
    texts = [
        f"{left}{character}{right}" for character in characters for left in ("", "a", ".") for right in ("", "b", "!")
    ]
    reference = peer(shared, "uncased")
    assert_equal(uncased, reference, texts)
    assert_equal(pb.WordPieceTokenizer(vocabulary(shared, "cased"), lowercase=False), peer(shared, "cased"), texts)


def test_ascii_sentences(shared: Path, uncased: pb.WordPieceTokenizer) -> None:
    lines = (shared / "data" / "glue" / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:2001]
    assert_equal(uncased, peer(shared, "uncased"), [line.split("\t")[0].title() for line in lines])


@pytest.mark.parametrize("length", [99, 100, 101])
@pytest.mark.parametrize("character", ["a", "é", "д", "ก", "한", "𝔞"])
def test_longest_word(shared: Path, uncased: pb.WordPieceTokenizer, length: int, character: str) -> None:
    """100 characters are a word, 101 an unknown one; characters count after decomposition, bytes do not."""
    assert_equal(uncased, peer(shared, "uncased"), [f"x {character * length} y", character * length + "."])
