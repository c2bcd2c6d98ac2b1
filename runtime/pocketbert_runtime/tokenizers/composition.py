"""Unicode's form C, with offsets: a composed character spans its parts."""

from __future__ import annotations

import unicodedata

from pocketbert_runtime.tokenizers.added_token_search import Normalized, unchanged


def composed(text: str) -> Normalized:
    """Returns a text in form C (Unicode Standard Annex 15), with each character's offsets in the text."""
    if unicodedata.is_normalized("NFC", text):
        return unchanged(text)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    first = 0
    while first < len(text):
        last = first + 1
        while last < len(text) and _changes(text[first:last], text[last]):
            last += 1
        part = _nfc(text[first:last])
        parts.append(part)
        starts += [first] * len(part)
        ends += [last] * len(part)
        first = last
    return Normalized("".join(parts), starts, ends)


def _changes(before: str, character: str) -> bool:
    """Whether a character may combine or change places with those before it."""
    return unicodedata.combining(character) > 0 or _nfc(before + character) != _nfc(before) + _nfc(character)


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)
