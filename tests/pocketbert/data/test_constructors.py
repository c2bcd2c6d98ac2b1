"""Functions of `pb.data`: equal examples from all kinds of sources, and clear errors for others."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pocketbert as pb
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError

# An empty second line, an umlaut, a comma, quotes: whatever a format might change.
TEXTS = ["fine, really", "dull", 'she said "no"', "größer\nbetter", "the end", "again", "so-so"]
SECOND = ["one", "two", "three", "four", "five", "six", "seven"]
LABELS = ["up", "down", "up", "up", "down", "down", "up"]
COLUMNS = {"review": TEXTS, "reply": SECOND, "mood": LABELS, "stars": [5, 1, 4, 5, 2, 1, 3]}
ROWS = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]


class HuggingFaceDataset:
    """What `datasets.Dataset` offers of columns; with `ClassLabel` the labels are numbers."""

    column_names = [*COLUMNS]
    features = {"mood": SimpleNamespace(names=["up", "down"]), "review": SimpleNamespace()}

    def __getitem__(self, column: str) -> list[Any]:
        return [self.features["mood"].names.index(label) for label in LABELS] if column == "mood" else COLUMNS[column]


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    with open(path, "w", encoding="utf-8", newline="") as stream:
        if name.endswith("jsonl"):
            stream.writelines(json.dumps(row) + "\n" for row in ROWS)
        else:
            csv.writer(stream).writerows([[*COLUMNS], *(row.values() for row in ROWS)])
    return path


def _source(kind: str, folder: Path) -> Any:
    if kind in ("csv", "jsonl"):
        return _file(folder, f"reviews.{kind}")
    if kind == "pandas":
        import pandas

        # A frame that lost rows keeps their index; examples count rows.
        return pandas.DataFrame(COLUMNS, index=range(10, 17))
    if kind.startswith("tf"):
        import tensorflow as tf

        if kind == "tf pairs":
            return tf.data.Dataset.from_tensor_slices(((TEXTS, SECOND), LABELS))
        dataset = tf.data.Dataset.from_tensor_slices(COLUMNS)
        return dataset.batch(3) if kind == "tf batches" else dataset
    numpy = {name: np.asarray(values) for name, values in COLUMNS.items()}
    return {
        "dict": COLUMNS,
        "numpy": numpy,
        "rows": ROWS,
        "pairs": [((row["review"], row["reply"]), row["mood"]) for row in ROWS],
        "rows with labels": [(row, row["mood"]) for row in ROWS],
        "datasets": HuggingFaceDataset(),
    }[kind]


KINDS = ["csv", "jsonl", "pandas", "dict", "numpy", "rows", "pairs", "rows with labels", "datasets"]
KINDS += ["tf", "tf batches", "tf pairs"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_examples(kind: str, tmp_path: Path) -> None:
    source = _source(kind, tmp_path)
    data = pb.data.table(source, text="review", pair="reply", label="mood", dev=source)
    # Names that a data set knows stand in its order; else in alphabetical order.
    labels = ("up", "down") if kind == "datasets" else ("down", "up")
    assert data.task == pb.TaskConfig(kind="classification", labels=labels)
    for examples in (data.train, data.dev):
        assert (examples.texts, examples.pairs) == (TEXTS, SECOND)
        assert [labels[label] for label in examples.labels] == LABELS
        assert examples.labels.dtype == np.int32


def test_from_pairs_equals_a_table() -> None:
    data = pb.data.from_pairs(iter(TEXTS), LABELS, pairs=SECOND, dev=(TEXTS[:2], LABELS[:2], SECOND[:2]))
    table = pb.data.table(COLUMNS, text="review", pair="reply", label="mood", dev=ROWS[:2])
    for examples, expected in ((data.train, table.train), (data.dev, table.dev)):
        assert (examples.texts, examples.pairs, examples.ids) == (expected.texts, expected.pairs, expected.ids)
        assert examples.labels.tolist() == expected.labels.tolist()


def test_splits_of_a_dataset_dict() -> None:
    splits = {"train": COLUMNS, "validation": {name: values[:3] for name, values in COLUMNS.items()}}
    data = pb.data.table(splits, text="review", label="mood")
    assert (data.train.texts, data.dev.texts) == (TEXTS, TEXTS[:3])
    # A column may be called so, too.
    columns = {"train": TEXTS, "label": LABELS}
    assert pb.data.table(columns, text="train", dev=columns).train.texts == TEXTS


def test_split_equals_the_command(tmp_path: Path) -> None:
    texts, labels = [f"text {number}" for number in range(40)], ["a", "b"] * 20
    data = pb.data.from_pairs(texts, labels)
    assert sorted([*data.train.texts, *data.dev.texts]) == sorted(texts)
    # A tenth, half of it of each class.
    assert np.bincount(data.dev.labels).tolist() == [2, 2]
    path = tmp_path / "t.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)))
    assert pb.data.table(path).dev.texts == data.dev.texts


def test_scores_and_sets_of_labels() -> None:
    scores = pb.data.table(COLUMNS, text="review", label="stars", kind="regression", dev=COLUMNS)
    assert scores.train.labels.tolist() == [5, 1, 4, 5, 2, 1, 3]
    several = pb.data.from_pairs(["x", "y", "z"], [["b", "a"], [], ("a",)], kind="multi_label", dev=(["w"], [["b"]]))
    assert several.task.labels == ("a", "b")
    assert several.train.labels.tolist() == [[1, 1], [0, 0], [1, 0]]


def test_missing_values_are_empty_cells() -> None:
    import pandas

    for missing in (None, float("nan"), pandas.NA):
        with pytest.raises(UserError, match=r"^the dict: row 1: column 'text' is empty; every row must have a text$"):
            pb.data.from_pairs(["good", missing, "bad"], ["p", "n", "n"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"text": ["x"], "mood": ["up"]}, r"the dict must have the column 'label'; received 'text', 'mood'; choose"),
        (
            {"text": ["x", "y"], "label": ["up"]},
            r"columns of the dict must have the same length; received 'text' with 2, ",
        ),
        ([("x", "up"), "y"], r"the list: row 1: the row must be a dict of columns or \(text, label\); received 'y'"),
        ([{"text": "x"}], r"the list: row 0: the row must have a column 'label'; received 'text'"),
        ([], r"the list: there are no rows; it must have at least one example"),
        (17, r"a table in memory must be a DataFrame, .*; received 17; convert it"),
        ([(b"\xff", "up")], r"the list: row 0: texts must be UTF-8; received byte 0xff"),
        ({"text": ["x", "y"], "label": ["up", "up"]}, r"the dict: column 'label' must have at least two different"),
    ],
)
def test_bad_source_is_refused(source: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pb.data.table(source)


@pytest.mark.parametrize("kind", ["questions", "tagged", "pairs"])
def test_test_examples_are_read_as_dev_examples(kind: str, tmp_path: Path) -> None:
    def write(name: str, words: list[str]) -> Path:
        if kind == "questions":
            rows = [
                {"id": word, "question": f"which {word}", "answers": {"text": [word], "answer_start": [4]}}
                for word in words
            ]
            path, rows = tmp_path / f"{name}.jsonl", [{**row, "context": f"the {row['id']}"} for row in rows]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif kind == "tagged":
            path = tmp_path / f"{name}.conll"
            path.write_text("".join(f"the O\n{word} B-X\n\n" for word in words))
        else:
            path = tmp_path / f"{name}.tsv"
            path.write_text("text\tpair\n" + "".join(f"the {word}\twhich {word}\n" for word in words))
        return path

    paths = [write("train", ["a", "b", "c"]), write("dev", ["d", "e"]), write("test", ["f", "g", "h", "i"])]
    data = getattr(pb.data, kind)(paths[0], dev=paths[1], test=paths[2])
    expected = getattr(pb.data, kind)(paths[0], dev=paths[2]).dev
    assert data.test is not None and len(data.test) == 4 != len(data.dev)
    assert data.test.identity == expected.identity != data.dev.identity


def test_data_sets_by_name(fixtures: Path, tmp_path: Path) -> None:
    data = pb.data.glue("qqp", fixtures / "glue")
    assert isinstance(data, TaskData)
    assert (data.task.name, data.metrics, data.main_metric) == ("qqp", ("accuracy", "f1"), "f1")
    with pytest.raises(UserError, match="no GLUE task 'mood'"):
        pb.data.glue("mood", fixtures / "glue")
    with pytest.raises(UserError, match="there is no such file or folder"):
        pb.data.text(tmp_path / "none")


@pytest.mark.parametrize("kind", ["sentiment", "span", "clasification"])
def test_kinds_without_tables_are_refused(kind: Any) -> None:
    with pytest.raises(UserError, match=f"kind must be classification, .* for a table; received '{kind}'"):
        pb.data.from_pairs(["a b", "c d"], ["x", "y"], kind=kind)
