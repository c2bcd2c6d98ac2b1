"""Byte-level BPE and added tokens in plain Python: ids and offsets of the library `tokenizers`, which training uses."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from awkward_texts import awkward_texts
from tiny_tokenizers import SENTENCES, byte_bpe_files

from pocketbert.tokenizers import library
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizer_config import TokenizerConfig
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE, merged
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
LITERALS = {"[SEP]": "</s>", "[CLS]": "<s>", "[MASK]": "<mask>", "[PAD]": "<pad>", "[UNK]": "<unk>"}
# White space, contractions, marks, joiners, numbers, letters of Unicode 15 and 16, and characters with two words.
CHARACTERS = (
    " \t\n\r\x0b\x1c\x1f\x85\xa0\u1680\u2009\u2028\u200b\u200c\u200d\u3000'''sStdmrevl'laé\u0301\u0130ßΣ你好ー½²௧Ⅷ①ⓐ🅰_‿"
    "\u1c89\ua7da\U00010d40\U0001e5f1\U0001f469\ufffd\u0378\ud800.<>[]E1"
)
NAMES = ("lstrip", "rstrip", "single_word", "normalized", "special")
CONTENTS = ("<e1>", "[E1]", "cats", "é", "你好", "1", "E", "a b", "ⓐ", "ca")


def texts_with(words: Sequence[str], count: int, seed: int) -> list[str]:
    """Awkward texts, and random strings from `CHARACTERS` and `words`."""
    generator = random.Random(seed)
    parts = [*CHARACTERS, *words, *LITERALS, *LITERALS.values(), "can't", "WE'LL", "  "]
    drawn = ["".join(generator.choices(parts, k=generator.randrange(1, 15))) for _ in range(count)]
    awkward = awkward_texts(count, list(words), seed)
    return [
        *drawn,
        *(re.sub(r"\[(SEP|CLS|MASK|PAD|UNK)\]", lambda match: LITERALS[match[0]], text) for text in awkward),
    ]


def byte_bpe(folder: Path, **options: Any) -> Vocabulary:
    vocab, merges = byte_bpe_files(folder)
    return Vocabulary(path=vocab, merges=merges, kind="byte_bpe", **options)


def wordpiece(folder: Path) -> Vocabulary:
    folder.mkdir(exist_ok=True)
    path = folder / "vocab.txt"
    letters = sorted({character for character in CHARACTERS if not character.isspace() and character.isprintable()})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), "cat"]
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return Vocabulary(path=path, config=TokenizerConfig())


def added_tokens(tokens: Sequence[str], seed: int) -> tuple[AddedToken, ...]:
    """Up to four tokens with random flags; some are in the vocabulary."""
    generator = random.Random(seed)
    contents = generator.sample(CONTENTS, generator.randrange(1, 5))
    new = [content for content in contents if content not in tokens]
    ids = {token: number for number, token in enumerate([*tokens, *new])}
    return tuple(
        AddedToken(content=content, id=ids[content], **{name: generator.random() < 0.4 for name in NAMES})
        for content in contents
    )


def assert_equal(plain: TextTokenizer, reference: TextTokenizer, texts: Sequence[str]) -> None:
    """Compares text by text, so that a failure shows the text."""
    for text in texts:
        tokens, expected = plain.tokens([text]), reference.tokens([text])
        assert tokens.ids.tolist() == expected.ids.tolist(), ascii(text)
        assert tokens.starts.tolist() == expected.starts.tolist(), ascii(text)
        assert tokens.ends.tolist() == expected.ends.tolist(), ascii(text)
    assert plain.id_rows(texts) == reference.id_rows(texts)


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("special", ["token", "text"])
def test_byte_bpe_equals_library(tmp_path: Path, prefix: bool, special: Any) -> None:
    vocabulary = byte_bpe(tmp_path, add_prefix_space=prefix)
    texts = texts_with(WORDS, 400, seed=37 + prefix)
    assert_equal(ByteBPE(vocabulary, special), library.byte_bpe(vocabulary, special), [*texts, *SENTENCES, ""])


def assert_alike(vocabulary: Vocabulary, make: Callable[[Vocabulary], TextTokenizer], texts: Sequence[str]) -> None:
    """Compares tokenizers; both may refuse the vocabulary in the same words."""

    def message(opened: Callable[[Vocabulary], TextTokenizer]) -> str:
        try:
            opened(vocabulary)
        except UserError as error:
            return str(error)
        return ""

    refused = message(make)
    assert message(open_tokenizer) == refused
    if not refused:
        assert_equal(open_tokenizer(vocabulary), make(vocabulary), texts)


@pytest.mark.parametrize("seed", range(6))
def test_added_tokens_of_byte_bpe_equal_library(tmp_path: Path, seed: int) -> None:
    vocabulary = byte_bpe(tmp_path, add_prefix_space=seed % 2 == 1)
    vocabulary = dataclasses.replace(vocabulary, added=added_tokens(vocabulary.base_tokens(), seed))
    assert_alike(vocabulary, library.byte_bpe, texts_with([*WORDS, *CONTENTS], 150, seed=seed))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("lowercase", [True, False])
def test_added_tokens_of_wordpiece_equal_library(tmp_path: Path, seed: int, lowercase: bool) -> None:
    vocabulary = wordpiece(tmp_path)
    config = TokenizerConfig(lowercase=lowercase, strip_accents=seed % 3 != 1 if seed % 2 else None)
    added = added_tokens(vocabulary.base_tokens(), seed)
    vocabulary = dataclasses.replace(vocabulary, added=added, config=config)
    assert_alike(vocabulary, library.added_wordpiece, texts_with(["cat", *CONTENTS], 150, seed=seed))


@pytest.mark.data
def test_real_byte_bpe_equals_library(shared: Path) -> None:
    folder = shared / "data" / "vocab"
    vocabulary = Vocabulary(path=folder / "roberta.vocab.json", merges=folder / "roberta.merges.txt", kind="byte_bpe")
    assert_equal(open_tokenizer(vocabulary), library.byte_bpe(vocabulary), texts_with([*WORDS, "naïve"], 500, seed=3))


@pytest.mark.slow
def test_all_code_points_equal_library(tmp_path: Path) -> None:
    vocabulary = byte_bpe(tmp_path)
    plain, reference = open_tokenizer(vocabulary), library.byte_bpe(vocabulary)
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = [f"a{chr(code)}0{chr(code)}.{chr(code)}" for code in codes]
    for start in range(0, len(texts), 1 << 16):
        chunk = texts[start : start + (1 << 16)]
        assert plain.id_rows(chunk) == reference.id_rows(chunk)


@pytest.mark.slow
def test_all_neighbours_of_single_words_equal_library(tmp_path: Path) -> None:
    vocabulary = byte_bpe(tmp_path)
    token = AddedToken(content="<e1>", id=len(vocabulary.base_tokens()), single_word=True)
    vocabulary = dataclasses.replace(vocabulary, added=(token,))
    plain, reference = open_tokenizer(vocabulary), library.byte_bpe(vocabulary)
    texts = [f"<e1>{chr(code)}" for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(texts), 1 << 16):
        chunk = texts[start : start + (1 << 16)]
        assert plain.id_rows(chunk) == reference.id_rows(chunk)


def test_lowest_rank_is_merged_first_from_the_left() -> None:
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("a", "a"): 2, ("aa", "a"): 3}
    assert merged("abc", ranks) == ["a", "bc"]
    # Two pairs of rank 2 come before the one of rank 3.
    assert merged("aaaaa", ranks) == ["aa", "aaa"]
    assert merged("abab", ranks) == ["ab", "ab"]
    assert merged("c", ranks) == ["c"]


def test_long_words_need_no_square_time(tmp_path: Path) -> None:
    vocabulary = byte_bpe(tmp_path)
    text = "the" * 20_000
    assert open_tokenizer(vocabulary).id_rows([text]) == library.byte_bpe(vocabulary).id_rows([text])
