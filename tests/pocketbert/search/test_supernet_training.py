"""Runs of a learning supernet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tiny
import tiny_distillation
import toy_method

import pocketbert as pb
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.search import supernet_plan
from pocketbert.search.supernet_step import draw_shapes
from pocketbert.search.supernet_training import train_supernet
from pocketbert.training.config import RunConfig
from pocketbert.training.stage import Epochs, OptimizerConfig, Steps

BASE = tiny.EFFICIENTBERT.replace(num_layers=2, intermediate_size=29, feedforward=None)
SUPERNET, SHALLOW = supernet_config(BASE), supernet_config(BASE.replace(num_layers=1))
METHOD = toy_method.toy(duration=Steps(2))


@pytest.fixture(autouse=True)
def without_graphs() -> Iterator[None]:
    """Graphs of a few steps would take longer to trace than to run."""
    with cheap_tensorflow.eager():
        yield


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("models") / "teacher")


def weights(folder: Path) -> dict[str, np.ndarray]:
    return {path: weight.numpy() for path, weight in pb.from_pretrained(folder / "model").weights_by_path().items()}


def test_interrupted_runs_resume_exactly(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, run = tiny_distillation.task_data(teacher), RunConfig(seed=5, checkpoint_seconds=0)
    arguments: dict[str, Any] = {"teacher": teacher, "method": METHOD, "run": run}
    drawn: list[Any] = []

    def noting(config: Any, seed: int, step: int) -> Any:
        drawn.append((seed, step, draw_shapes(config, seed, step)))
        return drawn[-1][2]

    monkeypatch.setattr(supernet_plan, "draw_shapes", noting)
    whole = train_supernet(SHALLOW, data, tmp_path / "whole", **arguments)
    # The second stage carries the moments and counts on.
    assert [(seed, step) for seed, step, _ in drawn] == [(5, step) for step in range(4)]
    assert whole.main_metric == "accuracy" and whole.steps == 4
    update = supernet_plan.SupernetDistiller.update
    left = 3

    def interrupted(self: Any, batch: Any) -> Any:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return update(self, batch)

    monkeypatch.setattr(supernet_plan.SupernetDistiller, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_supernet(SHALLOW, data, tmp_path / "resumed", **arguments)
    monkeypatch.setattr(supernet_plan.SupernetDistiller, "update", update)
    train_supernet(SHALLOW, data, tmp_path / "resumed", **arguments)
    assert drawn[4:] == drawn[:4]
    for path in ("model/model.safetensors", "stages/hidden/model/model.safetensors", "adapters.safetensors"):
        assert (tmp_path / "whole" / path).read_bytes() == (tmp_path / "resumed" / path).read_bytes(), path
    assert json.loads((tmp_path / "whole" / "run.json").read_text("utf-8"))["learning_supernet"] is True


# Of a step in test_supernet_step.py.
@pytest.mark.nightly
def test_unreached_weights_keep_their_bits(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supernet_plan, "draw_shapes", lambda *arguments: ((2, 3), (1, 4)))
    pb.from_preset(SUPERNET, tokenizer=pb.from_pretrained(teacher).tokenizer, seed=3).save_pretrained(
        tmp_path / "supernet" / "model"
    )
    data, method = tiny_distillation.task_data(teacher), toy_method.toy("hidden", duration=Steps(2))
    train_supernet(tmp_path / "supernet" / "model", data, tmp_path / "run", teacher=teacher, method=method)
    before, after = weights(tmp_path / "supernet"), weights(tmp_path / "run")
    for layer, (stacks, width) in enumerate(((2, 9), (1, 7))):
        for number in range(4):
            kernel = f"encoder.layers.{layer}.feed_forwards.{number}.intermediate.kernel"
            changed = np.any(after[kernel] != before[kernel], axis=0)
            assert changed.tolist() == [number < stacks and column < width for column in range(29)], kernel
    # A part of the trained supernet starts a student.
    student = SUPERNET.replace(
        feedforward=FeedForwardConfig(expressions=("linear2_3(gelu(linear2_3(x)))", "linear1_4(gelu(linear1_4(x)))"))
    )
    start = SupernetSlices(tmp_path / "run" / "model", student)
    plan = plan_distillation(start, data, teacher=teacher, method=method, run=RunConfig())
    assert plan.start.start == "supernet"


def test_impossible_runs_are_refused(teacher: Path, tmp_path: Path) -> None:
    data = tiny_distillation.task_data(teacher)
    lamb = OptimizerConfig(learning_rate=1e-3, algorithm="lamb")
    method = toy_method.toy("hidden", optimizer=lamb, micro_batches=2, duration=Epochs(1))
    arguments: dict[str, Any] = {"teacher": teacher, "run": RunConfig(distribution="mirrored", precision="float16")}
    with pytest.raises(UserError) as refusal:
        train_supernet(SUPERNET, data, tmp_path / "run", method=method, **arguments)
    refused = ("on one device; received distribution=mirrored", "must use adamw; received lamb", "one micro-batch")
    for part in (*refused, "it has no loss scaling; received precision=float16"):
        assert part in str(refusal.value)
    for run in (RunConfig(reject=0.9), RunConfig(decision_thresholds=True)):
        with pytest.raises(UserError, match="it chooses no thresholds; received (reject|decision_thresholds)"):
            train_supernet(SUPERNET, data, tmp_path / "run", teacher=teacher, method=METHOD, run=run)
    with pytest.raises(UserError, match="a supernet needs feed-forward expressions"):
        train_supernet(tiny_distillation.STUDENT, data, tmp_path / "run", teacher=teacher, method=METHOD)
    assert not (tmp_path / "run").exists()
