"""What a distillation method is: the stages it trains in, what it reads of the teacher, and its losses.

Nothing here imports TensorFlow, and neither may the top of a method's file: the command line reads every method's
options before it answers `--help`. ADR 6 says how the shape was checked against the five papers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from pocketbert.configs import EncoderConfig, TaskConfig, TaskKind, TokenizerConfig
from pocketbert.distillation.stage import (
    LABEL_TERMS,
    Data,
    Epochs,
    FeatureRequest,
    OptimizerConfig,
    ScheduleName,
    Stage,
    Steps,
    all_trainable,
    unit_multiplier,
)
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import OptionField, describe_options, option_problems

if TYPE_CHECKING:
    from pathlib import Path

    import tensorflow as tf

    from pocketbert._keras import tf_keras
    from pocketbert.model import Model

__all__ = [
    "LABEL_TERMS",
    "PRETRAINING_HEADS",
    "Adapters",
    "Batch",
    "Data",
    "Epochs",
    "FeatureRequest",
    "Features",
    "Method",
    "OptimizerConfig",
    "OptionField",
    "ScheduleName",
    "Setting",
    "Stage",
    "Start",
    "Steps",
    "StudentFeatures",
    "TeacherFeatures",
    "Vocabulary",
    "WithoutTeacher",
    "check_setting",
    "compare_setting",
    "describe_options",
    "all_trainable",
    "head_count_mismatches",
    "label_mismatches",
    "unit_multiplier",
    "option_problems",
    "tokenizer_mismatches",
    "vocabulary_mismatches",
]

# What `Model.features` gives for a request: name → tensors, in the order asked for.
Features: TypeAlias = "Mapping[str, list[tf.Tensor]]"
TeacherFeatures: TypeAlias = Features
StudentFeatures: TypeAlias = Features
# The model's inputs, int32 [B, S], by name, of pretraining's examples also `masked_lm_positions` [B, P]; and for the
# loss of a stage that reads them `labels` [B], or `masked_lm_labels` [B, P] (-1: none) and `next_sentence_labels` [B].
Batch: TypeAlias = "Mapping[str, tf.Tensor]"
Adapters: TypeAlias = "Mapping[str, tf_keras.layers.Layer]"

Start = Literal["random", "teacher-layers", "directory"]
# Of the student, and of a teacher whose logits are read, in a stage on pretraining's examples; in the logits' order.
PRETRAINING_HEADS: tuple[TaskKind, ...] = ("masked_lm", "next_sentence")


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Where a model's vocabulary is, and how its texts are cut.

    Attributes:
      path: the vocab.txt, a piece a line.
      config: what the tokenizer does to letters, accents and ideographs.
    """

    path: Path
    config: TokenizerConfig


@dataclass(frozen=True, kw_only=True)
class Setting:
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


@runtime_checkable
class Method(Protocol):
    """A distillation method: one file in `methods` with an instance of this called `METHOD`.

    Attributes:
      name: what the command line calls it.
      reference: paper and equations.
      options: a frozen keyword-only dataclass that can be made without arguments; its fields, defaults and
        `Attributes:` section become flags, `--help` and docs (`describe_options`).
    """

    name: str
    reference: str
    options: type

    def stages(self, setting: Setting, options: Any) -> Sequence[Stage]:
        """The stages in their order."""

    def adapters(self, setting: Setting, options: Any) -> Adapters:
        """Name → layer between student and loss.

        One set a run: it lives across stages and is saved beside the student, never in it, and never exported. They
        come as layers of this package do, with kernels of zeros: `initialization.initialize_adapters` draws them.
        """

    def mismatches(self, setting: Setting, options: Any) -> list[str]:
        """Everything of this method's own that cannot match, each with what was received and a remedy."""

    def initialize(self, teacher: Model | None, student: Model, options: Any) -> None:
        """Copies what the method copies from teacher to student before training; `teacher` is None with a store.

        Not called for a student that starts from a directory: what it has learned is not overwritten.
        """

    def targets(self, stage: Stage, teacher: TeacherFeatures, batch: Batch) -> Mapping[str, tf.Tensor]:
        """All that the loss may know of the teacher; a store holds exactly this.

        The first axis of every target is the batch's. An axis whose size follows the batch's length S, whatever S
        is, is a token axis; a size that happens to equal S is not.
        """

    def loss(
        self,
        stage: Stage,
        targets: Mapping[str, tf.Tensor],
        student: StudentFeatures,
        adapters: Adapters,
        batch: Batch,
    ) -> Mapping[str, tf.Tensor]:
        """Named float32 scalars, one for each key of `stage.weights`, unweighted."""


