"""Differences between recorded and received options in a message."""

from __future__ import annotations

from pocketbert.errors import describe_differences


def test_equal_options_have_no_differences() -> None:
    assert describe_differences({"epochs": 3, "grid": None}, {"epochs": 3}) == ""


def test_few_differences_are_all_described() -> None:
    recorded = {"seed": 0, "epochs": 3, "a": 1, "b": 1, "c": 1}
    assert describe_differences({"seed": 0, "epochs": 3}, {"seed": 0, "epochs": 4, "text": "x"}) == (
        "epochs=3, received 4, text=None, received 'x'"
    )
    assert "other" not in describe_differences(recorded, {})


def test_many_differences_are_counted() -> None:
    recorded = {f"student_{letter}": "0" * 64 for letter in "hgfedcba"}
    described = describe_differences(recorded, {"student_b": "0" * 64})
    shown = [f"student_{letter}='{'0' * 64}', received None" for letter in "acdef"]
    assert described == ", ".join(shown) + ", and 2 others"
    assert describe_differences(dict.fromkeys("abcdef", 1), {}).endswith("e=1, received None, and 1 other")
