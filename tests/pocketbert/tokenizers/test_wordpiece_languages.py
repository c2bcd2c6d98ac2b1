"""The multilingual vocabulary in XNLI's 15 languages, compared with transformers' slow tokenizer."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

import pocketbert as pb
from pocketbert.data.readers.xnli import LANGUAGES, read_xnli

pytestmark = pytest.mark.data

PAIRS_A_LANGUAGE = 60


@pytest.fixture(scope="module")
def vocabulary(shared: Path) -> Path:
    return shared / "data" / "vocab" / "bert-base-multilingual-cased.vocab.txt"


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Path) -> pb.WordPieceTokenizer:
    return pb.WordPieceTokenizer(vocabulary, lowercase=False)


@pytest.mark.one_of_each("en", "ar", "th", "zh", "hi")
@pytest.mark.parametrize("language", LANGUAGES)
def test_equal_to_the_slow_tokenizer(
    language: str, shared: Path, vocabulary: Path, tokenizer: pb.WordPieceTokenizer
) -> None:
    from transformers import BertTokenizer

    peer = BertTokenizer(str(vocabulary), do_lower_case=False)
    dev = read_xnli(shared / "data" / "xnli", "dev", [language])
    # From all over the file, an odd step so that every label and both texts of a prompt come.
    dev = dev.select(range(0, len(dev), len(dev) // PAIRS_A_LANGUAGE))
    assert dev.pairs is not None
    # Only the slow tokenizer composes characters (NFC) first (docs/reference/tokenizer.md).
    texts = [unicodedata.normalize("NFC", text) for text in (*dev.texts, *dev.pairs)]
    assert len(texts) >= 2 * PAIRS_A_LANGUAGE
    rows = tokenizer.tokenize(texts).to_list()
    for text, ids in zip(texts, rows, strict=True):
        assert ids == peer.convert_tokens_to_ids(peer.tokenize(text)), ascii(text)


def pieces(tokenizer: pb.WordPieceTokenizer, vocabulary: Path, text: str) -> list[str]:
    names = vocabulary.read_text(encoding="utf-8").split("\n")
    return [names[index] for index in tokenizer.tokenize([text]).to_list()[0]]


def test_ideographs_are_isolated_thai_is_not(tokenizer: pb.WordPieceTokenizer, vocabulary: Path) -> None:
    # 我回来了: each ideograph is a word, whatever is beside it. ฉันกลับมาแล้ว has no spaces: one word, cut into tokens.
    assert pieces(tokenizer, vocabulary, "我回来了ok。") == ["我", "回", "来", "了", "ok", "。"]
    thai = pieces(tokenizer, vocabulary, "ฉันกลับมาแล้ว")
    assert len(thai) > 1 and not thai[0].startswith("##") and all(piece.startswith("##") for piece in thai[1:])
    assert "".join(piece.removeprefix("##") for piece in thai) == "ฉันกลับมาแล้ว"
    # Cased: neither lower case nor accents go.
    assert pieces(tokenizer, vocabulary, "Ελλάδα Việt") != pieces(tokenizer, vocabulary, "ελλαδα viet")
