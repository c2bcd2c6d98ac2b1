"""Files of examples: each kind of data reads back as it was, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_questions

from pocketbert import data
from pocketbert.data.example_files import write_examples
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.data.readers.tagged_texts import read_tagged
from pocketbert.data.task_data import TaskData

TEXTS = [
    " a, \"quoted\" text\twith tabs ", "line\nbreaks\r\nand\u2028others", "naïve – 北京 😀", "null", "5", "[1]", "x|y",
    *(f"text {number}" for number in range(13)),
]  # fmt: skip
COUNT = len(TEXTS)
RANDOM = np.random.default_rng(3)


def classes() -> TaskData:
    names = ("b", "1", "a, c", 'q"')
    return data.from_pairs(TEXTS, [names[index % 4] for index in range(COUNT)], label_names=names)


def numbers() -> TaskData:
    return data.from_pairs(TEXTS, [index % 3 for index in range(COUNT)], pairs=TEXTS[::-1])


def sets() -> TaskData:
    names = ["x", "y|z", "w"]
    rows = [[name for name in names if RANDOM.random() < 0.4] for _ in TEXTS]
    rows[0] = names
    return data.table({"text": TEXTS, "label": rows}, kind="multi_label", label_names=names)


def scores() -> TaskData:
    return data.from_pairs(TEXTS, [1.0, 1e-9, -3e30, 0.1, *RANDOM.random(COUNT - 4)], kind="regression")


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (classes, {}),
        (numbers, {"pair": "pair"}),
        (sets, {"kind": "multi_label"}),
        (scores, {"kind": "regression"}),
    ],
)
def test_tables_read_back(make: Callable[[], TaskData], options: dict[str, Any], tmp_path: Path) -> None:
    original = make()
    labels = original.task.labels
    files = [
        write_examples(part, labels, tmp_path / name) for name, part in (("t", original.train), ("d", original.dev))
    ]
    assert [path.name for path in files] == ["t.jsonl", "d.jsonl"]
    again = data.table(files[0], dev=files[1], label_names=labels or None, **options)
    assert again.task.labels == labels
    assert (again.train.identity, again.dev.identity) == (original.train.identity, original.dev.identity)


@pytest.mark.parametrize("scored", [True, False])
def test_pairs_read_back(scored: bool, tmp_path: Path) -> None:
    rows = [{"text": text, "pair": f"{text} two", "score": 0.37 * index} for index, text in enumerate(TEXTS)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    original = data.pairs(tmp_path / "own.jsonl", score="score" if scored else None, max_score=9.5)
    path = write_examples(original.train, (), tmp_path / "train")
    again = data.pairs(path, score="label" if scored else None, dev=path)
    assert again.train.identity == original.train.identity
    assert ("label" in json.loads(path.read_text().splitlines()[0])) is scored


CONLL = "U.S.\tB-LOC\nofficials\tO\n\n-\tO\nNew York\tB-LOC\n\nx\tO\n,\tO\ny\tB-PER\nz\tI-PER\nv\tB-PER\n"
SPANS = [
    {"text": "In  New York, Ann sang.", "spans": [[4, 12, "LOC"], [14, 17, "PER"]]},
    {"text": "nobody", "spans": []},
    {"text": "東京でAnn", "spans": [[0, 2, "LOC"], [3, 6, "PER"]]},
]


@pytest.mark.parametrize(
    ("name", "content", "suffix"),
    [
        ("own.conll", CONLL, ".conll"),
        ("own.jsonl", "".join(json.dumps(row) + "\n" for row in SPANS), ".jsonl"),
        ("own.jsonl", json.dumps(SPANS[1]) + "\n", ".conll"),
    ],
)
def test_spans_read_back(name: str, content: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    original = read_tagged(tmp_path / name, types=["PER", "LOC"])
    path = write_examples(original, (), tmp_path / "again")
    assert path.suffix == suffix
    assert read_tagged(path, types=["PER", "LOC"]).identity == original.identity


def test_questions_read_back(tmp_path: Path) -> None:
    original = QuestionFile(tiny_questions.write_questions(tmp_path / "own.json", 23, seed=2, impossible=0.3))
    selected: Sequence[Any] = original.select(range(1, len(original), 2))  # type: ignore[assignment]
    again = QuestionFile(write_examples(selected, (), tmp_path / "again"))  # type: ignore[arg-type]
    assert [*again] == [*selected] and len(again) > 1
