"""What a student's weights are before training: fresh, layers of the teacher, or a directory's.

TinyBERT starts from general distillation, that is from a directory; BERT-PKD and DistilBERT from layers of the teacher
(TinyBERT, section 4.4).
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.checkpoints.directory import (
    CONFIG_NAME,
    ModelDirectory,
    read_directory,
    read_json_object,
    read_tokenizer_of,
)
from pocketbert.checkpoints.huggingface import read_config
from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.distillation import layer_maps
from pocketbert.distillation.method import PRETRAINING_HEADS, Adapters, Start, Vocabulary
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.layers.paths import initialize_weights
from pocketbert.model import Model, from_preset
from pocketbert.presets import preset, presets

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

# The fields of a configuration that may differ when layers are copied: they shape no weight and change no feature.
_FREE_FIELDS = ("num_layers", "hidden_dropout", "attention_dropout", "initializer_range")
# A config.json does not say whether there is a pooler, the tensors beside it do; BERT and MobileBERT have one.
_POOLERS = ("bert.pooler.dense.weight", "mobilebert.pooler.dense.weight")


@dataclass(frozen=True, kw_only=True)
class StudentPlan:
    """A student before its weights are made.

    Attributes:
      start: where the weights come from.
      config: the architecture.
      directory: the model directory of `start="directory"`, else None.
      layers: the teacher's layers of `start="teacher-layers"`, counted from 1, else empty.
      vocabulary: the directory's own vocabulary, or None where the student takes the teacher's.
    """

    start: Start
    config: EncoderConfig
    directory: Path | None = None
    layers: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None


def plan_student(
    student: str | Path | EncoderConfig | None,
    teacher: EncoderConfig | None,
    *,
    teacher_layers: Sequence[int] = (),
) -> StudentPlan:
    """Finds a student's architecture and where its weights come from; no weights are read.

    Args:
      student: a preset's name, an architecture or a config.json for fresh weights; a model directory for its weights;
        None for the teacher's architecture with the layers in `teacher_layers` alone.
      teacher: the teacher's architecture, or None in a run without one.
      teacher_layers: start from these layers of the teacher, counted from 1, and from its embedding and pooler.

    Raises:
      UserError: there is no such student, or the layers cannot be copied into it; everything is listed.
    """
    directory = _directory(student)
    if teacher is None and (student is None or teacher_layers):
        raise UserError(
            "a student that consists of a teacher's layers needs the teacher; received neither a teacher nor another "
            "student; give one of them"
        )
    if student is None:
        if not teacher_layers:
            raise UserError("a student must be given, or the teacher's layers that it consists of; received neither")
        assert teacher is not None
        config = teacher.replace(num_layers=len(teacher_layers))
    elif isinstance(student, EncoderConfig):
        config = student
    elif directory is not None:
        config = read_directory(directory, headless=True).config
    else:
        config = _named_config(str(student))
    if teacher_layers:
        if directory is not None:
            raise UserError(
                f"a student starts from a directory or from the teacher's layers; received {directory} and layers "
                f"{','.join(map(str, teacher_layers))}; give one of them, or the directory's config.json"
            )
        assert teacher is not None
        raise_if_any(_layer_problems(config, teacher, teacher_layers), "the student cannot start from these layers")
        return StudentPlan(start="teacher-layers", config=config, layers=tuple(teacher_layers))
    if directory is not None:
        return StudentPlan(start="directory", config=config, directory=directory, vocabulary=vocabulary_of(directory))
    return StudentPlan(start="random", config=config)


def make_student(
    plan: StudentPlan,
    *,
    tasks: Sequence[TaskConfig],
    tokenizer: WordPieceTokenizer | None,
    teacher_directory: str | Path | None = None,
    teacher_task: TaskConfig | None = None,
    seed: int = 0,
) -> Model:
    """Makes a planned student.

    Whatever is not copied is fresh. From the teacher's layers: the embedding, the pooler and a head for the same task
    with the same labels are copied too. From a directory: everything but heads, as in fine-tuning; of pretraining's
    heads those that the directory has, since going on with pretraining is going on with them.

    Args:
      plan: the student.
      tasks: its heads.
      tokenizer: kept with it.
      teacher_directory: where `start="teacher-layers"` reads the weights; the teacher itself is not built.
      teacher_task: what the teacher's head is taken for, as `Setting.teacher_task`, where its own labels say nothing or
        are written otherwise; None takes it for what its directory says.
      seed: of fresh weights and of dropout.

    Raises:
      UserError: a directory cannot be read, or the teacher's is missing.
    """
    student = from_preset(plan.config, tasks, tokenizer, seed)
    copied: Mapping[str, np.ndarray] = {}
    if plan.directory is not None:
        goes_on = any(task.kind in PRETRAINING_HEADS for task in tasks)
        copied = read_directory(plan.directory, headless=not goes_on).tensors
    elif plan.layers:
        if teacher_directory is None:
            raise UserError("the teacher's layers are read from its directory; received none; give one")
        copied = _selected(read_directory(teacher_directory), teacher_task, plan.layers, student)
    for path, variable in student.weights_by_path().items():
        if path in copied:
            variable.assign(copied[path])
    return student


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


def vocabulary_of(directory: str | Path) -> Vocabulary | None:
    """A model directory's vocabulary, or None if it holds none; a directory that does not say lower-cases."""
    problems: list[str] = []
    path, config = read_tokenizer_of(Path(directory), problems)
    raise_if_any(problems, str(directory))
    return Vocabulary(path=path, config=config or TokenizerConfig()) if path else None


def _directory(student: str | Path | EncoderConfig | None) -> Path | None:
    if student is None or isinstance(student, EncoderConfig) or str(student) in presets():
        return None
    return Path(student) if Path(student).is_dir() else None


def _named_config(student: str) -> EncoderConfig:
    if student in presets():
        return preset(student).config
    path = Path(student)
    if not path.is_file():
        raise UserError(
            f"a student is a preset, a model directory or a {CONFIG_NAME}; received {student}, which is none of them"
            f"{did_you_mean(student, presets())}; "
            f"the presets are {', '.join(presets())}"
        )
    problems: list[str] = []
    content = read_json_object(path, problems, required=True)
    raise_if_any(problems, student)
    assert content is not None
    return read_config(content, _POOLERS, headless=True)[0]


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
