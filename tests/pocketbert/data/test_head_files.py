"""Texts with labels for some of several heads, in one table or in several; the expected texts are written out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pocketbert as pb
from pocketbert.data.examples import Examples
from pocketbert.data.head_tables import read_heads
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError

KINDS = {"intent": "classification", "slots": "token_classification"}
ROWS: list[dict[str, Any]] = [
    {"text": "fly to york", "intent": "book", "slots": "O O B-city"},
    {"text": "cancel it", "intent": "cancel"},
    {"text": "book a car", "intent": "", "slots": "O O B-thing"},
    {"text": "to oslo", "intent": None, "slots": ["O", "B-city"]},
    {"text": "stop", "intent": "cancel", "slots": " "},
]
TAGS = [["O", "O", "B-city"], ["O", "O", "B-thing"], ["O", "B-city"]]


def shared(data: Any) -> SharedTexts:
    assert isinstance(data, SharedTexts)
    return data


def assert_partial(data: Any) -> None:
    data = shared(data)
    assert data.texts == [row["text"] for row in ROWS] and data.labelled
    assert data.rows_of("intent").tolist() == [0, 1, 4] and data.rows_of("slots").tolist() == [0, 2, 3]
    assert data.parts["intent"].texts == ["fly to york", "cancel it", "stop"]
    assert data.parts["intent"].answers == [0, 1, 1] and data.parts["slots"].answers == TAGS
    assert data.answers == [(0, TAGS[0]), (1, None), (None, TAGS[1]), (None, TAGS[2]), (1, None)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_empty_cells_have_no_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "a.csv").write_text(
        "text,intent,slots\nfly to york,book,O O B-city\ncancel it,cancel,\nbook a car,,O O B-thing\n"
        "to oslo,,O B-city\nstop,cancel, \n",
        encoding="utf-8",
    )
    for source in (path, tmp_path / "a.csv", ROWS):
        data = pb.data.heads(source, KINDS, dev=source)
        assert_partial(data.train)
        assert data.train.identity == data.dev.identity
    assert "5 texts, of which a part has labels for each head: 3 for intent, 3 for slots" in capsys.readouterr().err


def test_parts_of_the_texts_keep_their_labels() -> None:
    data = shared(pb.data.heads(ROWS, KINDS, dev=ROWS).train)
    some = data.select([4, 0, 3])
    assert some.texts == ["stop", "fly to york", "to oslo"] and some.ids == ["4", "0", "3"]
    assert some.answers == [(1, None), (0, TAGS[0]), (None, TAGS[2])]
    both = data.select([0])
    assert both.rows is None and both.answers == [(0, TAGS[0])]
    assert not data.select([1]).labelled and "labels for slots" in data.select([1]).missing_labels
    # The digest of texts with all labels is that of a table without empty cells.
    full = [ROWS[0], {"text": "stop", "intent": "cancel", "slots": "O"}]
    assert both.identity == shared(pb.data.heads(full, KINDS, dev=full).train).select([0]).identity
    assert data.identity != data.select([1, 0, 2, 3, 4]).identity


def test_several_labels_may_be_none() -> None:
    rows = [
        {"text": "a b", "topics": "x|y", "stars": 1.5},
        {"text": "c d", "topics": "", "stars": None},
        {"text": "e f", "stars": -2},
        {"text": "g h", "topics": [], "stars": 3},
    ]
    train = shared(pb.data.heads(rows, {"topics": "multi_label", "stars": "regression"}, dev=rows).train)
    assert train.rows_of("topics").tolist() == [0, 1, 3] and train.parts["topics"].answers == [[1, 1], [0, 0], [0, 0]]
    assert train.rows_of("stars").tolist() == [0, 2, 3] and train.parts["stars"].answers == [1.5, -2.0, 3.0]


def test_texts_without_any_label_are_bad_rows() -> None:
    rows = [*ROWS, {"text": "nothing"}, {"text": "empty", "intent": "", "slots": ""}, {"text": "x", "slots": "O O"}]
    with pytest.raises(UserError, match="row 5: .*row 6: column 'intent' is empty; every row must have a label"):
        pb.data.heads(rows, KINDS, dev=ROWS)
    train = shared(pb.data.heads(rows, KINDS, dev=ROWS, skip_bad_rows=True).train)
    assert_partial(train)
    assert train.skipped_rows == 3


@pytest.mark.parametrize("kinds", [KINDS, dict(reversed(KINDS.items()))])
def test_head_without_labels_is_refused(kinds: dict[str, str]) -> None:
    rows = [{"text": row["text"], "intent": "book", "slots": ""} for row in ROWS]
    with pytest.raises(UserError, match="column 'slots' must have a label in one row at least; .* leave out slots"):
        pb.data.heads(rows, kinds)
    parts = pb.data.heads(ROWS, KINDS, dev=ROWS).task.tasks or ()
    with pytest.raises(UserError, match="column 'slots' must have a label in one row at least"):
        read_heads(rows, parts)


def test_dev_split_has_texts_of_each_head() -> None:
    rows: list[dict[str, Any]] = [{"text": f"text {index % 90}", "intent": "cab"[index % 3]} for index in range(150)]
    rows += [{"text": f"word {index}", "slots": "O B-city"} for index in range(7)]
    rows += [{"text": "rare one", "intent": "rare"}, {"text": "text 8", "slots": "O O"}]
    data = pb.data.heads(rows, KINDS)
    train, dev = shared(data.train), shared(data.dev)
    assert len(train) + len(dev) == len(rows) and not {*train.texts} & {*dev.texts}
    # A tenth of each head and class, but at least one text, where texts occur up to twice.
    assert 15 <= len(dev.parts["intent"]) <= 18 and 1 <= len(dev.parts["slots"]) <= 2
    classes = np.bincount(dev.parts["intent"].classes, minlength=4)  # type: ignore[arg-type]
    assert classes[:3].min() >= 4 and classes[3] == 0
    again = train_dev_split(shared(data.undivided), stratify=True)
    assert [part.identity for part in again] == [train.identity, dev.identity]


def test_split_without_texts_of_a_head_is_refused() -> None:
    rows = [{"text": f"text {index}", "intent": "ab"[index % 2]} for index in range(9)]
    with pytest.raises(UserError, match="too few for slots in the list; pass dev"):
        pb.data.heads([*rows, {"text": "to york", "slots": "O B-city"}], KINDS)


INTENTS: list[dict[str, Any]] = [
    {"text": "fly to york", "intent": "book"},
    {"text": "cancel it", "intent": "cancel"},
    {"text": "stop", "intent": "cancel"},
]
SLOTS: list[dict[str, Any]] = [
    {"text": "to oslo", "tags": "O B-city"},
    {"text": "fly to york", "tags": "O O B-city"},
    {"text": "book a car", "tags": [[7, 10, "thing"]]},
]


def test_tables_of_single_heads_are_joined(tmp_path: Path) -> None:
    files = {"intent": tmp_path / "intents.csv", "slots": write(tmp_path / "slots.jsonl", SLOTS)}
    files["intent"].write_text("text,intent\nfly to york,book\ncancel it,cancel\nstop,cancel\n", encoding="utf-8")
    data = pb.data.heads(files, KINDS, labels={"slots": "tags"}, dev=files)
    train = shared(data.train)
    assert train.texts == ["fly to york", "cancel it", "stop", "to oslo", "book a car"]
    assert [*train.ids] == ["intent:2", "intent:3", "intent:4", "slots:1", "slots:3"]
    assert train.rows_of("intent").tolist() == [0, 1, 2] and train.rows_of("slots").tolist() == [0, 3, 4]
    assert train.answers == [(0, TAGS[0]), (1, None), (1, None), (None, ["O", "B-city"]), (None, TAGS[1])]
    assert train.source == f"{files['intent']} and {files['slots']}" and train.sources == [*map(str, files.values())]
    labels = [part.labels for part in data.task.tasks or ()]
    assert labels == [("book", "cancel"), ("O", "B-city", "I-city", "B-thing", "I-thing")]
    in_memory = pb.data.heads({"slots": SLOTS, "intent": INTENTS}, KINDS, labels={"slots": "tags"}, dev=files).train
    assert shared(in_memory).identity == train.identity
    parts = data.task.tasks or ()
    assert read_heads(files, parts, labels={"slots": "tags"}).identity == train.identity


def test_conll_file_is_a_table_of_tags(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("to O\noslo I-city\n\nfly O\nto O\nyork I-city\n", encoding="utf-8")
    tables = {"intent": INTENTS, "slots": tmp_path / "a.conll"}
    train = shared(pb.data.heads(tables, KINDS, dev=tables).train)
    assert train.answers == [(0, TAGS[0]), (1, None), (1, None), (None, ["O", "B-city"])]
    with pytest.raises(UserError, match="a CoNLL file has tags of words; received it for intent, classification"):
        pb.data.heads({"intent": tmp_path / "a.conll", "slots": SLOTS}, KINDS)


def test_same_tables_are_one_table() -> None:
    full = [row for row in ROWS if row.get("intent") and (row.get("slots") or "").strip()] * 2
    full += [{"text": "cancel it", "intent": "cancel", "slots": "O O"}]
    one = shared(pb.data.heads(full, KINDS, dev=full).train)
    # Texts that a table repeats are as many examples.
    for tables in ({"intent": full, "slots": full}, {"intent": full, "slots": [*full]}):
        both = shared(pb.data.heads(tables, KINDS, dev=full).train)
        assert both.rows is None and both.identity == one.identity and len(both) == 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"intent": INTENTS}, "each head must have a table; received those of intent; add one for slots, or a column"),
        ({"intent": "a.csv", "mood": "b.csv"}, "tables must be for the heads intent, slots; received mood"),
        ({"intent": INTENTS, "slots": [{"text": "a", "tags": "O"}]}, "must have spans; received none"),
    ],
)
def test_wrong_tables_are_refused(source: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        pb.data.heads(source, KINDS, labels={"slots": "tags"})


def test_texts_of_other_heads_are_refused() -> None:
    part = Examples(["a", "b"], None, np.array([0, 1], np.int32), ["0", "1"], "here")
    with pytest.raises(ValueError, match="the same texts; those of (one|two) differ"):
        SharedTexts({"one": part, "two": part}, ["0", "1", "2"], rows={"one": np.arange(2), "two": np.arange(1, 3)})
