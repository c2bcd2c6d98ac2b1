"""Initializes students from teacher layers or from a supernet, and adapters.

BERT-PKD and DistilBERT start from teacher layers (TinyBERT, section 4.4). TinyBERT starts from general distillation.
"""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from pocketbert.checkpoints.directory import ModelDirectory, read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.distillation import layer_maps
from pocketbert.errors import UserError, raise_if_any
from pocketbert.layers.core import initialize_weights
from pocketbert.model import Model
from pocketbert.training.initialization import ModelInit, plan_model, plan_slices
from pocketbert.training.kept_heads import head_arrays
from pocketbert.training.objective import Adapters
from pocketbert.training.step import adapter_variables
from pocketbert_runtime.label_names import are_placeholders

# Fields that may differ between models when layers are copied: they affect neither weight shapes nor features.
_FREE_FIELDS = ("num_layers", "hidden_dropout", "attention_dropout", "initializer_range")


@dataclass(frozen=True)
class TeacherLayers:
    """A student that starts from teacher layers, with the teacher's embedding and pooler.

    It also starts from the teacher's head if the teacher was trained for the same labels. Pass it to
    `pocketbert.distill` as the student: `pb.distill(pb.TeacherLayers((2, 4, 6)), data, output, teacher=teacher)`.

    Attributes:
      layers: teacher layers, counted from 1, one for each student layer.
      student: student's architecture: preset name, config.json or `EncoderConfig`; None for the teacher's architecture
        with these layers only. It may differ from the teacher's in depth and dropout.
    Raises:
      UserError: `layers` is empty, or is not a sequence of integers.
    """

    layers: Sequence[int]
    student: str | os.PathLike[str] | EncoderConfig | None = None

    def __post_init__(self) -> None:
        numbers = self.layers if isinstance(self.layers, Iterable) and not isinstance(self.layers, str) else ()
        layers = tuple(numbers)
        if not layers or not all(isinstance(layer, Integral) and not isinstance(layer, bool) for layer in layers):
            raise UserError(
                "layers of a teacher must be at least one number, counted from 1, such as (2, 4, 6); "
                f"received {self.layers!r}"
            )
        object.__setattr__(self, "layers", tuple(int(layer) for layer in layers))


@dataclass(frozen=True)
class SupernetSlices:
    """A student that starts from slices of a supernet's weights (EfficientBERT, section 3.2).

    EfficientBERT+ is such a student after the supernet's multi-task fine-tuning, fine-tuned on each task (section 4.2).
    Encoder and head are slices; the head only if the supernet has one for the task and its labels.

    Attributes:
      supernet: supernet's model directory.
      student: student's architecture: preset name, config.json or `EncoderConfig`.
    """

    supernet: str | os.PathLike[str]
    student: str | os.PathLike[str] | EncoderConfig


def plan_student(
    student: str | os.PathLike[str] | EncoderConfig | TeacherLayers | SupernetSlices, teacher: EncoderConfig | None
) -> ModelInit:
    """Determines a student's architecture and initialization without reading weights.

    Args:
      student: preset name, architecture or config.json for random weights; model directory for its weights;
        `TeacherLayers`; or `SupernetSlices`.
      teacher: teacher's architecture; None in a run without a teacher.
    Raises:
      UserError: the student does not exist, the layers cannot be copied into it, or it is not a part of the supernet;
        lists all problems.
    """
    if isinstance(student, SupernetSlices):
        return plan_slices(student.supernet, student.student)
    if not isinstance(student, TeacherLayers):
        return plan_model(student)
    layers = tuple(student.layers)
    if teacher is None:
        raise UserError(
            "a student initialized with layers of the teacher needs a teacher; received none; give a teacher or "
            "another student"
        )
    if student.student is None:
        planned = ModelInit(start="random", config=teacher.replace(num_layers=len(layers)))
    else:
        planned = plan_model(student.student)
    if planned.directory is not None:
        raise UserError(
            f"a student starts from a directory or from layers of the teacher; received {planned.directory} and layers "
            f"{','.join(map(str, layers))}; give one of them, or the config.json in the directory"
        )
    raise_if_any(_layer_problems(planned.config, teacher, layers), "the student cannot start from these layers")
    return dataclasses.replace(planned, start="teacher-layers", layers=layers)


