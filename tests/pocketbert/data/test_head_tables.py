"""Tables with a column for each head; the expected words and tags are written out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.head_tables import read_heads
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.errors import UserError

KINDS = {"intent": "classification", "slots": "token_classification"}
TEXTS = ["fly to new york", "cancel it", "book a car, now"]
INTENTS = ["book", "cancel", "book"]
TAGS = [["O", "O", "B-city", "I-city"], ["O", "O"], ["O", "O", "B-thing", "O"]]
SPANS = [[{"start": 7, "end": 15, "label": "city"}], [], [[7, 10, "thing"]]]


def rows(slots: list[Any]) -> list[dict[str, Any]]:
    columns = zip(TEXTS, INTENTS, slots, strict=True)
    return [{"text": text, "intent": intent, "slots": slot} for text, intent, slot in columns]


def write(path: Path, content: list[dict[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
        return path
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*content[0]])
        writer.writeheader()
        writer.writerows({**row, "slots": " ".join(row["slots"])} for row in content)
    return path


def assert_read(data: Any, words: list[list[str]]) -> None:
    assert isinstance(data, SharedTexts) and data.texts == TEXTS and data.labelled
    assert data.parts["intent"].labels.tolist() == [0, 1, 0]  # type: ignore[union-attr]
    tagged: Any = data.parts["slots"]
    assert [
        [text[start:end] for start, end in offsets] for text, offsets in zip(TEXTS, tagged.words, strict=True)
    ] == words
    assert [dict(zip(of_text, tags, strict=True)) for of_text, tags in zip(words, tagged.tags, strict=True)] == [
        {"fly": "O", "to": "O", "new": "B-city", "york": "I-city"},
        {"cancel": "O", "it": "O"},
        {word: "B-thing" if word.startswith("car") else "O" for word in words[2]},
    ]


SPLIT = [text.split() for text in TEXTS]
# Spans are on words as a tokenizer splits them.
TOKENIZED = [*SPLIT[:2], ["book", "a", "car", ",", "now"]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_tags_of_words_are_read(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, rows(TAGS))
    data = pb.data.heads(path, KINDS, dev=path, weights={"slots": 2.0})
    assert_read(data.train, SPLIT)
    labels = ("O", "B-city", "I-city", "B-thing", "I-thing")
    assert data.task == TaskConfig(
        kind="several",
        tasks=(
            TaskConfig(kind="classification", name="intent", labels=("book", "cancel")),
            TaskConfig(kind="token_classification", name="slots", labels=labels, weight=2.0),
        ),
    )
    assert data.train.identity == data.dev.identity


def test_spans_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows(SPANS))
    assert_read(pb.data.heads(path, KINDS, dev=path).train, TOKENIZED)


@pytest.mark.parametrize(("slots", "words"), [(TAGS, SPLIT), (SPANS, TOKENIZED)], ids=["tags", "spans"])
def test_objects_in_memory_are_read(slots: list[Any], words: list[list[str]]) -> None:
    columns = {"text": TEXTS, "intent": INTENTS, "slots": slots}
    for source in (rows(slots), columns):
        assert_read(pb.data.heads(source, KINDS, dev=source).train, words)


def test_columns_may_have_other_names() -> None:
    source = {"words": TEXTS, "what": INTENTS, "tags": TAGS}
    names = {"intent": "what", "slots": "tags"}
    assert_read(pb.data.heads(source, KINDS, text="words", labels=names, dev=source).train, SPLIT)


def test_dev_split_keeps_the_heads_together() -> None:
    source = {"text": TEXTS * 5, "intent": INTENTS * 5, "slots": TAGS * 5}
    data = pb.data.heads(source, KINDS)
    assert len(data.dev) and not {*data.dev.texts} & {*data.train.texts}  # type: ignore[attr-defined]
    for split in (data.train, data.dev):
        assert isinstance(split, SharedTexts)
        for text, tags, label in zip(split.texts, split.parts["slots"].tags, split.parts["intent"].labels, strict=True):  # type: ignore[union-attr]
            row = TEXTS.index(text)
            assert tags == TAGS[row] and label == [0, 1, 0][row]


def test_known_labels_are_kept() -> None:
    parts = pb.data.heads(rows(TAGS), KINDS, dev=rows(TAGS)).task.tasks or ()
    one = read_heads([{"text": "go to york", "intent": "cancel", "slots": "O O I-city"}], parts)
    assert one.parts["intent"].labels.tolist() == [1]  # type: ignore[union-attr]
    assert one.parts["slots"].tags == [["O", "O", "B-city"]]  # type: ignore[union-attr]
    with pytest.raises(UserError, match="the type must be one of city, thing; received 'person'"):
        read_heads([{"text": "go ada", "intent": "book", "slots": "O B-person"}], parts)


def test_bad_rows_are_left_out_for_all_heads() -> None:
    source = rows(TAGS) + [
        {"text": "one word", "intent": "book", "slots": "O"},
        {"text": "a city", "intent": "", "slots": ""},
        {"text": "the end", "intent": "cancel", "slots": "O O"},
    ]
    data = pb.data.heads(source, KINDS, dev=rows(TAGS), skip_bad_rows=True).train
    assert isinstance(data, SharedTexts) and data.texts == [*TEXTS, "the end"] and data.skipped_rows == 2
    assert data.parts["intent"].labels.tolist() == [0, 1, 0, 1]  # type: ignore[union-attr]
    assert len(data.parts["slots"].tags) == 4  # type: ignore[arg-type, union-attr]
    assert data.select([3, 0]).parts["slots"].tags == [["O", "O"], TAGS[0]]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ("O O", "row 0: column 'slots': there must be a tag for each of the 4 words; received 2"),
        ("O O B-city purple", "a tag must be O, or B-, .*received 'purple'"),
        ("O", "there must be a tag for each of the 4 words; received 1"),
        ([[7, 99, "city"]], "must lie inside its text"),
        (["O", "O", "E-city", "B-city"], "the tags must follow IOB1, IOB2 or BIOES"),
    ],
)
def test_bad_tags_are_one_message(slots: Any, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as caught:
        pb.data.heads(rows([slots, *TAGS[1:]]), KINDS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"kinds": {"intent": "span", "slots": "token_classification"}},
            "the kind of a head must be one of .*received span",
        ),
        ({"labels": {"mood": "x"}}, "labels must be for the heads intent, slots; received mood"),
        ({"weights": {"mood": 1.0}}, "weights must be for the heads intent, slots; received mood"),
        ({"weights": {"intent": 0.0, "slots": 0.0}}, "a weight above 0"),
        ({"kinds": {"intent": "classification"}}, "at least two; received intent"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        pb.data.heads(rows(TAGS), **{"kinds": KINDS, "dev": rows(TAGS), **options})


def test_heads_must_have_the_same_texts() -> None:
    data = pb.data.heads(rows(TAGS), KINDS, dev=rows(TAGS)).train
    assert isinstance(data, SharedTexts)
    other = {**data.parts, "intent": data.parts["intent"].select(np.array([1, 0, 2]))}
    with pytest.raises(
        ValueError, match="the same texts; those of intent differ|the same texts; those of slots differ"
    ):
        SharedTexts(other, data.ids)
