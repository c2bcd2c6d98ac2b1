"""Published question files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from pocketbert.data.readers.questions import QuestionFile
from pocketbert.errors import UserError


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "count", "impossible"),
    [
        ("squad/train-v1.1.json", 4120, 0),
        ("squad/dev-v1.1.json", 853, 0),
        ("squad/train-v2.0.json", 3480, 1949),
        ("squad/dev-v2.0.json", 1506, 770),
        ("tydiqa/tydiqa.goldp.en.train.json", 3696, 0),
        ("tydiqa/tydiqa.goldp.ko.train.json", 1625, 0),
        ("mlqa/dev-context-hi-question-hi.json", 507, 0),
        ("mlqa/dev-context-es-question-en.json", 500, 0),
    ],
)
def test_real_files_are_read(shared: Path, name: str, count: int, impossible: int) -> None:
    path = shared / "data" / name
    file = QuestionFile(path)
    assert (file.count, file.num_impossible, file.labelled) == (count, impossible, True)
    raw = [
        (str(entry["id"]), entry["question"], paragraph["context"], [answer["text"] for answer in entry["answers"]])
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]
    assert [(question.id, question.question, question.context, list(question.answers)) for question in file] == raw


@pytest.mark.data
def test_answers_without_text_are_unknown(shared: Path) -> None:
    file = QuestionFile(shared / "data/tydiqa/tydiqa.goldp.en.dev.json")
    assert (file.count, file.num_unlabelled, file.labelled) == (440, 440, False)
    assert all(question.answers == () for question in itertools.islice(file, 5))
    with pytest.raises(UserError, match="received 3607 repetitions"):
        QuestionFile(shared / "data/tydiqa/tydiqa.goldp.en.train.json").check_ids()