def teacher_arrays(
    student: Model,
    teacher: Model | str | Path | None,
    teacher_task: TaskConfig | None,
    layers: Sequence[int],
) -> dict[str, np.ndarray]:
    """Returns the teacher's weights for the student, path → array.

    The student receives the embedding, the pooler, the selected layers, and the head if task and labels match.

    Args:
      student: the student.
      teacher: the teacher, or its model directory.
      teacher_task: task of the teacher's head, see `DistillationSpec`; None for the task in its directory.
      layers: teacher layers, counted from 1.
    Raises:
      UserError: the directory is missing or cannot be read.
    """
    if teacher is None:
        raise UserError("layers of the teacher are copied from its directory; received none; give one")
    if isinstance(teacher, Model):
        tensors = {path: variable.numpy() for path, variable in teacher.weights_by_path().items()}
        directory = ModelDirectory(config=teacher.config, tasks=teacher.tasks, vocabulary=None, tensors=tensors)
    else:
        directory = read_directory(teacher)
    if teacher_task is not None and directory.tasks and are_placeholders(directory.tasks[0].labels):
        directory.tasks = (teacher_task, *directory.tasks[1:])
    heads, sources = head_arrays(directory, student.tasks), directory.config.sources(layers)
    selected = {}
    for path in student.weights_by_path():
        prefix, _, rest = path.partition("encoder.layers.")
        if prefix:
            if not path.startswith("heads."):
                selected[path] = directory.tensors[path]
            elif path in heads:
                selected[path] = heads[path]
            continue
        index, _, name = rest.partition(".")
        selected[path] = directory.tensors[f"encoder.layers.{sources[int(index)]}.{name}"]
    return selected


def initialize_adapters(adapters: Adapters, standard_deviation: float, seed: int) -> None:
    """Initializes adapter kernels like a student's; biases stay zero.

    Args:
      adapters: name → layer from this package.
      standard_deviation: standard deviation of the truncated normal distribution; the student's `initializer_range`.
      seed: the run's seed; each adapter derives its own seed.
    """
    for name, layer in adapters.items():
        # The path is "kernel" in every adapter, so the seed depends on the adapter's name.
        initialize_weights(layer, standard_deviation, zlib.crc32(f"{seed}/{name}".encode()) & 0x7FFFFFFF)


def inherit_adapters(adapters: Adapters, path: Path) -> None:
    """Loads an earlier run's adapters, for a student that starts from its weights.

    A narrower student takes a kernel's first rows. Adapters for another teacher width stay as they are.
    """
    arrays = load_file(path)
    for name, variable in adapter_variables(adapters).items():
        array, shape = arrays.get(name), tuple(variable.shape)
        if array is None or array.shape[-1:] != shape[-1:]:
            continue
        part = array[tuple(slice(size) for size in shape)]
        if part.shape == shape:
            variable.assign(part)


def _layer_problems(student: EncoderConfig, teacher: EncoderConfig, layers: Sequence[int]) -> list[str]:
    problems = []
    try:
        layer_maps.explicit(layers, student.num_layers, teacher.num_layers)
        teacher.sources(layers)
    except UserError as error:
        problems.append(str(error))
    else:
        if teacher.rotary is not None:
            problems += teacher.rotary.unlike_layers(layers)
    for item in dataclasses.fields(EncoderConfig):
        value, expected = getattr(student, item.name), getattr(teacher, item.name)
        if item.name not in _FREE_FIELDS and value != expected:
            problems.append(f"{item.name} must equal the teacher's {expected}; received {value}")
    if problems:
        problems.append("leave the student out to use the teacher's architecture, or start from random weights")
    return problems
