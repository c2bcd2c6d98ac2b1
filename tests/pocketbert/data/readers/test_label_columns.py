"""The form of label columns. Oracle: vectors written by hand; each message's remedy is followed."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pocketbert as pb
from pocketbert.data.readers.tables import read_table
from pocketbert.errors import UserError

VECTORS = [[0, 0, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]]
NAMES = ("toxic", "obscene", "threat")
MULTI = {"text_column": "text", "label_column": "label", "kind": "multi_label"}


def _jsonl(folder: Path, labels: Sequence[Any]) -> Path:
    path = folder / "t.jsonl"
    rows = ({"text": f"text {number}", "label": label} for number, label in enumerate(labels))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def _csv(folder: Path, labels: Sequence[str]) -> Path:
    stream = io.StringIO()
    csv.writer(stream).writerows([["text", "label"], *([f"text {row}", cell] for row, cell in enumerate(labels))])
    path = folder / "t.csv"
    path.write_text(stream.getvalue(), "utf-8")
    return path


def _columns(labels: Sequence[Any]) -> dict[str, list[Any]]:
    return {"text": [f"text {number}" for number in range(len(labels))], "label": [*labels]}


def _sources(folder: Path, vectors: list[list[int]]) -> dict[str, Any]:
    """The same vectors as people have them."""
    import pandas

    arrays = np.array(vectors)
    return {
        "jsonl": _jsonl(folder, vectors),
        "jsonl with booleans": _jsonl(folder / "b", [[bool(bit) for bit in row] for row in vectors]),
        "jsonl with floats": _jsonl(folder / "f", [[float(bit) for bit in row] for row in vectors]),
        "csv of lists": _csv(folder, [str(row) for row in vectors]),
        "csv of arrays": _csv(folder / "b", [str(row) for row in arrays]),
        "csv with commas": _csv(folder / "f", [",".join(map(str, row)) for row in vectors]),
        "csv with bars": _csv(folder / "c", ["|".join(map(str, row)) for row in vectors]),
        "csv of digits": _csv(folder / "d", ["".join(map(str, row)) for row in vectors]),
        "lists": _columns(vectors),
        "arrays": _columns([*arrays.astype(np.float32)]),
        "booleans": _columns([*arrays.astype(bool)]),
        "DataFrame": pandas.DataFrame(_columns([(*row,) for row in vectors])),
    }


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Any]:
    for name in "bfcd":
        (tmp_path / name).mkdir()
    return _sources(tmp_path, VECTORS)


def test_vectors_with_names_are_read(sources: dict[str, Any]) -> None:
    for name, source in sources.items():
        examples, labels = read_table(source, **MULTI, labels=NAMES)
        assert (labels, examples.labels.tolist()) == (NAMES, VECTORS), name


def test_vectors_without_names_are_refused(sources: dict[str, Any]) -> None:
    for name, source in sources.items():
        with pytest.raises(UserError, match="has vectors of 3 zeros and ones, without the names") as raised:
            read_table(source, **MULTI)
        match = re.search(r"label_names=(\(.*\))$", str(raised.value))
        assert match is not None, name
        examples, labels = read_table(source, **MULTI, labels=ast.literal_eval(match[1]))
        assert (len(labels), examples.labels.tolist()) == (3, VECTORS), name


@pytest.mark.parametrize(
    ("cells", "labels", "message"),
    [
        pytest.param([[0, 0, 1], [1, 0]], NAMES, "line 2: labels must be a vector of 3 .*1, 0", id="short"),
        pytest.param([[0, 0, 1], []], NAMES, "line 2: labels must be a vector of 3", id="empty"),
        pytest.param([[0, 0, 1], [1, 0]], None, "vectors of one length; received .*'1', '0'.*'0', '0', '1'", id="two"),
        pytest.param([[0, 0, 1], [2, 0, 0]], NAMES, "line 2: labels must be a vector .*2, 0, 0", id="counts"),
        pytest.param([[0.2, 0.8], [0.9, 0.1]], None, "round probabilities", id="probabilities"),
        pytest.param([[-1, 0, 1], [1, -1, 0]], None, "leave out rows with missing labels", id="missing"),
        pytest.param([[0, 1], [0, 1]], ("a", "b"), "could be a vector or the numbers of labels", id="both"),
        pytest.param([[0, 1], [1, 0]], NAMES, "could be a vector or the numbers of labels", id="two of three"),
        pytest.param([[0], [0]], ("a",), "could be a vector or the numbers of labels", id="one"),
        pytest.param([[0], [1]], None, "0 and 1 alone, without the names", id="alone"),
        pytest.param(["0", "1", "1"], NAMES, "received 0 and 1 alone; .* a column for each label", id="scalars"),
        pytest.param([[[0, 1]], [["a"]]], None, "lists of text or numbers; received", id="nested"),
        pytest.param([{"a": 1}, "b"], None, "received the object '{.*list the names", id="object"),
    ],
)
def test_unclear_vectors_are_refused(tmp_path: Path, cells: list[Any], labels: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_table(_jsonl(tmp_path, cells), **MULTI, labels=labels)


@pytest.mark.parametrize(
    ("cells", "labels", "expected"),
    [
        ([[0], [1], [0, 1], []], None, (("0", "1"), [[1, 0], [0, 1], [1, 1], [0, 0]])),
        ([[3, 17], [], [17]], None, (("3", "17"), [[1, 1], [0, 0], [0, 1]])),
        ([[0, 2], [1], [2]], NAMES, (NAMES, [[1, 0, 1], [0, 1, 0], [0, 0, 1]])),
        ([[0, 1], [1, 0]], ("a", "b"), (("a", "b"), [[0, 1], [1, 0]])),
        ([[1], [0], [1]], ("a",), (("a",), [[1], [0], [1]])),
        (["a|b", ["b"], ""], None, (("a", "b"), [[1, 1], [0, 1], [0, 0]])),
        (["['a', 'b']", "['b']"], None, (("a", "b"), [[1, 1], [0, 1]])),
        ([[True, False], [True, True]], ("a", "b"), (("a", "b"), [[1, 0], [1, 1]])),
    ],
)
def test_lists_of_labels_are_read(tmp_path: Path, cells: list[Any], labels: Any, expected: Any) -> None:
    for source in (_jsonl(tmp_path, cells), _columns(cells)):
        examples, names = read_table(source, **MULTI, labels=labels)
        assert (names, examples.labels.tolist()) == expected


def test_sets_are_lists_of_labels() -> None:
    examples, labels = read_table(_columns([{"b", "a"}, frozenset(), {"b"}]), **MULTI)
    assert (labels, examples.labels.tolist()) == (("a", "b"), [[1, 1], [0, 0], [0, 1]])


def test_vectors_of_unknown_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"this file does not say; .* label_names=\('toxic', 'obscene', 'threat'\)"):
        read_table(_jsonl(tmp_path, VECTORS), **MULTI, labels=NAMES, numbered=False)


@pytest.mark.parametrize(
    "cells",
    [[[0, 1, 0], [1, 0, 0]], ["[0, 1, 0]", "[1, 0, 0]"], [["a"], ["b"]], [(0, 1), (1, 0)]],
)
def test_lists_need_multi_label(tmp_path: Path, cells: list[Any]) -> None:
    for source in (_jsonl(tmp_path, cells), _csv(tmp_path, [str(cell) for cell in cells]), _columns(cells)):
        if str(source).endswith("csv") and isinstance(cells[0], tuple):
            continue
        with pytest.raises(UserError, match="one class per row; received the list .*; pass kind='multi_label'"):
            read_table(source, text_column="text", label_column="label")


FLAGS = {"text": ["a", "b", "c"], "threat": [0, 1, 0], "toxic": [True, False, True], "obscene": ["1.0", "0.0", "0"]}


def test_a_column_per_label_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pandas

    path = tmp_path / "t.csv"
    frame = pandas.DataFrame(FLAGS)
    frame.to_csv(path, index=False)
    rows = [dict(zip(FLAGS, row, strict=True)) for row in zip(*FLAGS.values(), strict=True)]
    for source in (path, frame, FLAGS, rows):
        data = pb.data.table(source, label=NAMES, dev=source)
        assert (data.task.kind, data.task.labels) == ("multi_label", NAMES)
        assert data.train.labels.tolist() == data.dev.labels.tolist() == [[1, 1, 0], [0, 0, 1], [1, 0, 0]]
        assert "3 label columns: each is a label of the kind multi_label" in capsys.readouterr().err
    # A model's order of the labels counts, not that of the columns.
    examples, _ = read_table(path, text_column="text", label_column=NAMES, kind="multi_label", labels=NAMES[::-1])
    assert examples.labels.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ("x,1,2\n", {}, "line 2: column 'b' must have 0 or 1, or false or true; received '2'"),
        ("x,1,-1\n", {}, "line 2: column 'b' must have 0 or 1"),
        ("x,1,0.5\n", {}, "line 2: column 'b' must have 0 or 1"),
        ("x,1,yes\n", {}, "line 2: column 'b' must have 0 or 1"),
        ("x,1,\n", {}, "line 2: column 'b' is empty; every row must have a label"),
        ("x,1,0\n", {"labels": ("a", "c")}, "label columns must be the labels a, c; received a, b"),
        ("x,1,0\n", {"kind": "regression"}, "regression reads one label column; received a, b"),
    ],
)
def test_other_flags_are_refused(tmp_path: Path, rows: str, options: dict[str, Any], message: str) -> None:
    (tmp_path / "t.csv").write_text("text,a,b\n" + rows, "utf-8")
    with pytest.raises(UserError, match=message):
        read_table(tmp_path / "t.csv", **{**MULTI, "label_column": ("a", "b"), **options})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        pytest.param(["3.4", "2.1", "5"], "looks like scores: 3 different .* pass kind='regression'", id="decimals"),
        pytest.param(["0.0", "0.5", "1.0"], "looks like scores", id="halves"),
        pytest.param(["3,4", "2,1"], "decimal comma", id="comma"),
        pytest.param([str(number) for number in range(40)], "looks like scores: 40 different", id="many"),
        pytest.param(["1e-1", "2"], "looks like scores", id="exponent"),
        pytest.param(["1", "1.0", "2"], "write a number in one way; received '1' and '1.0'", id="spellings"),
        pytest.param(["1", "01", "2"], "write a number in one way", id="zeros"),
    ],
)
def test_scores_are_no_classes(tmp_path: Path, cells: list[str], message: str) -> None:
    path = _csv(tmp_path, cells)
    with pytest.raises(UserError, match=message):
        read_table(path, text_column="text", label_column="label")
    # The remedies.
    _, labels = read_table(path, text_column="text", label_column="label", labels=sorted({*cells}))
    assert labels == tuple(sorted({*cells}))
    if "comma" not in message:
        scores, _ = read_table(path, text_column="text", label_column="label", kind="regression")
        assert scores.labels.tolist() == pytest.approx([float(cell) for cell in cells])


@pytest.mark.parametrize("cells", [["1", "2", "3", "4", "5"] * 3, ["0", "1"], ["-1", "0", "1"], ["1.0", "2.0"]])
def test_whole_numbers_stay_classes(tmp_path: Path, cells: list[str]) -> None:
    _, labels = read_table(_csv(tmp_path, cells), text_column="text", label_column="label")
    assert labels == tuple(sorted({*cells}, key=float))


def test_many_numbered_classes_are_read() -> None:
    examples, labels = read_table(_columns([*range(77)] * 3), text_column="text", label_column="label")
    assert labels == tuple(map(str, range(77))) and examples.labels.tolist() == [*range(77)] * 3


@pytest.mark.parametrize("cell", ["1_0", "3,4", "٣", "nan", "[1]", "true"])
def test_scores_are_decimal_numbers(tmp_path: Path, cell: str) -> None:
    with pytest.raises(UserError, match="line 2: the score must be a finite number; received"):
        read_table(_csv(tmp_path, [cell]), text_column="text", label_column="label", kind="regression")


def test_names_of_a_data_set_are_used() -> None:
    class Feature:
        names = ["no", "yes", "maybe"]

    class Lists:
        feature = Feature()

    class DataSet:
        column_names = ["text", "label"]
        features = {"text": None, "label": Lists()}

        def __getitem__(self, column: str) -> list[Any]:
            return _columns([[0, 2], [1], [2]])[column]

    data = pb.data.table(DataSet(), kind="multi_label", dev=DataSet())
    assert data.task.labels == ("no", "yes", "maybe")
    assert data.train.labels.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]
