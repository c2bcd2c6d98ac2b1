"""Writes the tables of the Java tokenizers, so that Python and Java follow the same rules.

The Java tokenizers avoid Java's Unicode data, because its version depends on the Java or Android version.
`bert_unicode.txt` has BERT's normalization; `byte_level_unicode.txt` has the letters, numbers and white space of
`tokenizers`; `added_token_unicode.txt` has the characters of words and the white space around added tokens;
`albert_unicode.txt` has ALBERT's cleaning; `composition_unicode.txt` has the rest of Unicode's form C, for ModernBERT.

Usage: PYTHONPATH=runtime:modeling python tools/java_unicode_table.py
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pocketbert.tokenizers.bert_unicode import CODE_POINTS, Normalization, normalization
from pocketbert_runtime.tokenizers.albert_text import cleaned, is_split_again
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, ISOLATED
from pocketbert_runtime.tokenizers.composition import composed

_FOLDER = Path(__file__).parents[1] / "android_app/core/src/main/resources/org/pocketbert/tokenizer"
TABLE = _FOLDER / "bert_unicode.txt"
BYTE_LEVEL_TABLE = _FOLDER / "byte_level_unicode.txt"
ADDED_TOKEN_TABLE = _FOLDER / "added_token_unicode.txt"
ALBERT_TABLE = _FOLDER / "albert_unicode.txt"
COMPOSITION_TABLE = _FOLDER / "composition_unicode.txt"
# The Java code decomposes these 11,172 syllables by arithmetic.
HANGUL = range(0xAC00, 0xD7A4)
_HEADER = """\
# BERT's normalization of code points (hexadecimal). Written by tools/java_unicode_table.py; do not edit.
# drop: removed. space: becomes U+0020. isolated: a separate word. ideograph: the same with tokenize_chinese_chars.
# Only with strip_accents: decompose FROM TO…; order CLASS: canonical combining class; mark: removed after sorting.
# Only with lowercase, after that: lower FROM TO…
# Other code points are letters and stay as they are; Hangul syllables decompose by arithmetic.
"""
_BYTE_LEVEL_HEADER = """\
# Classes of code points (hexadecimal) in byte-level BPE. Written by tools/java_unicode_table.py; do not edit.
# Unlisted code points have none of these classes.
"""
_ADDED_TOKEN_HEADER = """\
# Code points (hexadecimal) beside added tokens: word characters, which single_word forbids, and white space.
# Written by tools/java_unicode_table.py; do not edit.
"""
_ALBERT_HEADER = """\
# ALBERT's cleaning of code points (hexadecimal). Written by tools/java_unicode_table.py; do not edit.
# drop: removed. map FROM TO…: small letters without accents. space: Python's white space. digit: Python's digits.
# Other code points stay as they are; Hangul syllables decompose by arithmetic.
"""
_COMPOSITION_HEADER = """\
# Unicode's form C (hexadecimal), beside the decompositions and classes in bert_unicode.txt.
# Written by tools/java_unicode_table.py; do not edit.
# compose FIRST SECOND TO; Hangul syllables are composed by arithmetic. map FROM TO: decompositions of spaces.
"""
# The classes in the pattern of GPT-2.
_BYTE_LEVEL_CLASSES = {"letter": r"\p{L}", "number": r"\p{N}", "space": r"\s"}


def byte_level_table() -> str:
    """Returns the byte-level table, from the regular expressions in the installed `tokenizers`."""
    from tokenizers import Regex
    from tokenizers.normalizers import Replace

    # A private character replaces surrogates, which texts cannot have.
    text = "".join("\ue000" if 0xD800 <= code < 0xE000 else chr(code) for code in range(CODE_POINTS))
    lines = [_BYTE_LEVEL_HEADER]
    for name, pattern in _BYTE_LEVEL_CLASSES.items():
        replaced = Replace(Regex(pattern), "\ue001").normalize_str(text)
        assert len(replaced) == CODE_POINTS
        codes = np.frombuffer(replaced.encode("utf-32-le"), "<u4")
        lines += _lines(name, (codes == 0xE001) & (np.arange(CODE_POINTS) != 0xE001))
    return "".join(lines)


def added_token_table() -> str:
    """Returns the table for added tokens, from the behavior of the installed `tokenizers`."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import WordLevel

    lines = [_ADDED_TOKEN_HEADER]
    for name in ("word", "space"):
        core = Tokenizer(WordLevel({"?": 0}, unk_token="?"))
        core.add_tokens([AddedToken("\ue001", normalized=False, single_word=name == "word", rstrip=name == "space")])
        # The token, a character, and one that is of neither class.
        characters = (
            "\ue000" if 0xD800 <= code < 0xE000 or code == 0xE001 else chr(code) for code in range(CODE_POINTS)
        )
        encoded = core.encode("".join(f"\ue001{character}\ue000" for character in characters))
        ids, (starts, ends) = np.array(encoded.ids), np.array(encoded.offsets).T
        mask = np.zeros(CODE_POINTS, bool)
        if name == "word":
            mask[starts[ids == 1] // 3] = True
            lines += _lines(name, ~mask)
        else:
            mask[starts[(ids == 1) & (ends - starts > 1)] // 3] = True
            lines += _lines(name, mask)
    return "".join(lines)


def albert_table() -> str:
    """Returns the table for ALBERT's cleaning, from the runtime's."""
    characters = ["" if 0xD800 <= code < 0xE000 else chr(code) for code in range(CODE_POINTS)]
    results = [cleaned(character, joins_spaces=False).text for character in characters]
    changed = [code for code, character in enumerate(characters) if results[code] != character]
    masks = {
        "drop": np.array([not result for result in results]) & np.array([bool(character) for character in characters]),
        "space": np.array([character.isspace() for character in characters]),
        "digit": np.array([is_split_again(f"{character},") for character in characters]),
    }
    lines = [_ALBERT_HEADER]
    for name, mask in masks.items():
        lines += _lines(name, mask)
    for code in changed:
        if results[code] and code not in HANGUL:
            lines.append(f"map {code:x} {' '.join(f'{ord(letter):x}' for letter in results[code])}\n")
    return "".join(lines)


def composition_table() -> str:
    """Returns the table for form C, from the runtime's."""
    lines = [_COMPOSITION_HEADER]
    for code in range(CODE_POINTS):
        parts = unicodedata.decomposition(chr(code)).split()
        pair = "".join(chr(int(part, 16)) for part in parts if part[0] != "<")
        if len(parts) == len(pair) == 2 and composed(pair).text == chr(code):
            lines.append(f"compose {int(parts[0], 16):x} {int(parts[1], 16):x} {code:x}\n")
        if len(parts) == 1 and unicodedata.category(chr(code)) == "Zs":
            lines.append(f"map {code:x} {int(parts[0], 16):x}\n")
    return "".join(lines)


def table() -> str:
    """Returns BERT's table. A test reads it and compares every code point with the normalization."""
    plain, decomposed = normalization(False, False, False), normalization(False, True, False)
    lower, ideographs = normalization(True, False, False), normalization(False, False, True)
    codes = np.arange(CODE_POINTS)
    dropped = plain.count == 0
    # The last dropped code points start beyond the end of the pool.
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
    return " ".join(f"{code:x}" for code in tables.code[entries])


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
    ADDED_TOKEN_TABLE.write_text(added_token_table(), encoding="utf-8")
    ALBERT_TABLE.write_text(albert_table(), encoding="utf-8")
    COMPOSITION_TABLE.write_text(composition_table(), encoding="utf-8")
