"""Multi-label classification. Oracles: scikit-learn's log loss and F1, transformers' config, counts by hand."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import tiny
import transformers
from sklearn.metrics import accuracy_score, f1_score

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.tables import read_table
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import MULTI_LABEL_METRICS, compute
from pocketbert.tasks.registry import text_task

NAMES = ("short", "funny", "sad", "true")
TASK = TaskConfig(kind="multi_label", labels=NAMES, dropout=0.0)
RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.normal(size=[23, 4]).astype(np.float32)
LABELS = (RANDOM.random([23, 4]) < [0.7, 0.4, 0.2, 0.0]).astype(np.int32)


def test_directory_says_multi_label_as_transformers_does(tmp_path):
    model = pb.from_preset(tiny.BERT.replace(num_layers=1), [TASK], seed=1)
    model.save_pretrained(tmp_path / "model")
    reference_config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert reference_config.problem_type == "multi_label_classification"
    assert reference_config.id2label == dict(enumerate(NAMES))
    assert pb.from_pretrained(tmp_path / "model").tasks == (TASK,)


def test_directory_of_transformers_is_read(tmp_path):
    task = TaskConfig(kind="classification", labels=NAMES)
    pb.from_preset(tiny.BERT.replace(num_layers=1), [task], seed=1).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problem_type": "multi_label_classification"}))
    task = pb.from_pretrained(tmp_path / "model").task
    assert task and (task.kind, task.labels) == ("multi_label", NAMES)


def test_three_sentence_heads_on_one_encoder_keep_their_weights(tmp_path):
    tasks = [
        TaskConfig(kind="regression"),
        TASK,
        TaskConfig(kind="classification", labels=("no", "yes")),
    ]
    model = pb.from_preset(tiny.BERT.replace(num_layers=1), tasks, seed=1)
    assert len(model.named_variables()) == len(model.weights_by_path())
    model.save_pretrained(tmp_path / "model")
    again = pb.from_pretrained(tmp_path / "model")
    assert again.tasks == tuple(tasks)
    for path, variable in model.weights_by_path().items():
        np.testing.assert_array_equal(again.weights_by_path()[path], variable, err_msg=path)


@pytest.mark.parametrize("labels", [(), ("a", "A")])
def test_labels_are_needed_and_differ(labels):
    with pytest.raises(UserError, match="multi_label needs at least one label|must differ in more than case"):
        TaskConfig(kind="multi_label", labels=labels)


def test_metrics_are_those_of_scikit_learn():
    predictions = text_task(TASK).decide(LOGITS)
    np.testing.assert_array_equal(predictions, LOGITS >= 0)
    assert compute(MULTI_LABEL_METRICS, LABELS, predictions) == {
        "micro_f1": pytest.approx(f1_score(LABELS, predictions, average="micro")),
        "macro_f1": pytest.approx(f1_score(LABELS, predictions, average="macro", zero_division=0)),
        "subset_accuracy": pytest.approx(accuracy_score(LABELS, predictions)),
    }
    assert text_task(TASK).default_metrics == (MULTI_LABEL_METRICS, "micro_f1")


def test_one_label_is_scored_as_a_class_of_its_own():
    # Right: 1 of 2 found, 1 of 2 there. scikit-learn would also count the two examples without it.
    labels, predictions = np.array([[1], [1], [0], [0], [0]]), np.array([[1], [0], [1], [0], [0]])
    scores = compute(MULTI_LABEL_METRICS, labels, predictions)
    assert scores == {"micro_f1": 0.5, "macro_f1": 0.5, "subset_accuracy": 0.6}


def test_plain_metrics_refuse_rows_of_labels():
    with pytest.raises(ValueError, match=r"must be \[N\] with N > 0; received \(23, 4\)"):
        compute(["accuracy"], LABELS, LABELS)


def test_baseline_has_the_best_micro_f1_of_all_constant_answers():
    scores = text_task(TASK).score(LABELS, text_task(TASK).decide(LOGITS))
    constants = itertools.product([0, 1], repeat=4)
    best = max(f1_score(LABELS, np.tile(row, [23, 1]), average="micro", zero_division=0) for row in constants)
    assert scores.baseline and scores.baseline["metrics"]["micro_f1"] == pytest.approx(best)
    assert scores.baseline["answer"] == "always 'short' and 'funny'"
    column = f1_score(LABELS[:, 1], LOGITS[:, 1] >= 0)
    assert scores.classes and scores.classes["by_label"]["funny"]["f1"] == pytest.approx(column)
    assert scores.classes["by_label"]["true"]["support"] == 0


def test_baseline_without_any_label_is_none():
    scores = text_task(TASK).score(0 * LABELS, LABELS, ("micro_f1",))
    assert scores.baseline == {"answer": "never a label", "metrics": {"micro_f1": 0.0}}


TABLES = {
    "a.csv": ("text,label\nfirst,funny|sad\nsecond,\nthird, sad | short \n", "|"),
    "b.tsv": ("text\tlabel\nfirst\tfunny;sad\nsecond\t\nthird\tshort;sad;short\n", ";"),
    "c.jsonl": (
        '{"text": "first", "label": ["sad", "funny"]}\n{"text": "second", "label": []}\n'
        '{"text": "third", "label": "short|sad"}\n',
        "|",
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_hold_any_number_of_labels(name, tmp_path):
    content, separator = TABLES[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    options = {"text_column": "text", "label_column": "label", "kind": "multi_label", "label_separator": separator}
    examples, labels = read_table(tmp_path / name, **options)
    assert labels == ("funny", "sad", "short")
    assert examples.labels is not None and examples.labels.dtype == np.int32
    assert examples.labels.tolist() == [[1, 1, 0], [0, 0, 0], [0, 1, 1]]
    examples, labels = read_table(tmp_path / name, **options, labels=NAMES)
    assert labels == NAMES and examples.labels.tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("cell", "options", "message"),
    [
        ("sad|odd", {"labels": NAMES}, "line 3: labels must be from short, funny, sad, true; received 'odd'"),
        ("sad", {"label_separator": " "}, "label_separator= must not be blank"),
        (
            "2|0",
            {"labels": NAMES, "numbered": False},
            "must have the labels short, funny, sad, true; received whole numbers",
        ),
    ],
)
def test_labels_that_cannot_be_read_are_refused(cell, options, message, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,label\nfirst,sad\nsecond,{cell}\n", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_table(path, text_column="text", label_column="label", kind="multi_label", **options)


@pytest.mark.parametrize("cell", ["[" * 5000, "[" + "9" * 5000 + "]", "[not JSON"])
def test_text_that_looks_like_a_list_is_a_label(cell, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "first", "label": cell}) + "\n", encoding="utf-8")
    _, labels = read_table(path, text_column="text", label_column="label", kind="multi_label")
    assert labels == (cell,)


def test_column_without_any_label_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfirst,\n", encoding="utf-8")
    with pytest.raises(UserError, match="column 'label' must have at least one label; received none"):
        read_table(path, text_column="text", label_column="label", kind="multi_label")