class WithoutTeacher:
    """What `Method` asks of one that learns from labels alone, but for its stages and its loss."""

    def adapters(self, setting: Setting, options: Any) -> Adapters:
        """None: there is nothing to be compared with."""
        return {}

    def mismatches(self, setting: Setting, options: Any) -> list[str]:
        """None: there is no other model."""
        return []

    def initialize(self, teacher: Model | None, student: Model, options: Any) -> None:
        """Copies nothing."""

    def targets(self, stage: Stage, teacher: TeacherFeatures, batch: Batch) -> Mapping[str, tf.Tensor]:
        """None."""
        return {}


def check_setting(method: Method, setting: Setting, options: Any) -> tuple[Stage, ...]:
    """Makes the stages of a run after everything that must match has been compared.

    Args:
      method: the method.
      setting: teacher, student and task.
      options: the method's options.

    Returns:
      The stages.

    Raises:
      UserError: one, which lists everything that does not match, each with its remedy.
    """
    stages, problems = compare_setting(method, setting, options)
    raise_if_any(problems, f"{method.name}: this teacher and student do not fit")
    return stages


def compare_setting(method: Method, setting: Setting, options: Any) -> tuple[tuple[Stage, ...], list[str]]:
    """`check_setting` for who has other problems to list: the stages, and what does not match.

    There are no stages where what does not match keeps them from being made.
    """
    problems = [*vocabulary_mismatches(setting), *method.mismatches(setting, options)]
    stages: tuple[Stage, ...] = ()
    try:
        stages = tuple(method.stages(setting, options))
    except UserError as error:
        # What keeps the stages from being made is often among the mismatches already.
        if not problems:
            problems.append(str(error))
    for side, config, requests in (
        ("student", setting.student, [(stage, stage.student_features) for stage in stages]),
        ("teacher", setting.teacher, [(stage, stage.teacher_features) for stage in stages if stage.teacher_features]),
    ):
        problems += _size_mismatches(side, config, requests)
    for stage in stages:
        problems += _head_mismatches(stage, setting)
    if any("logits" in stage.teacher_features for stage in stages):
        problems += label_mismatches(setting)
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        problems.append(f"stages must have names of their own; received {', '.join(names)}")
    return stages, list(dict.fromkeys(problems))


def vocabulary_mismatches(setting: Setting) -> list[str]:
    """What differs in the two vocabularies: ids must mean the same to teacher and student."""
    teacher, student = setting.teacher, setting.student
    remedy = "give a student with the teacher's vocabulary"
    problems = []
    if teacher.vocab_size != student.vocab_size:
        problems.append(
            f"both need one vocabulary; the teacher's has {teacher.vocab_size} pieces, the student's "
            f"{student.vocab_size}; {remedy}"
        )
    if teacher.pad_token_id != student.pad_token_id:
        problems.append(
            f"both need one padding id; the teacher's is {teacher.pad_token_id}, the student's "
            f"{student.pad_token_id}; {remedy}"
        )
    if setting.pairs and student.type_vocab_size < teacher.type_vocab_size:
        problems.append(
            f"pairs need the teacher's {teacher.type_vocab_size} segments; the student has "
            f"{student.type_vocab_size}; raise its type_vocab_size"
        )
    known = setting.teacher_vocabulary, setting.student_vocabulary
    if known[0] is not None and known[1] is not None:
        problems += tokenizer_mismatches(known[0], known[1], "the teacher", "the student", remedy)
    return problems


