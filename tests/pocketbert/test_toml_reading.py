"""TOML that would crash or hang Python's own parser ends in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketbert.errors import UserError
from pocketbert.json_reading import read_toml


def test_toml_needs_a_plain_file(tmp_path: Path) -> None:
    for path, message in ((Path("/dev/zero"), "it is a device or a pipe"), (tmp_path, "it is a folder")):
        with pytest.raises(UserError, match=f"it must be a plain file; {message}"):
            read_toml(path)
    with pytest.raises(UserError, match="the file cannot be read"):
        read_toml(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a = " + "9" * 5_000, "Exceeds the limit"),
        ("a = " + "[" * 5_000 + "]" * 5_000, "nest too deeply"),
        ("a = ", "Invalid value"),
        ("#" * (1 << 20) + "##", "at most 1,048,576 bytes"),
        (b"a = '\xff'", "can't decode byte 0xff"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_toml_is_one_line(content: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message) as raised:
        read_toml(path)
    assert len(str(raised.value).splitlines()) == 1
