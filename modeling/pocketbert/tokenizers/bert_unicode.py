"""BERT's normalization for all code points in one table, for the graph."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from pocketbert_runtime.tokenizers.bert_characters import (
    DROPPED,
    IDEOGRAPHS,
    ISOLATED,
    NormalizedCode,
    Ranges,
    normalized_codes,
)

CODE_POINTS = 0x110000

# Only these code points need a look at their properties. All others are ideographs or map to themselves.
IRREGULAR: Ranges = (
    (0, 0x33FF), (0x4DC0, 0x4DFF), (0xA000, 0xD7FF), (0xE000, 0x1FFFF), (0x2F800, 0x2FA1F), (0xE0000, 0xE0FFF),
)  # fmt: skip
PRIVATE_USE: Ranges = ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


@dataclass(frozen=True)
class Normalization:
    """The normalization as a lookup: code point `c` becomes `pool[start[c] : start[c] + count[c]]`.

    The pool's first 1,114,112 entries are the code points themselves; longer or different results follow.

    Attributes:
      start: `[code points]` int32, first entry in the pool.
      count: `[code points]` int8, number of entries; 0 for code points to drop first.
      code: `[entries]` int32, the normalized code points.
      kind: `[entries]` int8, `WORD`, `SPACE`, `ISOLATED` (punctuation, ideographs) or `DROPPED` (after sorting marks).
      combining: `[entries]` uint8, canonical combining class; all 0 if accents, and their order, stay.
    """

    start: np.ndarray
    count: np.ndarray
    code: np.ndarray
    kind: np.ndarray
    combining: np.ndarray


def normalization(
    lowercase: bool, strip_accents: bool | None = None, tokenize_chinese_chars: bool = True
) -> Normalization:
    """Builds the tables (0.3 s), once per process.

    Args:
      lowercase: lower-case letters, as uncased models do.
      strip_accents: decompose (NFD) and drop nonspacing marks; None for `lowercase`.
      tokenize_chinese_chars: make ideographs separate words.
    """
    return _tables(lowercase, lowercase if strip_accents is None else strip_accents, tokenize_chinese_chars)


def normalized(text: str, lowercase: bool) -> str:
    """Normalizes a text without spaces around punctuation and ideographs.

    Args:
      text: any text.
      lowercase: lower-case letters, decompose them and drop nonspacing marks, as uncased models do.
    """
    tables = normalization(lowercase)
    characters: list[tuple[int, int, int]] = []
    for code in map(ord, text):
        for index in range(tables.start[code], tables.start[code] + tables.count[code]):
            characters.append((int(tables.combining[index]), int(tables.code[index]), int(tables.kind[index])))
            # Marks in canonical order.
            position = len(characters) - 1
            while position and 0 < characters[position][0] < characters[position - 1][0]:
                characters[position - 1 : position + 1] = characters[position], characters[position - 1]
                position -= 1
    return "".join(chr(code) for _, code, kind in characters if kind != DROPPED)


@functools.cache
def _tables(lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool) -> Normalization:
    start = np.arange(CODE_POINTS, dtype=np.int32)
    count = np.ones(CODE_POINTS, np.int8)
    kind = np.zeros(CODE_POINTS, np.int8)
    combining = np.zeros(CODE_POINTS, np.uint8)
    if tokenize_chinese_chars:
        for first, last in IDEOGRAPHS:
            kind[first : last + 1] = ISOLATED
    for first, last in PRIVATE_USE:
        count[first : last + 1] = 0

    extra: list[NormalizedCode] = []
    for code in (code for first, last in IRREGULAR for code in range(first, last + 1)):
        results = normalized_codes(code, lowercase, strip_accents, tokenize_chinese_chars)
        if len(results) == 1 and results[0].code == code:
            kind[code], combining[code] = results[0].kind, results[0].combining
            continue
        start[code] = CODE_POINTS + len(extra)
        count[code] = len(results)
        extra += results
    extra_code, extra_kind, extra_combining = np.array(extra, np.int32).reshape(-1, 3).T
    return Normalization(
        start=start,
        count=count,
        code=np.concatenate([np.arange(CODE_POINTS, dtype=np.int32), extra_code]),
        kind=np.concatenate([kind, extra_kind.astype(np.int8)]),
        combining=np.concatenate([combining, extra_combining.astype(np.uint8)]),
    )
