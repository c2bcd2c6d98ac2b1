"""The Java tokenizer's table equals the Python tokenizer's normalization for every code point."""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
import pytest

import java_unicode_table
from pocketbert.tokenizers.bert_unicode import CODE_POINTS, normalization
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, ISOLATED, SPACE, WORD


def entries(line: str) -> list[int]:
    entries: list[int] = []
    for entry in line.split():
        first, _, last = entry.partition("-")
        entries += range(int(first, 16), int(last or first, 16) + 1)
    return entries


@pytest.fixture(scope="module")
def lines() -> list[list[str]]:
    """Each line's first word and the rest."""
    text = java_unicode_table.TABLE.read_text(encoding="utf-8")
    return [line.split(" ", 1) for line in text.splitlines() if not line.startswith("#")]


def members(lines: list[list[str]], name: str) -> np.ndarray:
    codes = [code for first, rest in lines if first == name for code in entries(rest)]
    assert len(set(codes)) == len(codes) > 0
    return np.isin(np.arange(CODE_POINTS), codes)


def test_it_is_up_to_date() -> None:
    assert java_unicode_table.table() == java_unicode_table.TABLE.read_text(encoding="utf-8")


def test_byte_level_table_is_current() -> None:
    # test_java_byte_bpe.py compares Java's results for every code point with the library.
    text = java_unicode_table.BYTE_LEVEL_TABLE.read_text(encoding="utf-8")
    assert java_unicode_table.byte_level_table() == text


@pytest.mark.nightly
def test_albert_table_is_current() -> None:
    # test_java_layouts.py compares Java's results for every code point with Python's.
    text = java_unicode_table.ALBERT_TABLE.read_text(encoding="utf-8")
    assert java_unicode_table.albert_table() == text


@pytest.mark.nightly
def test_composition_table_is_current() -> None:
    # test_java_modernbert.py compares Java's results for every code point with Python's.
    text = java_unicode_table.COMPOSITION_TABLE.read_text(encoding="utf-8")
    assert java_unicode_table.composition_table() == text


@pytest.mark.nightly
def test_added_token_table_is_current() -> None:
    text = java_unicode_table.ADDED_TOKEN_TABLE.read_text(encoding="utf-8")
    assert java_unicode_table.added_token_table() == text
    # Beside letters and digits: connectors, marks and joiners are word characters.
    codes = {code for line in text.splitlines() if line.startswith("word") for code in entries(line[5:])}
    assert codes >= {ord(character) for character in "aZ0_é中\u0301\u200d\u203f"} and not codes & {
        ord(character) for character in " -.[½"
    }


@pytest.mark.one_of_each("True-True-True", "True-False-True", "False-False-False")
@pytest.mark.parametrize(
    "options", list(itertools.product([True, False], repeat=3)), ids=lambda options: "-".join(map(str, options))
)
def test_table_equals_normalization_everywhere(lines: list[list[str]], options: tuple[bool, bool, bool]) -> None:
    lowercase, strip_accents, tokenize_chinese_chars = options
    tables = normalization(*options)
    dropped, space, isolated, ideograph, mark = (
        members(lines, name) for name in ("drop", "space", "isolated", "ideograph", "mark")
    )
    combining = np.zeros(CODE_POINTS, np.uint8)
    maps: dict[str, dict[int, list[int]]] = {"decompose": {}, "lower": {}}
    for first, rest in lines:
        if first == "order" and strip_accents:
            value, codes = rest.split(" ", 1)
            combining[entries(codes)] = int(value, 16)
        elif first in maps:
            code, *results = (int(word, 16) for word in rest.split())
            maps[first][code] = results
    for code in java_unicode_table.HANGUL:
        maps["decompose"][code] = [ord(character) for character in unicodedata.normalize("NFD", chr(code))]
    assert all(maps.values())
    lower = maps["lower"] if lowercase else {}
    decompose = maps["decompose"] if strip_accents else {}
    changed = {
        code: [code_point for part in decompose.get(code, [code]) for code_point in lower.get(part, [part])]
        for code in {*decompose, *lower}
    }

    kinds = np.full(CODE_POINTS, WORD, np.int8)
    kinds[isolated | (ideograph & tokenize_chinese_chars)] = ISOLATED
    kinds[mark & strip_accents] = DROPPED
    kinds[0x20] = SPACE
    stays = ~dropped & ~space
    stays[list(changed)] = False
    np.testing.assert_array_equal(tables.count == 0, dropped)
    # Unchanged code points in one text, without surrogates.
    np.testing.assert_array_equal(tables.start[stays], np.flatnonzero(stays))
    np.testing.assert_array_equal(tables.kind[:CODE_POINTS][stays], kinds[stays])
    np.testing.assert_array_equal(tables.combining[:CODE_POINTS][stays], combining[stays])
    for code in np.flatnonzero(~stays & ~dropped).tolist():
        expected = changed.get(code, [0x20])
        pool = slice(tables.start[code], tables.start[code] + tables.count[code])
        assert tables.code[pool].tolist() == expected, hex(code)
        assert tables.kind[pool].tolist() == kinds[expected].tolist(), hex(code)
        assert tables.combining[pool].tolist() == combining[expected].tolist(), hex(code)
