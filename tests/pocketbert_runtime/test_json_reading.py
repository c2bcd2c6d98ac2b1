"""JSON that would crash, hang or poison Python's own parser ends in one line."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.json_reading import MOST_DEPTH, MOST_DIGITS, parse_json, read_bytes, read_json, read_members


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 200_000, "at most 64 levels"),
        ("[" * 200_000 + "]" * 200_000, "at most 64 levels"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "at most 64 levels"),
        ('["\\"' + "[" * 65 + '", ' + "[" * 65, "at most 64 levels"),
        ("9" * 5_000, "at most 100 digits; received one of 5,000"),
        ('{"a": -' + "9" * 101 + "}", "at most 100 digits"),
        ("0." + "1" * 101, "at most 100 digits"),
        ("1e999", "64-bit floating point; received 1e999"),
        ("[NaN]", "finite; received NaN"),
        ("-Infinity", "finite; received -Infinity"),
        ('"\\ud800"', r"half a surrogate pair, \\ud800"),
        ('{"\\udfff": 1}', r"half a surrogate pair, \\udfff"),
        (b'"\xff"', "UTF-8; received byte 0xff at offset 1"),
        # Python 3.13 names the comma, older versions the brace after it.
        ('{"a": 1,}', r"error in column [89]"),
        ("", "error in column 1"),
        ('"' + '\\"' * 100_000, "syntax error"),
        ("]" * 100, "syntax error"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_content_is_one_line(content: str | bytes, message: str) -> None:
    start = time.monotonic()
    with pytest.raises(UserError, match=message) as raised:
        parse_json(content, "here.json")
    assert str(raised.value).startswith("here.json: ") and len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 300
    assert time.monotonic() - start < 2


def test_good_content_is_what_python_reads() -> None:
    deep = "[" * MOST_DEPTH + "]" * MOST_DEPTH
    for text in (
        deep,
        "1" * MOST_DIGITS,
        '{"model_max_length": 1000000000000000019884624838656, "x": [1.5e-7, true, null]}',
        r'["\ud83d\ude00 [[[", "\"]", "\\", "é"]',
        json.dumps("[" * 1_000),
    ):
        assert parse_json(text, "x") == json.loads(text)
        assert parse_json(text.encode(), "x") == json.loads(text)
    assert parse_json(b"\xef\xbb\xbf[1]", "x") == [1]


def test_size_is_bounded_before_parsing(tmp_path) -> None:
    with pytest.raises(UserError, match="at most 10 bytes"):
        parse_json("[" + " " * 10, "x", most_bytes=10)
    (tmp_path / "a.json").write_text("[1, 2, 3, 4]")
    assert read_json(tmp_path / "a.json") == [1, 2, 3, 4]
    with pytest.raises(UserError, match="at most 11 bytes"):
        read_json(tmp_path / "a.json", most_bytes=11)
    with pytest.raises(UserError, match="cannot be read"):
        read_json(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_json(tmp_path / "absent.json")


@pytest.mark.parametrize("read", [read_json, read_bytes])
def test_devices_and_pipes_are_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(UserError, match="it must be a plain file; it is a"):
            read(path)
    for path in (tmp_path / ("n" * 300), tmp_path / "a\0b", tmp_path / "absent"):
        with pytest.raises(UserError, match="the file cannot be read"):
            read(path)


def test_members_are_read_by_type() -> None:
    kinds = {"name": str, "score": float | None, "parts": list[int] | None}
    assert read_members({"name": "a", "score": 1, "other": []}, kinds, "x") == {"name": "a", "score": 1, "parts": None}
    for value, message in (
        ([], r"^x: it must be an object; received \[\]"),
        ({"score": 1}, "^x: name must be a string; received None"),
        ({"name": "a", "score": "1"}, "^x: score must be a number; received '1'"),
        ({"name": "a", "score": True}, "^x: score must be a number; received True"),
        ({"name": "a", "parts": [1, 1.5]}, r"^x: parts\[1\] must be a whole number; received 1\.5"),
    ):
        with pytest.raises(UserError, match=message):
            read_members(value, kinds, "x")


def test_mutated_content_never_raises_anything_else() -> None:
    generator = np.random.default_rng(0)
    whole = json.dumps({"a": [1, -2.5e3, "é\\u00e9", {"b": None}], "c": {"d": [True, False]}}).encode()
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(generator.integers(1, 6)):
            offset = int(generator.integers(len(content)))
            content[offset : offset + int(generator.integers(0, 3))] = generator.bytes(int(generator.integers(0, 3)))
        try:
            parse_json(bytes(content), "x")
        except UserError as error:
            assert "\n" not in str(error)
