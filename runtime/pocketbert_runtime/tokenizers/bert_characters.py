"""BERT's normalization per code point, as in Hugging Face's fast tokenizer.

The rules come from Python's `unicodedata` (Unicode 14 in Python 3.11, 15.1 in 3.13). The exceptions below cover other
Unicode versions in `tokenizers`: 8 for general categories, 17 for lower case. With them, all supported Pythons have the
same rules. A slow test compares all 1,112,064 code points with the package.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

# Kinds of code points.
WORD, SPACE, ISOLATED, DROPPED = 0, 1, 2, 3

Ranges = tuple[tuple[int, int], ...]

# Ideographs as separate words. 0x2B920, not BERT's 0x2B820: a mistake in `tokenizers` that all models learned.
IDEOGRAPHS: Ranges = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip

# Newer than Unicode 8, so not nonspacing marks there. (Other code points in these ranges are not marks now either.)
_MARKS_KEPT: Ranges = (
    (0x7FD, 0x7FD), (0x898, 0x8E1), (0x9FE, 0x9FE), (0xAFA, 0xAFF), (0xB55, 0xB55), (0xC04, 0xC3C), (0xD00, 0xD00),
    (0xD3B, 0xD3C), (0xD81, 0xD81), (0xEBA, 0xEBA), (0xECE, 0xECE), (0x180F, 0x1886), (0x1ABF, 0x1ACE),
    (0x1DF6, 0x1DFB), (0xA82C, 0xA82C), (0xA8C5, 0xA8C5), (0xA8FF, 0xA8FF), (0xA9BD, 0xA9BD), (0x10D24, 0x10F85),
    (0x11070, 0x11074), (0x110C2, 0x110C2), (0x111C9, 0x111C9), (0x111CF, 0x111CF), (0x1123E, 0x1123E),
    (0x11241, 0x11241), (0x1133B, 0x1133B), (0x11438, 0x1145E), (0x1182F, 0x11EF4), (0x11F00, 0x11F42),
    (0x13440, 0x13455), (0x16F4F, 0x16F4F), (0x16FE4, 0x16FE4), (0x1CF00, 0x1CF46), (0x1E000, 0x1E2EF),
    (0x1E4EC, 0x1E4EF), (0x1E944, 0x1E94A),
)  # fmt: skip

# U+1734 was a nonspacing mark in Unicode 8.
_MARKS_DROPPED: Ranges = ((0x1734, 0x1734),)

# Kept marks with a combining class in the Unicode 9 decomposition in `tokenizers`; others have class 0.
_MARKS_ORDERED: Ranges = (
    (0x8D4, 0x8E1), (0x1B44, 0x1B44), (0x1BAA, 0x1BAA), (0x1BF2, 0x1BF3), (0x1DFB, 0x1DFB), (0x302E, 0x302F),
    (0xA953, 0xA953), (0xA9C0, 0xA9C0), (0x111C0, 0x111C0), (0x11235, 0x11235), (0x1134D, 0x1134D),
    (0x11442, 0x11442), (0x11446, 0x11446), (0x116B6, 0x116B6), (0x11C3F, 0x11C3F), (0x1D165, 0x1D172),
    (0x1E000, 0x1E02A), (0x1E944, 0x1E94A),
)  # fmt: skip

# Newer than Unicode 8, so not format characters there.
_FORMAT_KEPT: Ranges = ((0x890, 0x891), (0x8E2, 0x8E2), (0x110CD, 0x110CD), (0x13430, 0x1343F))

# Newer than Unicode 8, so not punctuation there.
_PUNCTUATION_IN_WORDS: Ranges = (
    (0x61D, 0x61D), (0x9FD, 0x9FD), (0xA76, 0xA76), (0xC77, 0xC77), (0xC84, 0xC84), (0x1B7D, 0x1B7E), (0x2E43, 0x2E4F),
    (0x2E52, 0x2E5D), (0x10EAD, 0x10EAD), (0x10F55, 0x10F59), (0x10F86, 0x10F89), (0x1144B, 0x1144F),
    (0x1145A, 0x1145B), (0x1145D, 0x1145D), (0x11660, 0x1166C), (0x116B9, 0x116B9), (0x1183B, 0x1183B),
    (0x11944, 0x11946), (0x119E2, 0x119E2), (0x11A3F, 0x11A46), (0x11A9A, 0x11A9C), (0x11A9E, 0x11AA2),
    (0x11B00, 0x11B09), (0x11C41, 0x11C45), (0x11C70, 0x11C71), (0x11EF7, 0x11EF8), (0x11F43, 0x11F4F),
    (0x11FFF, 0x11FFF), (0x12FF1, 0x12FF2), (0x16E97, 0x16E9A), (0x16FE2, 0x16FE2), (0x1E95E, 0x1E95F),
)  # fmt: skip

# Punctuation in Unicode 8; now a symbol and a mark.
_PUNCTUATION_AS_WORDS: Ranges = ((0x166D, 0x166D), (0x111C9, 0x111C9))

# Capital letters newer than Unicode 14: (first, last, distance to the small letter).
_LOWER: tuple[tuple[int, int, int], ...] = (
    (0x1C89, 0x1C89, 1), (0xA7CB, 0xA7CB, 0x264 - 0xA7CB), (0xA7CC, 0xA7CC, 1), (0xA7CE, 0xA7CE, 1),
    (0xA7D2, 0xA7D2, 1), (0xA7D4, 0xA7D4, 1), (0xA7DA, 0xA7DA, 1), (0xA7DC, 0xA7DC, 0x19B - 0xA7DC),
    (0x10D50, 0x10D65, 0x20), (0x16EA0, 0x16EB8, 0x1B),
)  # fmt: skip

# The decomposition in `tokenizers` is older than Unicode 13.
_NOT_DECOMPOSED: Ranges = ((0x11938, 0x11938),)


def _members(ranges: Ranges) -> frozenset[int]:
    return frozenset(code for first, last in ranges for code in range(first, last + 1))


class NormalizedCode(NamedTuple):
    """One result of normalizing a code point.

    Attributes:
      code: the resulting code point.
      kind: `WORD`, `SPACE`, `ISOLATED` (punctuation and ideographs) or `DROPPED` (a mark to drop once marks are
        sorted).
      combining: canonical combining class; 0 if accents, and the marks' order, stay.
    """

    code: int
    kind: int
    combining: int


def normalized_codes(
    code: int, lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool
) -> list[NormalizedCode]:
    """Normalizes a code point; for the options see `TokenizerConfig`.

    Returns:
      Its results, including marks to drop later; none for a code point that is dropped first.
    """
    stands_alone = tokenize_chinese_chars and is_ideograph(code)
    return [
        NormalizedCode(
            code=result,
            kind=ISOLATED if stands_alone else _kind(result, strip_accents),
            combining=combining_class(result) if strip_accents else 0,
        )
        for result in _normalized(code, lowercase, strip_accents)
    ]


def is_ideograph(code: int) -> bool:
    """Whether a code point is an ideograph."""
    # The first test is for speed: the tables of training have all code points.
    is_near = 0x3400 <= code <= 0xFAFF or code >= 0x20000
    return is_near and any(first <= code <= last for first, last in IDEOGRAPHS)


def _normalized(code: int, lowercase: bool, strip_accents: bool) -> list[int]:
    """Normalizes a code point to code points, with marks to drop later."""
    character = chr(code)
    category = unicodedata.category(character)
    if character in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return [0x20]
    if code in (0, 0xFFFD) or category in ("Cc", "Cf", "Co", "Cs"):
        if code not in _FORMAT_KEPT_MEMBERS:
            return []
    is_decomposed = strip_accents and code not in _NOT_DECOMPOSED_MEMBERS
    results = unicodedata.normalize("NFD", character) if is_decomposed else character
    return [lower for result in results for lower in (_lower(ord(result)) if lowercase else [ord(result)])]


def _lower(code: int) -> list[int]:
    for first, last, distance in _LOWER:
        if first <= code <= last:
            return [code + distance]
    return [ord(character) for character in chr(code).lower()]


def _is_dropped_mark(code: int) -> bool:
    if code in _MARKS_DROPPED_MEMBERS:
        return True
    return unicodedata.category(chr(code)) == "Mn" and code not in _MARKS_KEPT_MEMBERS


def combining_class(code: int) -> int:
    """Returns a code point's canonical combining class, as in Unicode 9."""
    return unicodedata.combining(chr(code)) if _is_dropped_mark(code) or code in _MARKS_ORDERED_MEMBERS else 0


