"""The teacher's logits follow the labels of the data: by name, or as --labels gives the order of placeholders."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.label_order import in_label_order
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.run import distill
from pocketbert.errors import UserError
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import make_model

MNLI = ("entailment", "neutral", "contradiction")
# Runs of a few steps: graphs would take longer to trace than to run.
pytestmark = pytest.mark.usefixtures("eager")
METHOD = pb.TinyBERT(max_length=19, intermediate_epochs=1, prediction_epochs=1)


def teacher_with(folder: Path, labels: tuple[str, ...]) -> Path:
    """A teacher whose logits have these names and differ clearly."""
    bare = tiny_finetuning.write_model(folder / "bare")
    task = TaskConfig(kind="classification", labels=labels, dropout=0.0)
    tokenizer = pb.from_pretrained(bare).tokenizer
    model = pb.from_preset(tiny_distillation.TEACHER, task=task, tokenizer=tokenizer, seed=12)
    model.save_pretrained(folder / "teacher")
    return folder / "teacher"


def three_classes(labels: tuple[str, ...] = MNLI) -> TaskData:
    def part(count: int, seed: int) -> object:
        plain = tiny_finetuning.examples(count, seed)
        return dataclasses.replace(plain, labels=(np.arange(count) * 2 % 3).astype(np.int32))

    task = TaskConfig(kind="classification", name="mnli", labels=labels)
    return TaskData(task=task, train=part(20, 0), dev=part(13, 1))  # type: ignore[arg-type]


def planned(teacher: Path, data: TaskData) -> DistillationPlan:
    return plan_distillation(TeacherLayers((2,)), data, teacher=teacher, method=METHOD, run=RunConfig())


def logits(model: pb.Model) -> np.ndarray:
    inputs = model.tokenizer(tiny_finetuning.examples(7, 3).texts, max_length=19)
    (scores,) = model.features(inputs, ["logits"])["logits"]
    return scores.numpy()


def test_upper_case_names_permute_the_logits(tmp_path: Path) -> None:
    teacher = teacher_with(tmp_path, ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"))
    plan = planned(teacher, three_classes())
    raw, loaded = pb.from_pretrained(teacher), plan.load_teacher()
    # Not its own inverse.
    np.testing.assert_array_equal(logits(loaded), logits(raw)[:, [1, 2, 0]])
    assert loaded.task is not None and loaded.task.labels == MNLI
    # The teacher's metric: its best class in the order of the data.
    dev = plan.data.given.dev
    inputs = raw.tokenizer(dev.texts, max_length=19)
    answers = raw(inputs)["logits"].numpy()[:, [1, 2, 0]].argmax(axis=1)
    assert plan.measure_teacher(loaded)["accuracy"] == pytest.approx(np.mean(answers == dev.labels))


@pytest.mark.nightly
def test_teacher_of_a_run_has_the_permuted_logits(tmp_path: Path) -> None:
    teacher = teacher_with(tmp_path, ("CONTRADICTION", "ENTAILMENT", "NEUTRAL"))
    raw, dev = pb.from_pretrained(teacher), three_classes().dev
    answers = raw(raw.tokenizer(dev.texts, max_length=19))["logits"].numpy()[:, [1, 2, 0]].argmax(axis=1)
    student = distill(TeacherLayers((2,)), three_classes(), tmp_path / "run", teacher=teacher, method=METHOD)
    assert student.teacher_metrics == {"accuracy": pytest.approx(np.mean(answers == dev.labels))}


def test_student_copies_the_permuted_head(tmp_path: Path) -> None:

    teacher = teacher_with(tmp_path, ("NEUTRAL", "ENTAILMENT", "CONTRADICTION"))
    plan = planned(teacher, three_classes())
    student = plan.with_teacher_layers(make_model(plan.start, plan.tasks, plan.tokenizer))
    kernels = [
        model.heads["classification"].output_projection.kernel.numpy() for model in (student, plan.load_teacher())
    ]
    np.testing.assert_array_equal(*kernels)


def test_labels_order_placeholders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = teacher_with(tmp_path, ("LABEL_0", "LABEL_1", "LABEL_2"))
    plan = planned(teacher, three_classes())
    line = (
        "the teacher's labels LABEL_0, LABEL_1, LABEL_2 are placeholders; its logits are read as entailment, neutral,"
    )
    assert f"{line} contradiction, in this order; pass label_names= for another order" in capsys.readouterr().err
    before = plan.measure_teacher(plan.load_teacher())["accuracy"]
    # The remedy: the same examples with other numbers.
    data = three_classes()
    moved = in_label_order(data, ("Contradiction", "entailment", "neutral"))
    assert moved.task.labels == ("contradiction", "entailment", "neutral")
    for old, new in ((data.train, moved.train), (data.dev, moved.dev)):
        names = [[value.task.labels[label] for label in part.labels] for value, part in ((data, old), (moved, new))]  # type: ignore[attr-defined]
        assert names[0] == names[1]
    plan = planned(teacher, moved)
    raw, dev = pb.from_pretrained(teacher), moved.dev
    answers = raw(raw.tokenizer(dev.texts, max_length=19))["logits"].numpy().argmax(axis=1)  # type: ignore[attr-defined]
    accuracy = plan.measure_teacher(plan.load_teacher())["accuracy"]
    assert accuracy == pytest.approx(np.mean(answers == dev.labels))  # type: ignore[attr-defined]
    assert accuracy != before


def test_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labels= must be the labels of mnli in any order, entailment,neutral,contra"):
        in_label_order(three_classes(), ("yes", "no", "maybe"))
    teacher = teacher_with(tmp_path, ("yes", "no", "maybe"))
    with pytest.raises(UserError, match="must have the labels of the task, entailment, .*; received yes, no, maybe"):
        planned(teacher, three_classes())


@pytest.mark.nightly
def test_labels_flag_orders_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = teacher_with(tmp_path, ("LABEL_0", "LABEL_1", "LABEL_2"))
    glue = Path(__file__).parents[2] / "fixtures" / "glue"
    command = ["distill", "--method=tinybert", f"--teacher={teacher}", "--teacher-layers=1", "--task=mnli"]
    command += [f"--data={glue}", "--labels=contradiction,neutral,entailment", "--max-length=16"]
    command += ["--intermediate-epochs=1", "--prediction-epochs=1", f"--output={tmp_path / 'run'}"]
    assert cli.main(command) == 0
    assert "its logits are read as contradiction, neutral, entailment, in this order" in capsys.readouterr().err
    student = pb.from_pretrained(tmp_path / "run" / "model").task
    assert student is not None and student.labels == ("contradiction", "neutral", "entailment")
