"""A learning supernet with several tasks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tiny
import tiny_distillation
import tiny_finetuning
import toy_method

import pocketbert as pb
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.methods.efficientbert import EfficientBERT
from pocketbert.errors import UserError
from pocketbert.search.supernet_plan import SupernetDistiller
from pocketbert.search.supernet_tasks import SupernetTask, tasks_batches
from pocketbert.search.supernet_training import train_supernet
from pocketbert.training.config import RunConfig

SUPERNET = supernet_config(tiny.EFFICIENTBERT.replace(num_layers=1, intermediate_size=29, feedforward=None))
METHOD = EfficientBERT(steps=10, batch_size=8, learning_rate=4e-2, max_length=23)
LOW, HIGH = (
    TaskConfig(kind="classification", name=name, labels=("no", "yes"), dropout=0.0) for name in ("low", "high")
)
SCORE = TaskConfig(kind="regression", name="score", dropout=0.0)


@pytest.fixture(autouse=True)
def without_graphs() -> Iterator[None]:
    """Graphs of a few steps would take longer to trace than to run."""
    with cheap_tensorflow.eager():
        yield


def task(folder: Path, config: TaskConfig, answer: float, count: int = 21, width: int = 30) -> SupernetTask:
    """A task whose teacher gives every text the same answer: a class, or a score."""
    base = tiny_finetuning.write_model(folder / f"{config.name}-bare")
    size = {"hidden_size": width, "embedding_size": width, "head_size": width // tiny.BERT.num_attention_heads}
    teacher = pb.from_preset(
        tiny_distillation.TEACHER.replace(**size), task=(config,), tokenizer=pb.from_pretrained(base).tokenizer, seed=3
    )
    projection = next(iter(teacher.heads.values())).output_projection
    projection.kernel.assign(np.zeros(projection.kernel.shape))
    projection.bias.assign([answer] if config.kind == "regression" else [4 - 8 * answer, 8 * answer - 4])
    teacher.save_pretrained(folder / config.name)

    def examples(number: int, seed: int) -> Examples:
        plain = tiny_finetuning.examples(number, seed)
        kind = np.float32 if config.kind == "regression" else np.int32
        return dataclasses.replace(plain, labels=np.full(number, answer, kind))

    data = TaskData(task=config, train=examples(count, 0), dev=examples(5, 1))
    if config.kind == "regression":
        scores = examples(5, 1)
        data = dataclasses.replace(data, dev=dataclasses.replace(scores, labels=np.arange(5, dtype=np.float32)))
    return SupernetTask(data=data, teacher=folder / config.name)


def test_each_head_learns_from_its_teacher(tmp_path: Path) -> None:
    tasks = [task(tmp_path, LOW, 0, 37), task(tmp_path, HIGH, 1, 29), task(tmp_path, SCORE, 2.5)]
    result = train_supernet(SUPERNET, tasks, tmp_path / "run", method=METHOD, run=RunConfig(seed=4))
    model = pb.from_pretrained(tmp_path / "run" / "model")
    assert list(model.heads) == ["low", "high", "regression"]
    outputs = model(model.tokenizer(tiny_finetuning.examples(9, 5).texts, max_length=23))
    low, high = (outputs[f"{name}_logits"].numpy() for name in ("low", "high"))
    assert np.all(low[:, 0] > low[:, 1]) and np.all(high[:, 1] > high[:, 0])
    np.testing.assert_allclose(outputs["regression_logits"].numpy(), 2.5, atol=1.0)
    # The mean of the main metrics chooses the checkpoint; the teachers answer two of the tasks without error.
    metrics = result.metrics
    assert result.main_metric == "mean" and metrics["low/accuracy"] == metrics["high/accuracy"] == 1
    teachers = json.loads((tmp_path / "run" / "teacher.json").read_text("utf-8"))
    assert teachers["low/accuracy"] == teachers["high/accuracy"] == 1


# Steps keep the bits of frozen weights in test_supernet_step.py.
@pytest.mark.nightly
def test_frozen_layers_keep_their_bits(tmp_path: Path) -> None:
    tasks = [task(tmp_path, LOW, 0, 13), task(tmp_path, HIGH, 1, 20)]
    supernet = pb.from_preset(SUPERNET, seed=2)
    supernet.encoder.embeddings.trainable = False
    train_supernet(supernet, tasks, tmp_path / "run", method=dataclasses.replace(METHOD, steps=3))
    trained = pb.from_pretrained(tmp_path / "run" / "model").weights_by_path()
    changed = {
        path
        for path, before in supernet.weights_by_path().items()
        if not np.array_equal(before.numpy(), trained[path].numpy())
    }
    assert changed and not any(path.startswith("encoder.embeddings.") for path in changed)


@pytest.mark.nightly
def test_interrupted_runs_resume_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [task(tmp_path, LOW, 0, 13), task(tmp_path, HIGH, 1, 20)]
    arguments: dict[str, Any] = {
        "method": dataclasses.replace(METHOD, steps=6),
        "run": RunConfig(seed=5, checkpoint_seconds=0),
    }
    train_supernet(SUPERNET, tasks, tmp_path / "whole", **arguments)
    update, left = SupernetDistiller.update, 4

    def interrupted(self: Any, batch: Any) -> Any:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return update(self, batch)

    monkeypatch.setattr(SupernetDistiller, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_supernet(SUPERNET, tasks, tmp_path / "resumed", **arguments)
    monkeypatch.setattr(SupernetDistiller, "update", update)
    train_supernet(SUPERNET, tasks, tmp_path / "resumed", **arguments)
    for path in ("model/model.safetensors", "adapters.safetensors"):
        assert (tmp_path / "whole" / path).read_bytes() == (tmp_path / "resumed" / path).read_bytes(), path


def test_batches_have_one_task(tmp_path: Path) -> None:
    random, parts = np.random.default_rng(8), []
    for number, count in enumerate((19, 7, 26)):
        lengths = random.integers(3, 23, count)
        # The first token of an example names its task and its number.
        words = np.concatenate([np.full(length, 100 * number + index) for index, length in enumerate(lengths)])
        parts.append(
            EncodedExamples(
                word_ids=words.astype(np.int32),
                type_ids=np.zeros(len(words), np.int32),
                offsets=np.concatenate([[0], np.cumsum(lengths)]),
                labels=None,
                max_length=23,
                pad_token_id=999,
            )
        )
    batches = tasks_batches(toy_method.label_stage(batch_size=5), parts, seed=3)
    assert batches.count == 52
    orders = []
    for epoch in (0, 1):
        plan, seen, order = batches.rows(epoch), [], []
        for inputs, number in batches.elements(plan, epoch):
            first = inputs["input_word_ids"].numpy()[:, 0]
            assert set(first // 100) == {int(number)}
            seen += list(first)
            order.append(int(number))
        assert sorted(seen) == [*range(19), *range(100, 107), *range(200, 226)]
        orders.append(order)
    # Tasks are mixed, and differently in every epoch.
    assert orders[0] != sorted(orders[0]) and orders[0] != orders[1]


def test_unlike_tasks_are_refused(tmp_path: Path) -> None:
    low, high = task(tmp_path, LOW, 0), task(tmp_path, HIGH, 1, width=35)
    with pytest.raises(UserError, match="same hidden_size; the teacher of high has 35, that of low 30"):
        train_supernet(SUPERNET, [low, high], tmp_path / "run", method=METHOD)
    scores = [task(tmp_path, SCORE, 1.0), low]
    method = dataclasses.replace(METHOD, regression_target="labels")
    with pytest.raises(UserError, match="regression learns from labels in stage finetuning"):
        train_supernet(SUPERNET, scores, tmp_path / "run", method=method)
    with pytest.raises(UserError, match="tasks of one kind need names that differ"):
        train_supernet(SUPERNET, [low, low], tmp_path / "run", method=METHOD)
    assert not (tmp_path / "run").exists()
