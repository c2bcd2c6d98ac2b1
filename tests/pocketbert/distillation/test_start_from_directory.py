"""A student from a directory: its weights are kept, and it may be untrained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cheap_tensorflow
import numpy as np
import pytest
import tiny_distillation
from toy_method import ToyMethod

import pocketbert as pb
from pocketbert.distillation import run
from pocketbert.distillation.planning import plan_distillation
from pocketbert.training import trainer
from pocketbert.training.config import RunConfig

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")


class Copied(Exception):
    """The method was asked to copy."""


class Begun(Exception):
    """The first stage begins."""


class CopyingMethod(ToyMethod):
    def initialize(self, teacher: Any, student: Any) -> None:
        raise Copied


def begin(*arguments: Any) -> None:
    raise Begun


def heads_of(model: pb.Model) -> dict[str, np.ndarray]:
    return {path: item.numpy() for path, item in model.weights_by_path().items() if path.startswith("heads.")}


def test_directory_student_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    tokenizer = pb.from_pretrained(teacher).tokenizer
    pb.from_preset(tiny_distillation.STUDENT, tokenizer=tokenizer).save_pretrained(tmp_path / "student")
    data = tiny_distillation.task_data(teacher)
    monkeypatch.setattr(trainer.Trainer, "_train_stage", begin)
    for student, expected in ((tiny_distillation.STUDENT, Copied), (tmp_path / "student", Begun)):
        with pytest.raises(expected):
            run.distill(student, data, tmp_path / expected.__name__, teacher=teacher, method=CopyingMethod())


@pytest.mark.parametrize(
    ("student", "rates"),
    [
        ("architecture", (3e-4, 1e-4)),
        ("untrained directory", (3e-4, 1e-4)),
        ("trained directory", (5e-5, 3e-5)),
        ("teacher layers", (5e-5, 3e-5)),
    ],
)
def test_tinybert_rates_depend_on_the_weights(student: str, rates: tuple[float, float], tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    model = pb.from_preset(tiny_distillation.STUDENT, seed=3)
    if student == "trained directory":
        # A single bias, by as little as a step.
        model.weights_by_path()["encoder.layers.0.attention.key.bias"][1].assign(1e-6)
    model.save_pretrained(tmp_path / "student")
    arguments: Any = {
        "architecture": tiny_distillation.STUDENT,
        "teacher layers": pb.TeacherLayers((2,)),
    }.get(student, tmp_path / "student")
    data, run_options = tiny_distillation.task_data(teacher), RunConfig()
    plan = plan_distillation(arguments, data, teacher=teacher, method=pb.TinyBERT(max_length=19), run=run_options)
    assert tuple(stage.optimizer.learning_rate for stage in plan.stages) == rates
    without = pb.TinyBERT(max_length=19, without=("general_distillation",))
    if student in ("architecture", "untrained directory"):
        plan = plan_distillation(arguments, data, teacher=teacher, method=without, run=run_options)
        # The paper's ablation has the paper's rates.
        assert tuple(stage.optimizer.learning_rate for stage in plan.stages) == (5e-5, 3e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("pooling", [None, "mean"])
@pytest.mark.parametrize("start", ["teacher layers", "directory"])
def test_student_keeps_its_heads_pooling(start: str, pooling: Any, tmp_path: Path) -> None:
    task = dataclasses.replace(tiny_distillation.TASK, pooling=pooling)
    config = tiny_distillation.TEACHER.replace(pooler="none")
    bare = pb.from_pretrained(tiny_distillation.write_teacher(tmp_path / "first"))
    teacher = pb.from_preset(config, task=task, tokenizer=bare.tokenizer, seed=5)
    data = tiny_distillation.task_data(tmp_path / "first")
    student: Any = pb.TeacherLayers([2])
    if start == "directory":
        student = pb.from_preset(config.replace(num_layers=1), task=task, tokenizer=bare.tokenizer, seed=6)
    method = pb.TinyBERT(
        max_length=19, without=("embedding", "transformer"), prediction_epochs=1, prediction_learning_rate=1e-9
    )
    with cheap_tensorflow.eager():
        trained = pb.distill(student, data, tmp_path / "run", teacher=teacher, method=method).model
    assert trained.task is not None and trained.task.pooling == pooling
    expected = teacher if start == "teacher layers" else student
    assert len(heads_of(trained)) == (2 if pooling else 4)
    for path, variable in heads_of(trained).items():
        # A rate of 1e-9 moves a weight by less than 1e-6 in 3 steps.
        np.testing.assert_allclose(variable, heads_of(expected)[path], atol=1e-6, err_msg=path)
