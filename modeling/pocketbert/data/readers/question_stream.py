"""Streams paragraphs with questions from a JSON file of any size.

A file has one of four layouts, detected from the first "question":

- `{"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}`: SQuAD;
- one object per line with "question" and "context", or a list of such objects: Hugging Face's `datasets`;
- `{"data": […]}` with such objects: the question-answering example in transformers.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ijson
import numpy as np

from pocketbert.errors import UserError
from pocketbert_runtime.json_reading import MOST_DEPTH, MOST_DIGITS

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LONG_NUMBER = re.compile(b"[0-9]{%d,}" % (MOST_DIGITS + 1))
# Sample every so many bytes; in a number that is too long, two samples in a row are digits.
_STRIDE = MOST_DIGITS // 2
# With this bit set, [ equals { and ] equals }.
_BIT, _OPENING, _CLOSING = 0x20, ord("{"), ord("}")

_SQUAD = "data.item.paragraphs.item"
_QUESTION = f"{_SQUAD}.qas.item"
# Prefixes for objects with a question and its paragraph.
_ROWS = ("", "item", "data.item")


@dataclass(frozen=True)
class Layout:
    """A file's layout.

    Attributes:
      prefix: paragraph prefix for ijson.
      articles: number of entries in "data".
      without_paragraphs: number of entries with no "paragraphs" or an empty list.
      wrong_articles: entries, numbered from 1, that are not objects, or have "paragraphs" that are not a list.
    """

    prefix: str
    articles: int
    without_paragraphs: int
    wrong_articles: tuple[int, ...]

    @property
    def in_rows(self) -> bool:
        """Whether each question comes with its own paragraph."""
        return self.prefix != _SQUAD


class _Refused(ValueError):
    """JSON that must not reach a parser."""


class BoundedJson:
    """A JSON stream that rejects deep nesting and long numbers before they reach a parser.

    ijson needs minutes for thousands of levels and crashes on thousands of digits.

    Args:
      stream: the bytes.
      checked: whether the content was checked before; then it is only hashed.
    Attributes:
      digest: SHA-256 object for the content so far.
    """

    def __init__(self, stream: BinaryIO, *, checked: bool = False) -> None:
        self.digest = hashlib.sha256()
        self._stream, self._checked = stream, checked
        self._at_start, self._in_string = True, False
        self._depth = 0
        # The previous bytes' end: whether backslashes are odd, and perhaps the beginning of a number.
        self._escaping, self._tail = 0, b""

    def read(self, size: int = -1) -> bytes:
        """Reads up to `size` bytes, without a byte-order mark. Raises `ValueError` beyond the bounds."""
        content = self._stream.read(size)
        self.digest.update(content)
        if self._at_start and content:
            self._at_start = False
            content = content.removeprefix(_BYTE_ORDER_MARK) or self.read(size)
        if not self._checked:
            self._check(content)
        return content

    def _check(self, content: bytes) -> None:
        quotes = self._quotes(content)
        text = self._tail + content
        some = np.frombuffer(text, np.uint8)[::_STRIDE]
        digits = (some >= ord("0")) & (some <= ord("9"))
        pairs = _STRIDE * np.flatnonzero(digits[1:] & digits[:-1])
        if any(text[start : start + _STRIDE].isdigit() for start in pairs):
            for number in _LONG_NUMBER.finditer(text):
                if not self._are_in_string(quotes, np.array([number.end() - 1 - len(self._tail)])).any():
                    raise _Refused(
                        f"a number must have at most {MOST_DIGITS} digits in a row; received {len(number[0])}"
                    )
        self._tail = text[-MOST_DIGITS:]

        brackets = np.frombuffer(content, np.uint8) | _BIT
        places = np.flatnonzero((brackets == _OPENING) | (brackets == _CLOSING))
        places = places[~self._are_in_string(quotes, places)]
        if len(places):
            depths = self._depth + np.cumsum(np.where(brackets[places] == _OPENING, 1, -1))
            if depths.max() > MOST_DEPTH:
                raise _Refused(f"objects and lists must nest at most {MOST_DEPTH} deep; received {depths.max()}")
            self._depth = int(depths[-1])
        self._in_string ^= len(quotes) % 2 == 1

    def _quotes(self, content: bytes) -> np.ndarray:
        """Returns the positions where quotes begin or end a string."""
        values = np.frombuffer(content, np.uint8)
        quotes = np.flatnonzero(values == ord('"'))
        is_quote = np.ones(len(quotes), bool)
        for row in np.flatnonzero((quotes == 0) | (values[quotes - 1] == ord("\\"))):
            is_quote[row] = self._backslashes(content, int(quotes[row])) % 2 == 0
        self._escaping = self._backslashes(content, len(content)) % 2
        return quotes[is_quote]

    def _backslashes(self, content: bytes, end: int) -> int:
        """Counts the backslashes before a position."""
        start = end
        while start and content[start - 1] == ord("\\"):
            start -= 1
        return end - start + (0 if start else self._escaping)

    def _are_in_string(self, quotes: np.ndarray, places: np.ndarray) -> np.ndarray:
        return (np.searchsorted(quotes, places) + self._in_string) % 2 == 1


@contextlib.contextmanager
def opened(path: Path, *, checked: bool = False) -> Iterator[BoundedJson]:
    """Opens a file as `BoundedJson`. Raises `UserError` if the block reads content that is not JSON in UTF-8."""
    with open(path, "rb") as stream:
        try:
            yield BoundedJson(stream, checked=checked)
        except (ijson.JSONError, UnicodeDecodeError, _Refused) as error:
            reason = " ".join(" ".join(str(error).splitlines()[:2]).split())
            raise UserError(
                f"{path}: the file must be JSON in UTF-8; received: {reason}; correct this place, or write the file "
                "again"
            ) from error


def find_layout(stream: BoundedJson) -> Layout:
    """Finds a file's layout; SQuAD's without any question."""
    layout: str | None = None
    articles, without, wrong, values = 0, 0, [], 0
    paragraphs = "none"
    for prefix, event, value in ijson.parse(stream, use_float=True, multiple_values=True):
        if layout is None and event == "map_key" and value == "question" and prefix in (_QUESTION, *_ROWS):
            layout = prefix
        if len(prefix) > len(_SQUAD):
            continue
        if prefix == _SQUAD:
            paragraphs = paragraphs if paragraphs == "wrong" else "some"
        elif prefix == "data.item.paragraphs" and event not in ("null", "end_array"):
            paragraphs = "none" if event == "start_array" else "wrong"
        elif prefix == "data.item" and event not in ("start_map", "map_key", "start_array"):
            # End of the entry, or the whole entry if it is not an object.
            articles += 1
            without += event == "end_map" and paragraphs == "none"
            if event != "end_map" or paragraphs == "wrong":
                wrong.append(articles)
            paragraphs = "none"
        elif prefix == "" and event not in ("map_key", "end_map", "end_array"):
            values += 1
            if values > 1 and layout != "":
                raise _Refused("several values in a row that are not questions with their context")
    return Layout(_SQUAD if layout in (None, _QUESTION) else layout, articles, without, tuple(wrong))


def paragraphs(stream: BoundedJson, layout: Layout) -> Iterator[Any]:
    """Yields a file's paragraphs; a row is a paragraph with one question."""
    items = ijson.items(stream, layout.prefix, use_float=True, multiple_values=True)
    for item in items:
        yield {"context": item.get("context"), "qas": [item]} if layout.in_rows and isinstance(item, dict) else item


def remedy_for_offset(text: str, start: int, context: str) -> str:
    """Suggests a correction for an answer that is not at its offset."""
    for unit, coding in (("UTF-16 units", "utf-16-le"), ("bytes", "utf-8")):
        width = len("a".encode(coding))
        coded, coded_text = context.encode(coding, "replace"), text.encode(coding, "replace")
        if start >= 0 and coded[width * start :].startswith(coded_text):
            return f"the offset counts {unit}: count code points, as Python does"
    places = [match_start for match_start in range(len(context)) if context.startswith(text, match_start)]
    if not places:
        return "the context does not contain it: copy the answer from its context, character by character"
    return (
        f"the nearest match is at {min(places, key=lambda match_start: abs(match_start - start))}: correct answer_start"
    )