def _kind(code: int, strip_accents: bool) -> int:
    if strip_accents and _is_dropped_mark(code):
        return DROPPED
    if code == 0x20:
        return SPACE
    if code < 0x80:
        # In BERT, all ASCII symbols are punctuation, also "$" and "^".
        return ISOLATED if 0x20 < code < 0x7F and not chr(code).isalnum() else WORD
    if code in _PUNCTUATION_AS_WORDS_MEMBERS:
        return ISOLATED
    if code in _PUNCTUATION_IN_WORDS_MEMBERS:
        return WORD
    return ISOLATED if unicodedata.category(chr(code)).startswith("P") else WORD


_MARKS_KEPT_MEMBERS = _members(_MARKS_KEPT)
_MARKS_DROPPED_MEMBERS = _members(_MARKS_DROPPED)
_MARKS_ORDERED_MEMBERS = _members(_MARKS_ORDERED)
_FORMAT_KEPT_MEMBERS = _members(_FORMAT_KEPT)
_NOT_DECOMPOSED_MEMBERS = _members(_NOT_DECOMPOSED)
_PUNCTUATION_IN_WORDS_MEMBERS = _members(_PUNCTUATION_IN_WORDS)
_PUNCTUATION_AS_WORDS_MEMBERS = _members(_PUNCTUATION_AS_WORDS)
