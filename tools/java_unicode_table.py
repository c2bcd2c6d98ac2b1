"""Writes the tables that the Java tokenizers read, so that Python and Java follow the same rules.

Java's own Unicode tables have the age of the Java or Android that runs, so the Java tokenizers use none of them.
`bert_unicode.txt` is BERT's clean-up. `byte_level_unicode.txt` has `tokenizers`' letters, numbers and white space.

Usage: PYTHONPATH=modeling python tools/java_unicode_table.py
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pocketbert.tokenizers.bert_unicode import CODE_POINTS, DROPPED, ISOLATED, Normalization, normalization

_FOLDER = Path(__file__).parents[1] / "android_app/core/src/main/resources/org/pocketbert/tokenizer"
TABLE = _FOLDER / "bert_unicode.txt"
BYTE_LEVEL_TABLE = _FOLDER / "byte_level_unicode.txt"
# Syllables decompose by arithmetic, which the Java side knows; 11,172 lines less.
HANGUL = range(0xAC00, 0xD7A4)
_HEADER = """\
# What BERT's clean-up does to code points, hexadecimal. Made by tools/java_unicode_table.py; do not edit.
# drop: vanishes. space: becomes U+0020. isolated: a word of its own. ideograph: too, with tokenize_chinese_chars.
# Only with strip_accents: decompose FROM TO…; order CLASS: canonical combining class; mark: goes once these are sorted.
# Only with lowercase, behind that: lower FROM TO…
# A code point that is in none of them is a letter that becomes itself; Hangul syllables decompose by arithmetic.
"""
_BYTE_LEVEL_HEADER = """\
# Code points as tokenizers' byte-level BPE sees them, hexadecimal. Made by tools/java_unicode_table.py; do not edit.
# A code point that is in none of them is something else.
"""
# The classes in the pattern of GPT-2.
_BYTE_LEVEL_CLASSES = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s"}


def byte_level_table() -> str:
    """The text of the byte-level table: what the regular expressions of the installed `tokenizers` match."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace

    # One private character stands for all surrogates, which no text has.
    text = "".join("\ue000" if 0xD800 <= code < 0xE000 else chr(code) for code in range(CODE_POINTS))
    lines = [_BYTE_LEVEL_HEADER]
    for name, pattern in _BYTE_LEVEL_CLASSES.items():
        replaced = Replace(Regex(pattern), "\ue001").normalize_str(text)
        assert len(replaced) == CODE_POINTS
        codes = np.frombuffer(replaced.encode("utf-32-le"), "<u4")
        lines += _lines(name, (codes == 0xE001) & (np.arange(CODE_POINTS) != 0xE001))
    return "".join(lines)


def table() -> str:
    """The table's text. A test reads it back and compares what it says of every code point with the clean-up."""
    plain, decomposed = normalization(False, False, False), normalization(False, True, False)
    lower, ideographs = normalization(True, False, False), normalization(False, False, True)
    codes = np.arange(CODE_POINTS)
    dropped = plain.count == 0
    # What vanishes at the end of the pool begins behind it.
    space = ~dropped & (plain.code[np.where(dropped, 0, plain.start)] == 0x20)
    regular = ~dropped & ~space
    changed = (decomposed.start != codes) & regular
    mark = regular & ~changed & (decomposed.kind[:CODE_POINTS] == DROPPED)
    isolated = regular & (plain.kind[:CODE_POINTS] == ISOLATED)
    ideograph = regular & ~isolated & (ideographs.kind[:CODE_POINTS] == ISOLATED)
    combining = np.where(regular & ~changed, decomposed.combining[:CODE_POINTS], 0)
    lines = [_HEADER]
    lines += _lines("drop", dropped) + _lines("space", space) + _lines("isolated", isolated)
    lines += _lines("ideograph", ideograph) + _lines("mark", mark)
    for value in sorted(set(combining.tolist()) - {0}):
        lines += _lines(f"order {value:x}", combining == value)
    for code in np.flatnonzero(changed).tolist():
        if code not in HANGUL:
            lines.append(f"decompose {code:x} {_results(decomposed, code)}\n")
    for code in np.flatnonzero((lower.start != codes) & regular).tolist():
        lines.append(f"lower {code:x} {_results(lower, code)}\n")
    return "".join(lines)


def _results(tables: Normalization, code: int) -> str:
    entries = slice(tables.start[code], tables.start[code] + tables.count[code])
    return " ".join(f"{each:x}" for each in tables.code[entries])


def _lines(name: str, members: np.ndarray) -> list[str]:
    ranges = " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in _ranges(members))
    return [f"{name} {line}\n" for line in textwrap.wrap(ranges, 100, break_on_hyphens=False)]


def _ranges(members: np.ndarray) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], members.astype(np.int8), [0]])))
    for first, behind in edges.reshape(-1, 2).tolist():
        yield first, behind - 1


if __name__ == "__main__":
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(), encoding="utf-8")
    BYTE_LEVEL_TABLE.write_text(byte_level_table(), encoding="utf-8")
