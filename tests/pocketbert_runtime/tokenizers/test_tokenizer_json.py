"""The tokenizer.json of bundles: Hugging Face's `tokenizers` makes the same tokenizer from it, but for listed texts."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import regex
import sentencepiece
from test_plain_equals_library import added_tokens, texts_with
from test_plain_equals_library import wordpiece as tiny_wordpiece
from tiny_tokenizers import SENTENCES, byte_bpe_files, unigram_file
from tokenizers import Tokenizer

from pocketbert.checkpoints.vocabulary_files import read_vocabulary_files, write_tokenizer_json
from pocketbert.errors import UserError
from pocketbert_runtime.tokenizer_config import TokenizerConfig
from pocketbert_runtime.tokenizers.base import TextTokenizer
from pocketbert_runtime.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

ROOT = Path(__file__).parents[3]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})


def wordpiece(folder: Path, **options: Any) -> Vocabulary:
    return Vocabulary(path=tiny_wordpiece(folder).path, **options)


def byte_bpe(folder: Path, **options: Any) -> Vocabulary:
    vocab, merges = byte_bpe_files(folder)
    return Vocabulary(path=vocab, merges=merges, kind="byte_bpe", **options)


def unigram(folder: Path, **options: Any) -> Vocabulary:
    return Vocabulary(path=unigram_file(folder), kind="unigram", **options)


VOCABULARIES: dict[str, Any] = {
    "wordpiece": lambda folder: wordpiece(folder, config=TokenizerConfig()),
    "wordpiece-cased": lambda folder: wordpiece(folder, config=TokenizerConfig(lowercase=False)),
    "wordpiece-accents": lambda folder: wordpiece(
        folder, config=TokenizerConfig(strip_accents=False, tokenize_chinese_chars=False)
    ),
    "byte_bpe": byte_bpe,
    "byte_bpe-prefix": lambda folder: byte_bpe(folder, add_prefix_space=True),
    "unigram": unigram,
}


def written(vocabulary: Vocabulary, folder: Path) -> Any:
    """The library's tokenizer from the written file."""
    folder.mkdir(exist_ok=True)
    write_tokenizer_json(folder, vocabulary)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def rows(tokenizer: TextTokenizer, texts: Sequence[str]) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """The ids and offsets of each text."""
    tokens = tokenizer.tokens(texts)
    for start, end in zip(tokens.splits, tokens.splits[1:], strict=False):
        offsets = zip(tokens.starts[start:end].tolist(), tokens.ends[start:end].tolist(), strict=True)
        yield tokens.ids[start:end].tolist(), list(offsets)


def hard_texts(count: int, seed: int) -> list[str]:
    """Texts for all kinds, without lone surrogates, which the library refuses; the sentences also in NFD."""
    texts = [text for text in texts_with(WORDS, count, seed) if "\ud800" not in text]
    return [*texts, *SENTENCES, "", *(unicodedata.normalize("NFD", text) for text in SENTENCES)]


def assert_equal(vocabulary: Vocabulary, core: Any, texts: Sequence[str]) -> None:
    for text, (ids, offsets) in zip(texts, rows(open_tokenizer(vocabulary), texts), strict=True):
        encoding = core.encode(text, add_special_tokens=False)
        assert encoding.ids == ids, ascii(text)
        assert encoding.offsets == offsets, ascii(text)


@pytest.mark.parametrize("name", [name for name in VOCABULARIES if name != "unigram"])
def test_ids_and_offsets_are_ours(name: str, tmp_path: Path) -> None:
    vocabulary = VOCABULARIES[name](tmp_path)
    assert_equal(vocabulary, written(vocabulary, tmp_path / "json"), hard_texts(300, seed=41))


def test_golden_texts_have_our_ids(tmp_path: Path) -> None:
    vocabulary = VOCABULARIES["wordpiece"](tmp_path)
    content = json.loads((ROOT / "tests/goldens/wordpiece_uncased.json").read_text("utf-8"))
    texts = [row["text"] for row in content["single"]]
    assert len(texts) == 337
    assert_equal(vocabulary, written(vocabulary, tmp_path / "json"), texts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["wordpiece", "byte_bpe", "byte_bpe-prefix"])
def test_added_tokens_are_ours(name: str, seed: int, tmp_path: Path) -> None:
    plain = VOCABULARIES[name](tmp_path)
    options = {"config": plain.config} if name == "wordpiece" else {"add_prefix_space": plain.add_prefix_space}
    make = wordpiece if name == "wordpiece" else byte_bpe
    vocabulary = make(tmp_path, added=added_tokens(plain.base_tokens(), seed), **options)
    try:
        open_tokenizer(vocabulary)
    except UserError as error:
        pytest.skip(str(error))
    assert_equal(vocabulary, written(vocabulary, tmp_path / "json"), hard_texts(100, seed=seed))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_pairs_have_our_segments(name: str, tmp_path: Path) -> None:
    vocabulary = VOCABULARIES[name](tmp_path)
    core, tokenizer = written(vocabulary, tmp_path / "json"), open_tokenizer(vocabulary)
    for first, second in (("the cat", "sat on the mat"), ("", "a"), ("<mask> a [MASK]", "")):
        inputs = tokenizer([first], [second], max_length=64)
        encoding = core.encode(first, second)
        assert encoding.ids == inputs["input_word_ids"][0].tolist()
        assert encoding.type_ids == inputs["input_type_ids"][0].tolist()
    assert core.encode("the cat").ids == tokenizer(["the cat"], max_length=64)["input_word_ids"][0].tolist()
    assert core.truncation is None and core.padding is None


