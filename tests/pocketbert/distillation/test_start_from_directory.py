"""A student from a directory keeps its weights although the method copies the teacher's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_distillation
from toy_method import ToyMethod

import pocketbert as pb
from pocketbert.distillation import distiller, run


class Copied(Exception):
    """The method was asked to copy."""


class Begun(Exception):
    """The first stage begins."""


class CopyingMethod(ToyMethod):
    def initialize(self, teacher: Any, student: Any) -> None:
        raise Copied


def begin(*arguments: Any) -> None:
    raise Begun


def test_directory_student_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    tokenizer = pb.from_pretrained(teacher).tokenizer
    pb.from_preset(tiny_distillation.STUDENT, tokenizer=tokenizer).save_pretrained(tmp_path / "student")
    data = tiny_distillation.task_data(teacher)
    monkeypatch.setattr(distiller.DistillationTrainer, "_train_stage", begin)
    for student, expected in ((tiny_distillation.STUDENT, Copied), (tmp_path / "student", Begun)):
        with pytest.raises(expected):
            run.distill(student, data, tmp_path / expected.__name__, teacher=teacher, method=CopyingMethod())
