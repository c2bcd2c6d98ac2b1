"""Class weights of several heads. Oracles: Keras' and TensorFlow's weighted losses, and scikit-learn's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_heads
from sklearn.utils.class_weight import compute_class_weight

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.cli import main
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.parts import packed_labels
from pocketbert.tasks.registry import get_task
from pocketbert.training.class_weights import class_weights_by_head
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage

TASK = TaskConfig(
    kind="several",
    tasks=(
        TaskConfig(kind="token_classification", name="slots", labels=("O", "B-X", "I-X"), weight=2.0),
        TaskConfig(kind="classification", name="mood", labels=("low", "mid, really", "a:b"), weight=0.5),
        TaskConfig(kind="multi_label", name="topics", labels=("x", "y")),
        TaskConfig(kind="regression", name="stars", weight=3.0),
    ),
)
WEIGHTS = {
    "slots": np.array([0.5, 4.0, 7.0], np.float32),
    "mood": np.array([3.0, 0.25, 1.5], np.float32),
    "topics": np.array([6.0, 0.75], np.float32),
}
NONE = np.float32(np.nan)
LABELS = {
    "slots": np.array([[-1, 0, 2, -1, 1, -1, -1], [-1] * 7, [-1, 1, 0, -1, -1, -1, -1], [-1] * 7], np.int32),
    "mood": np.array([NONE, 0, 1, 2], np.float32),
    "topics": np.array([[1, 0], [NONE, NONE], [1, 1], [0, 1]], np.float32),
    "stars": np.array([0.25, -1.5, NONE, 3.0], np.float32),
}


@pytest.mark.parametrize("names", [("slots", "mood", "topics"), ("mood",)])
def test_loss_is_the_sum_of_kerass_weighted_losses(names: tuple[str, ...]) -> None:
    random = np.random.default_rng(7)
    # A batch is narrower than the encoded labels.
    logits = [random.normal(size=shape).astype(np.float32) for shape in ((4, 5, 3), (4, 3), (4, 2), (4,))]
    weights = {name: WEIGHTS[name] if name in names else np.ones_like(WEIGHTS[name]) for name in WEIGHTS}
    stage = finetuning_stage(FinetuneConfig(learning_rate=1e-3), TASK)
    batch = {"labels": tf.constant(packed_labels(get_task(TASK), LABELS)), "input_mask": tf.ones([4, 5], tf.int32)}
    objective = Finetuning(class_weights={name: WEIGHTS[name] for name in names})
    outputs = [tf.constant(values) for values in logits]
    received = float(objective.loss(stage, {}, {"logits": outputs}, {}, batch)["labels"])
    keras = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    tags = LABELS["slots"][:, :5]
    words, moods = tags[tags >= 0], LABELS["mood"][1:].astype(int)
    topics = LABELS["topics"][[0, 2, 3]]
    binary = tf.nn.weighted_cross_entropy_with_logits(topics, logits[2][[0, 2, 3]], weights["topics"])
    stars = [0, 1, 3]
    expected = 2 * float(keras(words, logits[0][tags >= 0], sample_weight=weights["slots"][words]))
    expected += 0.5 * float(keras(moods, logits[1][1:], sample_weight=weights["mood"][moods]))
    expected += float(tf.reduce_mean(binary)) + 3 * float(np.mean((logits[3][stars] - LABELS["stars"][stars]) ** 2))
    # float32 sums of some terms.
    assert received == pytest.approx(expected, rel=1e-5)


def shared(count: int = 41) -> Any:
    """Texts with a mood; each third has no tags, and topics are rare."""
    table = tiny_heads.table(count, 3)
    table["slots"] = [tags if row % 3 else "" for row, tags in enumerate(table["slots"])]
    table["topics"] = [["x", "y"] if row % 7 == 0 else ["y"] if row % 2 else [] for row in range(count)]
    table["mood"] = ["high" if row % 5 == 0 else "low" for row in range(count)]
    return pb.data.heads(table, {**tiny_heads.KINDS, "topics": "multi_label"}, dev=table)


def test_balanced_weights_are_scikit_learns() -> None:
    data = shared()
    weights = class_weights_by_head("balanced", data.task, data.train)
    assert weights is not None and [*weights] == ["mood", "slots", "topics"]
    moods = ["high" if row % 5 == 0 else "low" for row in range(41)]
    expected = compute_class_weight("balanced", classes=np.array(["high", "low"]), y=moods)
    np.testing.assert_allclose(weights["mood"], expected, rtol=1e-6)
    # Those of the texts that have tags.
    rows = tiny_heads.table(41, 3)["slots"]
    tags = [tag for row in range(41) if row % 3 for tag in rows[row]]
    labels = next(part.labels for part in data.task.tasks if part.name == "slots")
    expected = compute_class_weight("balanced", classes=np.array(sorted({*tags})), y=tags)
    np.testing.assert_allclose(weights["slots"][[labels.index(tag) for tag in sorted({*tags})]], expected, rtol=1e-6)
    # PyTorch's `pos_weight`: negatives per positive.
    counts = np.array([6, 6 + sum(row % 2 for row in range(41) if row % 7)])
    np.testing.assert_allclose(weights["topics"], (41 - counts) / counts, rtol=1e-6)
    some = class_weights_by_head("slots=balanced,mood:low=3", data.task, data.train)
    assert some is not None and [*some] == ["slots", "mood"] and some["mood"].tolist() == [1.0, 3.0]
    assert np.array_equal(some["slots"], weights["slots"])
    assert class_weights_by_head("none", data.task, data.train) is None


def test_labels_with_marks() -> None:
    weights = class_weights_by_head('"mood:mid, really=2.5",mood:a:b=0.5', TASK, None)
    assert weights is not None and weights["mood"].tolist() == [1.0, 2.5, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("low=3", "must be balanced, HEAD=balanced, .* of the heads slots, mood, topics; received 'low'"),
        ("stars=balanced", "of the heads slots, mood, topics; received 'stars'"),
        ("mood=3", "HEAD:LABEL=WEIGHT for each label, .* received 'mood'"),
        ("mood:low=balanced", "received 'mood:low'"),
        ("mood=balanced,mood:low=3", "received 'mood:low'"),
        ("mood:low=3,mood=balanced", "received 'mood'"),
        ("topics:x=2,topics:z=3", "head topics: class_weights must name labels of the task, 'x', 'y'; received 'z'"),
    ],
)
def test_wrong_weights_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        class_weights_by_head(text, TASK, None)


def test_heads_without_classes_are_refused() -> None:
    scores = tuple(TaskConfig(kind="regression", name=name) for name in ("stars", "price"))
    with pytest.raises(
        UserError, match=r"needs a head with classes; received balanced for stars \(regression\), price"
    ):
        class_weights_by_head("balanced", TaskConfig(kind="several", tasks=scores), None)


def test_command_resumes_only_with_the_same_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, train = tiny_finetuning.write_model(tmp_path / "model"), tmp_path / "train.jsonl"
    columns = tiny_heads.table(40, 2)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    command = ["finetune", f"--model={model}", f"--train-file={train}", f"--output={tmp_path / 'run'}"]
    command += ["--heads=mood:classification,slots:token_classification", "--max-steps=2", "--max-length=23"]
    weights = "mood:high=3,slots=balanced"
    tf.config.run_functions_eagerly(True)
    try:
        assert main([*command, f"--class-weights={weights}"]) == 0, capsys.readouterr().err
    finally:
        tf.config.run_functions_eagerly(False)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["class_weights"] == weights
    assert main([*command, "--class-weights=balanced"]) == 2
    assert f"other options: class_weights='{weights}', received 'balanced'" in capsys.readouterr().err
