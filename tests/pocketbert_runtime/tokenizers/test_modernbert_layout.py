"""ModernBERT's tokenizer: the ids of the library `tokenizers`, from its tokenizer.json and from our own directory."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from pathlib import Path

import modernbert_tokenizer
import pytest
from awkward_texts import awkward_texts

from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, write_vocabulary_files
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizers.byte_layouts import MODERNBERT
from pocketbert_runtime.tokenizers.composition import composed
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

tokenizers = pytest.importorskip("tokenizers")
TEXTS = [
    "the cat sat on a mat",
    "",
    " ",
    "  two   three    four     five",
    "a \t tab,   don't  [MASK] it   [MASK]",
    "[CLS]x[SEP] [PAD] [unused1]",
    # Form D, singletons, exclusions, Hangul, marks in another order, and marks without a base.
    "Cafe\u0301 Straße A\u030a \u212b \u0958 \u1112\u1161\u11ab q\u0323\u0307 q\u0307\u0323 \u0301x",
    "e\u0301  \u0301 7e\u0323\u0302 \U0001f600",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return modernbert_tokenizer.write(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def vocabulary(folder: Path) -> Vocabulary:
    problems: list[str] = []
    read = read_vocabulary_files(folder, problems)
    assert not problems and read is not None and read.layout == MODERNBERT
    return read


def test_ids_and_frames_are_those_of_the_library(folder: Path, vocabulary: Vocabulary) -> None:
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer = open_tokenizer(vocabulary)
    assert tokenizer.vocab_size == reference.get_vocab_size()
    expected = [reference.encode(text).ids for text in TEXTS]
    inputs = tokenizer(TEXTS, max_length=128)
    rows = [ids[mask == 1].tolist() for ids, mask in zip(inputs["input_word_ids"], inputs["input_mask"], strict=True)]
    assert rows == expected
    pairs = tokenizer(TEXTS[:1], TEXTS[3:4], max_length=128)
    assert pairs["input_word_ids"][0].tolist() == reference.encode(TEXTS[0], TEXTS[3]).ids
    assert not pairs["input_type_ids"].any()
    assert tokenizer.pad_token_id == reference.token_to_id("[PAD]")
    awkward = awkward_texts(300, ["cat", "[MASK]", "charming"], seed=3)
    assert tokenizer.id_rows(awkward) == [reference.encode(text, add_special_tokens=False).ids for text in awkward]


def test_our_directory_gives_the_same_tokenizer(vocabulary: Vocabulary, tmp_path: Path) -> None:
    write_vocabulary_files(tmp_path, vocabulary, 8192)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    problems: list[str] = []
    again = read_vocabulary_files(tmp_path, problems)
    assert not problems and again is not None
    assert dataclasses.replace(again, path=vocabulary.path, merges=vocabulary.merges) == vocabulary
    assert again.digest() == vocabulary.digest()
    assert open_tokenizer(again).id_rows(TEXTS) == [
        reference.encode(text, add_special_tokens=False).ids for text in TEXTS
    ]
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["mask_token"] == "[MASK]"
    # RoBERTa's layout has another digest.
    assert vocabulary.segmentation().isalnum()


def test_offsets_are_those_of_the_library_without_spaces(folder: Path, vocabulary: Vocabulary) -> None:
    """The library counts a token's spaces, and in text that it composes only a character's first code point."""
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = [*TEXTS, *awkward_texts(300, ["cat", "[MASK]", "charming"], seed=3)]
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    tokens = open_tokenizer(vocabulary).tokens(texts)
    offsets = list(zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True))
    for text, first, end in zip(texts, tokens.splits, tokens.splits[1:], strict=False):
        encoding = reference.encode(text, add_special_tokens=False)
        # Spaces before a mask are its own, in front of other tokens only ASCII's.
        spaces = [None if token.endswith("[MASK]") else " " for token in encoding.tokens]
        assert offsets[first:end] == [
            (last - len(text[start:last].lstrip(kind)), last)
            for (start, last), kind in zip(encoding.offsets, spaces, strict=True)
        ], ascii(text)


def test_offsets_span_composed_characters(vocabulary: Vocabulary) -> None:
    text = "Cafe\u0301 the"
    tokens = open_tokenizer(vocabulary).tokens([text])
    assert (tokens.starts[0], tokens.ends[-1]) == (0, len(text))
    # No token ends between the letter and its accent.
    assert 4 not in {*tokens.starts, *tokens.ends}


def test_composition_keeps_offsets() -> None:
    text, starts, ends = composed("xe\u0323\u0302y\u1112\u1161\u11abz")
    assert text == "x\u1ec7y\ud55cz"
    assert (list(starts), list(ends)) == ([0, 1, 4, 5, 8], [1, 4, 5, 8, 9])
    assert composed("plain").text == "plain"


def test_composition_is_the_librarys_for_newer_marks() -> None:
    normalize = tokenizers.normalizers.NFC().normalize_str
    for text in (
        "e\u1abf\u0301\u0323",
        "e\u0323\u0301\u0898\u0323",
        "\U00011935\U00011930e\u0301",
        "x\u0301\u0f73\u0f39",
    ):
        assert composed(text).text == normalize(text), ascii(text)


def test_missing_special_tokens_are_named(vocabulary: Vocabulary) -> None:
    without = dataclasses.replace(vocabulary, added=tuple(one for one in vocabulary.added if "[" not in one.content))
    with pytest.raises(UserError, match=r"must have \[UNK\] \[SEP\].*received one without \[UNK\].*take all"):
        open_tokenizer(without)
