"""A student's weights before training, where they are some of the teacher's layers; and the adapters' first weights.

TinyBERT starts from general distillation, that is from a directory; BERT-PKD and DistilBERT from layers of the teacher
(TinyBERT, section 4.4).
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import ModelDirectory, read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation import layer_maps
from pocketbert.errors import UserError, raise_if_any
from pocketbert.layers.core import initialize_weights
from pocketbert.model import Model
from pocketbert.training.initialization import ModelInit, plan_model
from pocketbert.training.objective import Adapters

# The fields of a configuration that may differ when layers are copied: they shape no weight and change no feature.
_FREE_FIELDS = ("num_layers", "hidden_dropout", "attention_dropout", "initializer_range")


@dataclass(frozen=True)
class TeacherLayers:
    """A student that starts from some of the teacher's layers, its embedding and its pooler.

    Attributes:
      layers: the teacher's, counted from 1.
      student: the architecture: a preset's name, a config.json or an `EncoderConfig`; None for the teacher's with these
        layers alone.
    """

    layers: tuple[int, ...]
    student: str | os.PathLike[str] | EncoderConfig | None = None


def plan_student(
    student: str | os.PathLike[str] | EncoderConfig | TeacherLayers, teacher: EncoderConfig | None
) -> ModelInit:
    """Finds a student's architecture and where its weights come from; no weights are read.

    Args:
      student: a preset's name, an architecture or a config.json for fresh weights; a model directory for its weights;
        or the teacher's layers to start from.
      teacher: the teacher's architecture, or None in a run without one.

    Raises:
      UserError: there is no such student, or the layers cannot be copied into it; everything is listed.
    """
    if not isinstance(student, TeacherLayers):
        return plan_model(student)
    layers = tuple(student.layers)
    if teacher is None:
        raise UserError(
            "a student that consists of a teacher's layers needs the teacher; received neither a teacher nor another "
            "student; give one of them"
        )
    if student.student is None:
        planned = ModelInit(start="random", config=teacher.replace(num_layers=len(layers)))
    else:
        planned = plan_model(student.student)
    if planned.directory is not None:
        raise UserError(
            f"a student starts from a directory or from the teacher's layers; received {planned.directory} and layers "
            f"{','.join(map(str, layers))}; give one of them, or the directory's config.json"
        )
    raise_if_any(_layer_problems(planned.config, teacher, layers), "the student cannot start from these layers")
    return dataclasses.replace(planned, start="teacher-layers", layers=layers)


def teacher_arrays(
    student: Model, teacher_directory: str | Path | None, teacher_task: TaskConfig | None, layers: Sequence[int]
) -> dict[str, np.ndarray]:
    """What a student that starts from the teacher's layers copies: path → array.

    The embedding, the pooler, the chosen layers, and a head for the same task with the same labels.

    Args:
      student: the student.
      teacher_directory: the teacher's; the teacher itself is not built.
      teacher_task: what the teacher's head is taken for, as `DistillationSpec.teacher_task`, where its own labels say
        nothing or are written otherwise; None takes it for what its directory says.
      layers: the teacher's, counted from 1.

    Raises:
      UserError: the teacher's directory is missing or cannot be read.
    """
    if teacher_directory is None:
        raise UserError("the teacher's layers are read from its directory; received none; give one")
    return _selected(read_directory(teacher_directory), teacher_task, layers, student)


def initialize_adapters(adapters: Adapters, standard_deviation: float, seed: int) -> None:
    """Draws the adapters' kernels, each differently, as those of a student; biases stay zero.

    Args:
      adapters: name → layer of this package; their weights are set.
      standard_deviation: of the truncated normal distribution; the student's `initializer_range`.
      seed: the run's.
    """
    for name, layer in adapters.items():
        # The path inside a layer says "kernel" for all of them; the name tells them apart.
        initialize_weights(layer, standard_deviation, zlib.crc32(f"{seed}/{name}".encode()) & 0x7FFFFFFF)


def _layer_problems(student: EncoderConfig, teacher: EncoderConfig, layers: Sequence[int]) -> list[str]:
    problems = []
    try:
        layer_maps.explicit(layers, student.num_layers, teacher.num_layers)
    except UserError as error:
        problems.append(str(error))
    for item in dataclasses.fields(EncoderConfig):
        ours, theirs = getattr(student, item.name), getattr(teacher, item.name)
        if item.name not in _FREE_FIELDS and ours != theirs:
            problems.append(f"{item.name} must be the teacher's, {theirs}; the student's is {ours}")
    if problems:
        problems.append("leave the student out to take the teacher's architecture, or start from fresh weights")
    return problems


def _selected(
    teacher: ModelDirectory, teacher_task: TaskConfig | None, layers: Sequence[int], student: Model
) -> dict[str, np.ndarray]:
    """The student's paths → the teacher's arrays: chosen layers, what stands outside of them, and a head that fits."""
    theirs = {(task.kind, task.labels) for task in (teacher_task, *teacher.tasks) if task is not None}
    heads = tuple(f"heads.{task.kind}." for task in student.tasks if (task.kind, task.labels) in theirs)
    selected = {}
    for path in student.weights_by_path():
        prefix, _, rest = path.partition("encoder.layers.")
        if prefix:
            if not path.startswith("heads.") or path.startswith(heads):
                selected[path] = teacher.tensors[path]
            continue
        index, _, name = rest.partition(".")
        selected[path] = teacher.tensors[f"encoder.layers.{layers[int(index)] - 1}.{name}"]
    return selected
