"""All code points, compared with the tables of Hugging Face's `tokenizers`."""

from __future__ import annotations

import numpy as np
import pytest

from pocketbert.tokenizers.bert_unicode import CODE_POINTS, Normalization, normalization, normalized
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, ISOLATED, SPACE, WORD

SURROGATES = range(0xD800, 0xE000)


def _kinds_there() -> np.ndarray:
    from tokenizers import pre_tokenizers

    splitter = pre_tokenizers.BertPreTokenizer()
    kinds = np.zeros(CODE_POINTS, np.int8)
    for code in range(CODE_POINTS):
        if code not in SURROGATES:
            words = len(splitter.pre_tokenize_str(f"a{chr(code)}b"))
            kinds[code] = {1: WORD, 2: SPACE, 3: ISOLATED}[words]
    return kinds


def _entries(tables: Normalization, code: int) -> list[tuple[int, int]]:
    """(code point, kind) of all that remains of `code`."""
    entries = slice(tables.start[code], tables.start[code] + tables.count[code])
    return [entry for entry in zip(tables.code[entries], tables.kind[entries], strict=True) if entry[1] != DROPPED]


def _check(lowercase: bool, codes: range, kinds: np.ndarray) -> None:
    from tokenizers import normalizers

    reference = normalizers.BertNormalizer(lowercase=lowercase)
    tables = normalization(lowercase)
    for code in codes:
        if code in SURROGATES:
            continue
        text = reference.normalize_str(chr(code))
        is_ideograph = len(text) == 3 and text[0] == text[2] == " "
        text = text[1] if is_ideograph else text
        expected = [(ord(character), ISOLATED if is_ideograph else kinds[ord(character)]) for character in text]
        assert _entries(tables, code) == expected, f"U+{code:04X}"


@pytest.mark.slow
def test_all_code_points() -> None:
    kinds = _kinds_there()
    for lowercase in (True, False):
        _check(lowercase, range(CODE_POINTS), kinds)


@pytest.mark.slow
def test_order_of_marks() -> None:
    """The marks that have a combining class here have one there."""
    from tokenizers import normalizers

    reference = normalizers.NFD()
    tables = normalization(True)
    for code in np.flatnonzero(tables.start == np.arange(CODE_POINTS)):
        if code in SURROGATES or not tables.count[code]:
            continue
        character = chr(code)
        # U+0345 has class 240, the highest: whatever has a class moves before it.
        moves = reference.normalize_str("\u0345" + character) == character + "\u0345"
        assert (tables.combining[code] > 0) == moves or code == 0x345, f"U+{code:04X}"


@pytest.mark.parametrize("lowercase", [True, False])
def test_tables_are_consistent(lowercase: bool) -> None:
    tables = normalization(lowercase)
    assert len(tables.code) == len(tables.kind) == len(tables.combining)
    assert (tables.start + tables.count <= len(tables.code)).all()
    np.testing.assert_array_equal(tables.code[:CODE_POINTS], np.arange(CODE_POINTS))
    assert set(np.unique(tables.kind)) == {WORD, SPACE, ISOLATED} | ({DROPPED} if lowercase else set())


# Expected from the Unicode data files and google-research/bert's rules, not from our tables.
@pytest.mark.parametrize(
    ("character", "uncased", "cased"),
    [
        ("A", "a", "A"),
        ("É", "e", "É"),
        ("İ", "i", "İ"),
        ("ß", "ß", "ß"),
        ("ﬁ", "ﬁ", "ﬁ"),
        ("Ω", "ω", "Ω"),  # U+2126 OHM SIGN decomposes to the Greek letter
        ("한", "\u1112\u1161\u11ab", "한"),
        ("\u0301", "", "\u0301"),
        ("\t", " ", " "),
        ("\u00a0", " ", " "),
        ("\u200b", "", ""),
        ("\x00", "", ""),
        ("\ufffd", "", ""),
        ("\U0010ffff", "\U0010ffff", "\U0010ffff"),
    ],
)
def test_known_characters(character: str, uncased: str, cased: str) -> None:
    for lowercase, expected in ((True, uncased), (False, cased)):
        tables = normalization(lowercase)
        assert "".join(chr(code) for code, _ in _entries(tables, ord(character))) == expected


@pytest.mark.parametrize("lowercase", [True, False])
def test_texts_are_normalized_like_the_package(lowercase: bool) -> None:
    from tokenizers import normalizers

    reference = normalizers.BertNormalizer(lowercase=lowercase, handle_chinese_chars=False)
    texts = [
        "a\x0bb\x85c\x1fd\td\u2028e\u3000f",
        "\u00c9COLE\u200b \u0130stanbul \u212bngstr\u00f6m \ufb01n \u6771\u4eac",
        # Kept marks that change places, with a dropped one between them.
        "\u302e\u0301\u302a \u1b44\u0327\u0301 \U0001d165\u0327 \u09fe\u0301",
        "private \ue000, unassigned \u0378",
        *("".join(map(chr, range(start, start + 256))) for start in range(0, 0x3400, 256)),
    ]
    for text in texts:
        assert normalized(text, lowercase) == reference.normalize_str(text)
