"""Parts of error messages that several modules share."""

from __future__ import annotations

from pocketbert_runtime.errors import first_line, printable


def test_terminal_controls_become_escapes() -> None:
    text = "a\x1b[2J\x07b\tc\r\nd\re\x7f\x9b31m\nf é ☃"
    assert printable(text) == "a\\u001b[2J\\u0007b\tc\r\nd\\u000de\\u007f\\u009b31m\nf é ☃"


def test_first_line_of_a_message() -> None:
    assert first_line(ValueError("\n  one \ntwo")) == "one"
    assert first_line(ValueError("a" * 300)) == "a" * 200
    assert first_line(IndexError()) == "IndexError"
