"""Labels of a task: a list becomes a tuple, and labels that a file or a reader would mix up are refused."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.task_config import TaskConfig


def test_list_of_labels_becomes_tuple() -> None:
    task = TaskConfig(kind="classification", labels=["neg", "pos"])  # type: ignore[arg-type]
    assert task.labels == ("neg", "pos")
    assert task == TaskConfig(kind="classification", labels=("neg", "pos"))
    assert hash(task) == hash(TaskConfig(kind="classification", labels=("neg", "pos")))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (("good\nbad", "fair"), r"labels must be one line of text each; received 'good\\nbad'"),
        (("good\r", "fair"), r"one line of text each; received 'good\\r'"),
        (("good\u2028bad", "fair"), r"one line of text each; received 'good\\u2028bad'"),
        (("a\x00b", "fair"), r"one line of text each; received 'a\\x00b'"),
        (("\ud83d", "fair"), r"one line of text each; received '\\ud83d'"),
        (("", "fair"), r"one line of text each; received ''"),
        ((" ", "fair"), r"one line of text each; received ' '"),
        ((" good", "fair"), r"one line of text each; received ' good'"),
        ((1, 2), r"one line of text each; received 1, 2"),
        (("good", "Good", "fair"), r"differ in more than case or white space; received 'good', 'Good'"),
        (("so so", "so  so"), r"differ in more than case or white space; received 'so so', 'so  so'"),
        (("Straße", "STRASSE", "fair"), r"differ in more than case or white space; received 'Straße', 'STRASSE'"),
        (("good", "good"), r"differ in more than case or white space; received 'good', 'good'"),
        ("abc", r"labels must be a list of texts; received 'abc'"),
        (("good",), r"at least two labels; received 'good'"),
        ((), r"at least two labels; received none"),
    ],
)
def test_labels_that_get_mixed_up_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        TaskConfig(kind="classification", labels=labels)


@pytest.mark.parametrize("prompts", ["query", 1, [["query", "a", "b"]], [["query", 1]], ["ab"]])
def test_malformed_prompts_are_refused(prompts: Any) -> None:
    with pytest.raises(UserError, match="prompts must be pairs of name and text; received"):
        TaskConfig(kind="embedding", embedding={"prompts": prompts})  # type: ignore[arg-type]