def tokenizer_mismatches(one: Vocabulary, other: Vocabulary, ones: str, others: str, remedy: str) -> list[str]:
    """What differs in the pieces of two vocabularies, as far as both go, and in how texts are cut.

    Args:
      one: a vocabulary.
      other: another.
      ones: whose the first is, for example `the teacher`.
      others: whose the other is.
      remedy: what to do.
    """
    from pocketbert.tokenizers.vocabulary import read_vocabulary

    problems = []
    for name, value in dataclasses.asdict(one.config).items():
        if value != getattr(other.config, name):
            problems.append(
                f"both need one way to cut texts; {ones} has {name}={value}, {others} "
                f"{name}={getattr(other.config, name)}; {remedy}"
            )
    pieces = zip(read_vocabulary(one.path), read_vocabulary(other.path), strict=False)
    differ = [(index, *pair) for index, pair in enumerate(pieces) if pair[0] != pair[1]]
    if differ:
        index, ours, theirs = differ[0]
        problems.append(
            f"both need one vocabulary; {one.path} and {other.path} differ in {len(differ)} pieces, the first at id "
            f"{index}: {ours!r} and {theirs!r}; {remedy}"
        )
    return problems


def head_count_mismatches(setting: Setting) -> list[str]:
    """What keeps the attention of single heads from being compared; for methods that do."""
    teacher, student = setting.teacher.num_attention_heads, setting.student.num_attention_heads
    if teacher == student:
        return []
    return [
        f"attention is matched head by head; the teacher has {teacher} heads, the student {student}; give a student "
        f"with {teacher}"
    ]


def label_mismatches(setting: Setting) -> list[str]:
    """What keeps the teacher's logits from being the student's targets."""
    ours, theirs = setting.task, setting.teacher_task
    if ours is None:
        return []
    if theirs is None:
        return [f"the teacher must be fine-tuned for {ours.kind}; it is a bare encoder; fine-tune it first"]
    if ours.kind != theirs.kind:
        return [f"the teacher must be fine-tuned for {ours.kind}; it has a head for {theirs.kind}; fine-tune it first"]
    if ours.labels != theirs.labels:
        return [
            f"the teacher's labels must be the task's, in this order: {', '.join(ours.labels)}; received "
            f"{', '.join(theirs.labels)}; fine-tune the teacher on this task, or give its labels as --labels"
        ]
    return []


def _size_mismatches(side: str, config: EncoderConfig, requests: Sequence[tuple[Stage, FeatureRequest]]) -> list[str]:
    """Texts and layers that one side lacks; said once, though a method may have a stage for each layer."""
    problems = []
    longest = max((stage for stage, _ in requests), key=lambda stage: stage.max_length, default=None)
    if longest and longest.max_length > config.max_position_embeddings:
        problems.append(
            f"stage {longest.name} has texts of {longest.max_length} tokens; the {side} has "
            f"{config.max_position_embeddings} positions; lower the length"
        )
    outside: dict[str, set[int]] = {}
    for _, request in requests:
        for name, layers in request.items():
            outside.setdefault(name, set()).update(set(layers) - set(_layers(name, config)))
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


def _head_mismatches(stage: Stage, setting: Setting) -> list[str]:
    problems = []
    if stage.data == "pretraining":
        heads = setting.teacher_heads
        if "logits" in stage.teacher_features and heads is not None and heads != PRETRAINING_HEADS:
            problems.append(
                f"stage {stage.name} reads the logits of a teacher with heads for {' and '.join(PRETRAINING_HEADS)} "
                f"alone; received {', '.join(heads) or 'none'}; pretrain the teacher, and do not fine-tune it"
            )
    elif "logits" in stage.student_features and setting.task is None:
        problems.append(f"stage {stage.name} reads logits; general distillation has no task; give one")
    return problems
