"""What a distillation method is: an objective with stages, adapters, and targets that it reads of the teacher.

Nothing here imports TensorFlow, and neither may the top of a method's file: the command line reads every method's
options before it answers `--help`. ADR 6 says how the shape was checked against the five papers.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig
from pocketbert.errors import UserError, raise_if_any
from pocketbert.training.initialization import Start, Vocabulary, tokenizer_problems
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.stage import FeatureRequest, Stage, position_problems

if TYPE_CHECKING:
    from pocketbert.model import Model


@dataclass(frozen=True, kw_only=True)
class DistillationSpec:
    """All that a method may know before training.

    Attributes:
      teacher: the teacher's architecture; the student's own in a run without a teacher.
      student: the student's.
      task: what the student learns; None for general distillation, on plain text.
      pairs: whether the task's examples are pairs of texts.
      teacher_task: the teacher's own head, or None where it has none.
      teacher_heads: the kinds of all its heads, or None where they are not known.
      teacher_vocabulary: the teacher's vocabulary, or None where it is not known.
      student_vocabulary: the student's, or None where the student has none of its own yet.
      start: where the student's weights come from, or None where that is not known.
    """

    teacher: EncoderConfig
    student: EncoderConfig
    task: TaskConfig | None
    pairs: bool = False
    teacher_task: TaskConfig | None = None
    teacher_heads: tuple[str, ...] | None = None
    teacher_vocabulary: Vocabulary | None = None
    student_vocabulary: Vocabulary | None = None
    start: Start | None = None


@dataclass(frozen=True, kw_only=True)
class Method(Objective):
    """A distillation method: one file in `methods` with one frozen keyword-only dataclass that extends this.

    Its fields are the method's options; with their defaults and the `Attributes:` section of the docstring they become
    flags, `--help` and docs (`describe_options`).

    Attributes:
      name: what the command line calls it.
      reference: paper and equations.
    """

    reference: ClassVar[str]

    @abc.abstractmethod
    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """The stages in their order."""

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Name → layer between student and loss; by default none.

        One set a run: it lives across stages and is saved beside the student, never in it, and never exported. They
        come as layers of this package do, with kernels of zeros: `initialization.initialize_adapters` draws them.
        """
        return {}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """The problems of this method's own with teacher, student and task, each with a remedy; by default none."""
        return []

    def initialize(self, teacher: Model | None, student: Model) -> None:
        """Copies what the method copies from teacher to student before training; by default nothing.

        `teacher` is None with a teacher cache. Not called for a student that starts from a directory: what it has
        learned is not overwritten.
        """

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """All that the loss may know of the teacher, by default nothing; a teacher cache holds exactly this.

        The first axis of every target is the batch's. An axis whose size follows the batch's length S, whatever S
        is, is a token axis; a size that happens to equal S is not.
        """
        return {}


def plan_stages(method: Method, spec: DistillationSpec) -> tuple[Stage, ...]:
    """Makes the stages of a run after everything that must match has been compared.

    Args:
      method: the method.
      spec: teacher, student and task.

    Returns:
      The stages.

    Raises:
      UserError: one, which lists everything that does not match, each with its remedy.
    """
    stages, problems = validated_stages(method, spec)
    raise_if_any(problems, f"{method.name}: this teacher and student do not fit")
    return stages


def validated_stages(method: Method, spec: DistillationSpec) -> tuple[tuple[Stage, ...], list[str]]:
    """The stages of a run, and the problems that there are with them.

    There are no stages where a problem keeps them from being made.
    """
    problems = [*vocabulary_problems(spec), *method.validate(spec)]
    stages: tuple[Stage, ...] = ()
    try:
        stages = tuple(method.stages(spec))
    except UserError as error:
        # What keeps the stages from being made is often among the problems already.
        if not problems:
            problems.append(str(error))
    reading = [stage for stage in stages if stage.teacher_features]
    for side, config, requests in (
        ("student", spec.student, [(stage, stage.student_features) for stage in stages]),
        ("teacher", spec.teacher, [(stage, stage.teacher_features) for stage in reading]),
    ):
        problems += position_problems(side, config, [stage for stage, _ in requests])
        problems += _layer_problems(side, config, [request for _, request in requests])
    for stage in stages:
        problems += _head_problems(stage, spec)
    if any("logits" in stage.teacher_features for stage in stages):
        problems += label_problems(spec)
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names) or "" in names:
        problems.append(f"stages must have names of their own; received {', '.join(names)}")
    return stages, list(dict.fromkeys(problems))