@pytest.mark.parametrize("name", VOCABULARIES)
def test_own_reader_reads_it(name: str, tmp_path: Path) -> None:
    vocabulary = VOCABULARIES[name](tmp_path)
    written(vocabulary, tmp_path / "json")
    problems: list[str] = []
    read = read_vocabulary_files(tmp_path / "json", problems)
    assert not problems and read is not None
    assert read.options == vocabulary.options and read.segmentation() == vocabulary.segmentation()
    assert list(read.tokens()) == list(vocabulary.tokens()) and read.added == ()
    assert read.add_prefix_space == vocabulary.add_prefix_space and read.keeps_space == vocabulary.keeps_space


class Characters:
    """A model's normalizer, by sentencepiece, and the rules of the documentation for the texts that get other ids."""

    def __init__(self, path: Path) -> None:
        self._core: Any = sentencepiece.SentencePieceNormalizer(
            model_file=str(path), add_dummy_prefix=False, escape_whitespaces=False, remove_extra_whitespaces=False
        )

    def normalize(self, text: str) -> str:
        return self._core.normalize(text)

    def is_listed(self, text: str) -> bool:
        """Whether a text has a character, of several code points, that the documentation lists."""
        return any(self._is_listed(character) for character in regex.findall(r"\X", text))

    def _is_listed(self, character: str) -> bool:
        expected = self.normalize(character)
        if len(character.encode()) >= 6:
            return expected != "".join(map(self.normalize, character))
        prefixes = (character[:end] for end in range(1, len(character)))
        cut = next((prefix for prefix in prefixes if self.normalize(prefix) != prefix), character)
        return self.normalize(cut) != expected


def documented() -> list[tuple[str, str, str]]:
    """The rows of the documentation: text, what sentencepiece makes of it, and what `tokenizers` does."""
    page = (ROOT / "docs/reference/tokenizer.md").read_text("utf-8")
    table = re.findall(r"^\| ((?:U\+[0-9A-F]{4} ?)+) \| ([^|]*) \| ([^|]*) \| [^|]* \|$", page, re.MULTILINE)
    assert table
    return [tuple("".join(chr(int(code[2:], 16)) for code in cell.split()) for cell in row) for row in table]  # type: ignore[misc]


def test_documented_characters_differ_as_stated(tmp_path: Path) -> None:
    vocabulary = unigram(tmp_path)
    core, characters = written(vocabulary, tmp_path / "json"), Characters(vocabulary.path)
    for text, expected, other in documented():
        assert characters.is_listed(text), ascii(text)
        assert characters.normalize(text) == expected, ascii(text)
        assert core.normalizer.normalize_str(text) == other, ascii(text)


def test_only_listed_texts_have_other_ids(tmp_path: Path) -> None:
    vocabulary = unigram(tmp_path)
    core, characters = written(vocabulary, tmp_path / "json"), Characters(vocabulary.path)
    texts = hard_texts(400, seed=5)
    other = 0
    for text, (ids, _) in zip(texts, rows(open_tokenizer(vocabulary), texts), strict=True):
        listed = characters.is_listed(text)
        assert (core.normalizer.normalize_str(text) != characters.normalize(text)) == listed, ascii(text)
        is_other = core.encode(text, add_special_tokens=False).ids != ids
        assert listed or not is_other, ascii(text)
        other += is_other
    assert other


def test_only_listed_offsets_of_unigram_differ(tmp_path: Path) -> None:
    vocabulary = unigram(tmp_path)
    core, characters = written(vocabulary, tmp_path / "json"), Characters(vocabulary.path)
    texts = hard_texts(400, seed=6)
    compared = 0
    for text, (ids, offsets) in zip(texts, rows(open_tokenizer(vocabulary), texts), strict=True):
        has_dropped = any(not characters.normalize(character) for character in text)
        if has_dropped or any(len(character) > 1 for character in regex.findall(r"\X", text)):
            continue
        encoding = core.encode(text, add_special_tokens=False)
        assert encoding.ids == ids, ascii(text)
        for token, expected, received in zip(encoding.tokens, offsets, encoding.offsets, strict=True):
            if token.strip() not in ("▁", "<mask>"):
                assert received == expected, (token, ascii(text))
                compared += 1
    assert compared > 1000


@pytest.mark.data
def test_real_vocabularies_have_our_ids(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data/vocab"
    texts = [
        *hard_texts(300, seed=43),
        *(text for text in texts_with(["naïve", "film"], 100, seed=44) if text.isascii()),
    ]
    bert = Vocabulary(path=folder / "bert-base-uncased.vocab.txt", config=TokenizerConfig())
    roberta = Vocabulary(path=folder / "roberta.vocab.json", merges=folder / "roberta.merges.txt", kind="byte_bpe")
    for vocabulary in (bert, roberta):
        assert_equal(vocabulary, written(vocabulary, tmp_path / vocabulary.kind), texts)
