"""Faults in the content of a file, each drawn from a generator of random numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

FOREIGN: list[Any] = [
    None, True, -1, 0, 1.5, 99, 10**30, 10**300, float("nan"), float("inf"), "", "x", "\0", "../x", "\u2028", "\x1b[2J",
    [], {}, [[]], {"": None}, {"type": []}, "9" * 5000, "n" * 300, ["a"] * 50, [None, 1, "a"],
    json.loads("[" * 70 + "]" * 70),
]  # fmt: skip
INSERTED = [
    b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"'", b"\t", b"\n", b"\r", b",", b"\\", b"\\ud800", b"NaN",
    b"1e999999999", b"-", b"[" * 3000, b'{"a":' * 3000, b"9" * 5000, b"\xc2\x85", b"</doc>", b"<doc>", b"\x1f\x8b",
]  # fmt: skip
_MOST_MEMBERS = 40


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """One of many faults, in a place drawn at random."""
    offset = int(random.integers(len(content) + 1))
    other = int(random.integers(len(content) + 1))
    first, last = sorted((offset, other))
    numbers = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", content[:4000]))
    match int(random.integers(10)):
        case 0:
            changed = bytearray(content)
            for flipped in random.integers(max(len(content), 1), size=int(random.integers(1, 9))):
                changed[flipped : flipped + 1] = bytes([int(random.integers(256))])
            return bytes(changed)
        case 1:
            return content[:offset]
        case 2:
            return content[:first] + content[last:]
        case 3:
            return content[:last] + content[first:last] * int(random.integers(1, 4)) + content[last:]
        case 4 | 5:
            return content[:offset] + INSERTED[random.integers(len(INSERTED))] + content[offset:]
        case 6 if numbers:
            number = numbers[random.integers(len(numbers))]
            new = [b"-1", b"9" * 5000, b"1e999999999", b"NaN", b"0.5", b"4398046511104", b"null", b'"1"', b"true"]
            return content[: number.start()] + new[random.integers(len(new))] + content[number.end() :]
        case 7:
            text = content.decode("utf-8", "replace")
            return text.encode(["utf-16", "utf-32", "utf-8-sig", "cp1252"][random.integers(4)], "replace")
        case 8 if settings := list(re.finditer(rb"(?m)(?<=[=:] )[^\r\n]+", content[:4000])):
            setting = settings[random.integers(len(settings))]
            new = json.dumps(FOREIGN[random.integers(len(FOREIGN))]).encode()
            return content[: setting.start()] + new + content[setting.end() :]
        case _:
            lines = content.split(b"\n")
            random.shuffle(lines)
            return b"\n".join(lines)


def swapped(content: bytes, random: np.random.Generator) -> bytes | None:
    """JSON with one value replaced, removed or added; None where it is no JSON."""
    lines = [content] if content[:1] in b"[{" and b"}\n{" not in content else content.split(b"\n")
    line = int(random.integers(len(lines)))
    try:
        value = json.loads(lines[line])
    except ValueError:
        return None
    if not isinstance(value, dict | list) or not value:
        return None
    inside, key = _place(value, random)
    match int(random.integers(4)):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, dict):
            inside[f"{key}x"] = inside[key]
        case _:
            inside[key] = FOREIGN[random.integers(len(FOREIGN))]
    lines[line] = json.dumps(value).encode()
    return b"\n".join(lines)


def every_swap(content: bytes) -> Iterator[bytes]:
    """JSON, or the first line of JSON, with each value in turn removed and replaced by each of `FOREIGN`.

    Of long arrays and objects, only the first and last members change.
    """
    first, rest = content, b""
    if content[:1] not in b"[{" or b"}\n{" in content:
        first, _, rest = content.partition(b"\n")
    try:
        value = json.loads(first)
    except ValueError:
        return
    for inside, key in _places(value, _MOST_MEMBERS) if isinstance(value, dict | list) else ():
        stored = inside[key]
        for foreign in FOREIGN:
            inside[key] = foreign
            yield json.dumps(value).encode() + (b"\n" + rest if rest else b"")
        if isinstance(inside, dict):
            members = dict(inside)
            del inside[key]
            yield json.dumps(value).encode() + (b"\n" + rest if rest else b"")
            inside.clear()
            inside.update(members)
        inside[key] = stored


def _place(value: Any, random: np.random.Generator) -> tuple[Any, Any]:
    """A place in nested arrays and objects.

    Half of the places are drawn from all, so that deep parts come as often as others. For the other half, each level is
    a draw, so that short parts come as often as long ones.
    """
    if random.random() < 0.5:
        places = list(_places(value))
        return places[random.integers(len(places))]
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[random.integers(len(keys))]
        inside = value[key]
        if not isinstance(inside, dict | list) or not inside or random.random() < 0.3:
            return value, key
        value = inside


def _places(value: Any, most: int | None = None) -> Iterator[tuple[Any, Any]]:
    members = list(value.items() if isinstance(value, dict) else enumerate(value))
    if most is not None and len(members) > most:
        members = [*members[: most // 2], *members[-most // 2 :]]
    for key, inside in members:
        yield value, key
        if isinstance(inside, dict | list):
            yield from _places(inside, most)