def vocabulary_problems(spec: DistillationSpec) -> list[str]:
    """What differs in the two vocabularies: ids must mean the same to teacher and student."""
    teacher, student = spec.teacher, spec.student
    remedy = "give a student with the teacher's vocabulary"
    problems = []
    if teacher.vocab_size != student.vocab_size:
        problems.append(
            f"both need one vocabulary; the teacher's has {teacher.vocab_size} tokens, the student's "
            f"{student.vocab_size}; {remedy}"
        )
    if teacher.pad_token_id != student.pad_token_id:
        problems.append(
            f"both need one padding id; the teacher's is {teacher.pad_token_id}, the student's "
            f"{student.pad_token_id}; {remedy}"
        )
    if spec.pairs and student.type_vocab_size < teacher.type_vocab_size:
        problems.append(
            f"pairs need the teacher's {teacher.type_vocab_size} segments; the student has "
            f"{student.type_vocab_size}; raise its type_vocab_size"
        )
    known = spec.teacher_vocabulary, spec.student_vocabulary
    if known[0] is not None and known[1] is not None:
        problems += tokenizer_problems(known[0], known[1], "the teacher", "the student", remedy)
    return problems


def head_count_problems(spec: DistillationSpec) -> list[str]:
    """What keeps the attention of single heads from being compared; for methods that do."""
    teacher, student = spec.teacher.num_attention_heads, spec.student.num_attention_heads
    if teacher == student:
        return []
    return [
        f"attention is matched head by head; the teacher has {teacher} heads, the student {student}; give a student "
        f"with {teacher}"
    ]


def label_problems(spec: DistillationSpec) -> list[str]:
    """What keeps the teacher's logits from being the student's targets."""
    ours, theirs = spec.task, spec.teacher_task
    if ours is None:
        return []
    if theirs is None:
        return [f"the teacher must be fine-tuned for {ours.kind}; it is a bare encoder; fine-tune it first"]
    # The rule itself: logits of another kind of task are no targets.
    if ours.kind != theirs.kind:
        return [f"the teacher must be fine-tuned for {ours.kind}; it has a head for {theirs.kind}; fine-tune it first"]
    if ours.labels != theirs.labels:
        return [
            f"the teacher's labels must be the task's, in this order: {', '.join(ours.labels)}; received "
            f"{', '.join(theirs.labels)}; fine-tune the teacher on this task, or give its labels as --labels"
        ]
    return []


def _layer_problems(side: str, config: EncoderConfig, requests: Sequence[FeatureRequest]) -> list[str]:
    """Layers that one side lacks."""
    outside: dict[str, set[int]] = {}
    for request in requests:
        for name, layers in request.items():
            outside.setdefault(name, set()).update(set(layers) - set(_layers(name, config)))
    problems = []
    for name, absent in outside.items():
        if absent:
            known = _layers(name, config)
            problems.append(
                f"{name} are read of the {side}'s layers {_numbers(absent)}; it has layers {known[0]} to {known[-1]}"
            )
    return problems


def _layers(name: str, config: EncoderConfig) -> range:
    """Those that have such features: layer 0 is the embedding."""
    return range(0 if name == "hidden_states" else 1, config.num_layers + 1)


def _numbers(numbers: Collection[int]) -> str:
    """2, 5; or 4 to 24 where none between is missing."""
    first, last = min(numbers), max(numbers)
    if len(numbers) > 2 and last - first + 1 == len(numbers):
        return f"{first} to {last}"
    return ", ".join(map(str, sorted(numbers)))


def _head_problems(stage: Stage, spec: DistillationSpec) -> list[str]:
    problems = []
    if stage.data == "pretraining":
        heads = spec.teacher_heads
        if "logits" in stage.teacher_features and heads is not None and heads != PRETRAINING_HEADS:
            problems.append(
                f"stage {stage.name} reads the logits of a teacher with heads for {' and '.join(PRETRAINING_HEADS)} "
                f"alone; received {', '.join(heads) or 'none'}; pretrain the teacher, and do not fine-tune it"
            )
    elif "logits" in stage.student_features and spec.task is None:
        problems.append(f"stage {stage.name} reads logits; general distillation has no task; give one")
    return problems
