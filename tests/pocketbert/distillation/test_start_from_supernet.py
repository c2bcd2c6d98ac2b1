"""A student that starts from slices of a supernet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import tiny_distillation
from toy_method import ToyMethod

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.supernet import supernet_config
from pocketbert.commands.command_line import parse
from pocketbert.commands.distill import chosen_student
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation import run
from pocketbert.distillation.initialization import SupernetSlices
from pocketbert.distillation.planning import plan_distillation
from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert.training import trainer
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import make_model, plan_slices

# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
# As wide as the tiny teacher's vocabulary allows; one layer of three parts.
BASE = tiny.EFFICIENTBERT.replace(num_layers=1, feedforward=None)
STUDENT = BASE.replace(feedforward=FeedForwardConfig(expressions=("tanh(linear2_3(gelu(linear2_3(x))))",)))
OTHER = TaskConfig(kind="classification", name="other", labels=("low", "high"))


class Begun(Exception):
    """The first stage begins."""


class CopyingMethod(ToyMethod):
    def initialize(self, teacher: Any, student: Any) -> None:
        raise AssertionError("the weights come from the supernet")


def write_supernet(folder: Path, tasks: tuple[TaskConfig, ...] = (), **changes: Any) -> dict[str, np.ndarray]:
    """A supernet with random numbers everywhere; returns them by path."""
    model = pb.from_preset(supernet_config(BASE).replace(**changes), tasks, seed=4)
    random = np.random.default_rng(8)
    for variable in model.weights_by_path().values():
        variable.assign(random.normal(size=variable.shape) * 0.1)
    model.save_pretrained(folder)
    return {path: variable.numpy() for path, variable in model.weights_by_path().items()}


def weights(model: pb.Model) -> dict[str, np.ndarray]:
    return {path: variable.numpy() for path, variable in model.weights_by_path().items()}


def test_run_begins_with_the_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    supernet = write_supernet(tmp_path / "supernet", (tiny_distillation.TASK,))
    begun: list[Any] = []

    def begin(self: Any, *arguments: Any) -> None:
        begun.append(weights(self.model))
        raise Begun

    monkeypatch.setattr(trainer.Trainer, "_train_stage", begin)
    start = SupernetSlices(tmp_path / "supernet", STUDENT)
    data = tiny_distillation.task_data(teacher)
    with pytest.raises(Begun):
        run.distill(start, data, tmp_path / "run", teacher=teacher, method=CopyingMethod())
    (arrays,) = begun
    for stack in (0, 1):
        path = f"encoder.layers.0.feed_forwards.{stack}"
        np.testing.assert_array_equal(
            arrays[f"{path}.intermediate.kernel"], supernet[f"{path}.intermediate.kernel"][:, :13]
        )
        np.testing.assert_array_equal(arrays[f"{path}.intermediate.bias"], supernet[f"{path}.intermediate.bias"][:13])
        np.testing.assert_array_equal(arrays[f"{path}.output.kernel"], supernet[f"{path}.output.kernel"][:13])
    others = [path for path in arrays if "intermediate" not in path and not path.endswith("output.kernel")]
    for path in [*others, "heads.classification.output.kernel", "encoder.layers.0.attention.output.kernel"]:
        np.testing.assert_array_equal(arrays[path], supernet[path], err_msg=path)
    assert "encoder.layers.0.feed_forwards.2.norm.gamma" not in arrays


def test_record_has_the_supernets_digest(tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    records = []
    for name, changes in (("one", {}), ("same", {}), ("other", {"layer_norm_eps": 1e-6})):
        write_supernet(tmp_path / name, **changes)
        start = SupernetSlices(tmp_path / name, STUDENT.replace(**changes))
        data = tiny_distillation.task_data(teacher)
        plan = plan_distillation(start, data, teacher=teacher, method=ToyMethod(), run=RunConfig())
        assert plan.spec.start == "supernet"
        records.append(plan.recorded())
    assert records[0] == records[1]
    assert records[0]["student_start"] == "supernet" and records[0]["student_sha256"] != records[2]["student_sha256"]


def test_multitask_supernet_gives_the_named_head(tmp_path: Path) -> None:
    named = TaskConfig(kind="classification", name="mine", labels=("low", "high"))
    supernet = write_supernet(tmp_path / "supernet", (OTHER, named))
    plan = plan_slices(tmp_path / "supernet", STUDENT)
    kernel = "heads.classification.output.kernel"
    arrays = weights(make_model(plan, (named,), None))
    np.testing.assert_array_equal(arrays[kernel], supernet["heads.mine.output.kernel"])
    unknown = TaskConfig(kind="classification", name="third", labels=("low", "high"))
    new = weights(make_model(plan, (unknown,), None, seed=3))[kernel]
    assert not any(np.array_equal(new, supernet[f"heads.{name}.output.kernel"]) for name in ("mine", "other"))
    labelled = TaskConfig(kind="classification", name="mine", labels=("bad", "good"))
    assert not np.array_equal(
        weights(make_model(plan, (labelled,), None))[kernel], supernet["heads.mine.output.kernel"]
    )


def test_invalid_starts_are_refused(tmp_path: Path) -> None:
    write_supernet(tmp_path / "supernet")
    wrong: list[tuple[Any, EncoderConfig | str | Path, str]] = [
        (tmp_path / "supernet", STUDENT.replace(vocab_size=98), "vocab_size must equal the supernet's 97; received 98"),
        (tmp_path / "supernet", tmp_path / "supernet", "must be a preset or a config.json"),
        ("efficientbert_base", "efficientbert", "a supernet must be a model directory; received efficientbert_base"),
        (tmp_path / "absent", STUDENT, "a model must be a preset, a model directory or a config.json"),
    ]
    for supernet, student, message in wrong:
        with pytest.raises(UserError, match=message):
            plan_slices(supernet, student)


def test_command_refuses_two_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = ["distill", "--method=tinybert", f"--output={tmp_path / 'run'}", f"--text={tmp_path}", "--supernet=a"]
    assert cli.main([*line, "--student=efficientbert", "--teacher-layers=1,2"]) == 2
    assert "a student starts from --supernet or --teacher-layers; received both" in capsys.readouterr().err
    assert cli.main(line) == 2
    assert "--student or --teacher-layers is required" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_flags_choose_the_slices() -> None:
    options = parse("distill", ["--method=tinybert", "--output=o", "--supernet=a", "--student=efficientbert"])
    assert chosen_student(options) == SupernetSlices("a", "efficientbert")
