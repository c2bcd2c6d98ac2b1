"""Unicode's form C, with offsets: a composed character spans its parts.

The library `tokenizers` composes by Unicode 9. Newer marks stay where they are and compose with nothing, so that all
supported Pythons, and Java, have the same rules.
"""

from __future__ import annotations

import unicodedata

from pocketbert_runtime.tokenizers.added_token_search import Normalized, unchanged
from pocketbert_runtime.tokenizers.bert_characters import combining_class

# The second part of U+11938, from Unicode 13.
_NEW_VOWEL = 0x11930


def composed(text: str) -> Normalized:
    """Returns a text in form C (Unicode Standard Annex 15), with each character's offsets in the text."""
    # What newer rules leave alone, the older ones leave alone, too.
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
    result = "".join(parts)
    return unchanged(text) if result == text else Normalized(result, starts, ends)


def _changes(before: str, character: str) -> bool:
    """Whether a character may combine or change places with those before it."""
    if _is_newer(character):
        return False
    if unicodedata.combining(unicodedata.normalize("NFD", character)[0]):
        return True
    return _nfc(before + character) != _nfc(before) + _nfc(character)


def _is_newer(character: str) -> bool:
    code = ord(character)
    return code == _NEW_VOWEL or (unicodedata.combining(character) > 0 and not combining_class(code))


def _nfc(text: str) -> str:
    first = text[0] if _is_newer(text[0]) else ""
    return first + unicodedata.normalize("NFC", text[len(first) :])
