"""The base class for distillation methods: an objective with stages, adapters and targets from the teacher.

Neither this module nor the top of a method's file may import TensorFlow, because `--help` reads every method's options.
ADR 6 compares the interface with five papers.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pocketbert.configs import PRETRAINING_HEADS, EncoderConfig, TaskConfig
from pocketbert.distillation.other_tokens import token_problems
from pocketbert.errors import UserError, raise_if_any
from pocketbert.heads_config import same_heads
from pocketbert.notation import argument
from pocketbert.training.objective import Adapters, Batch, Features, Objective, Targets
from pocketbert.training.stage import FeatureRequest, ScheduleName, Stage, position_problems
from pocketbert_runtime.heads_config import described_heads
from pocketbert_runtime.label_names import label_positions

if TYPE_CHECKING:
    import numpy as np

    from pocketbert.data.batches import EncodedExamples
    from pocketbert.model import Model
    from pocketbert.training.initialization import Start
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class DistillationSpec:
    """Teacher, student and task of a distillation, as known before training.

    Attributes:
      teacher: teacher's architecture; the student's in a run without a teacher.
      student: student's architecture.
      task: student's task; None for task-independent distillation.
      pairs: whether the examples are text pairs.
      teacher_task: task of the teacher's head; None without a head.
      teacher_heads: kinds of all the teacher's heads; None if unknown.
      teacher_vocabulary: teacher's vocabulary; None if unknown.
      student_vocabulary: student's vocabulary; None if it has none yet.
      soft_labels: whether the examples have a teacher's probabilities, in place of its logits.
      start: student's initialization; `random` also for an untrained directory; None if unknown.
    """

    teacher: EncoderConfig
    student: EncoderConfig
    task: TaskConfig | None
    pairs: bool = False
    teacher_task: TaskConfig | None = None
    teacher_heads: tuple[str, ...] | None = None
    teacher_vocabulary: Vocabulary | None = None
    student_vocabulary: Vocabulary | None = None
    soft_labels: bool = False
    start: Start | None = None

    @functools.cached_property
    def tokenizer_difference(self) -> str:
        """The first difference between the tokenizers, so that each model reads the texts with its own; else empty."""
        from pocketbert.training.initialization import tokenizer_differences

        teacher, student = self.teacher_vocabulary, self.student_vocabulary
        if teacher is None or student is None or teacher == student:
            return ""
        for what, received in tokenizer_differences(teacher, student, "the teacher", "the student"):
            return f"{what}: {received}"
        counts = len(teacher.tokens()), len(student.tokens())
        return (
            "" if counts[0] == counts[1] else f"vocabulary: the teacher has {counts[0]} tokens, the student {counts[1]}"
        )


@dataclass(frozen=True, kw_only=True)
class Method(Objective):
    """Base class for distillation methods.

    A method extends this class as a frozen keyword-only dataclass, in a file in `methods` or in another package. Its
    fields are its options: fields, defaults and the docstring's `Attributes:` section become flags, `--help` and docs
    (`describe_options`). `pb.compress` tries another package's method if it has the options `max_length` and `epochs`;
    `learning_rate` is optional.

    Attributes:
      label_weight: weight w of the labels in the stage with the head: (1 − w) · prediction loss + w · label loss
        (default: the method's weights).
      schedule: learning rate schedule in all stages, after their warm-up (default: the method's schedules).
      name: name on the command line.
      reference: paper and equations.
      task_kinds: task kinds for the method; empty for text and all kinds with one output per text.
      keeps_adapters: whether a student from another run's folder, or a slice from it, continues that run's adapters.
      passes: passes over the examples for each of `epochs`, such as 2 for two stages.
    """

    reference: ClassVar[str]
    task_kinds: ClassVar[tuple[str, ...]] = ()
    keeps_adapters: ClassVar[bool] = False
    passes: ClassVar[int] = 1
    MAY_BE_ZERO: ClassVar = ("label_weight",)

    label_weight: float | None = None
    schedule: ScheduleName | None = None

    @abc.abstractmethod
    def stages(self, spec: DistillationSpec) -> Sequence[Stage]:
        """Returns the stages in order."""

    def adapters(self, spec: DistillationSpec) -> Adapters:
        """Returns the adapters, name → layer between student and loss; by default none.

        All stages in a run share the adapters. They are saved next to the student, and never exported with it. Their
        kernels are zeros until `initialization.initialize_adapters` initializes them.
        """
        return {}

    def validate(self, spec: DistillationSpec) -> list[str]:
        """Returns the method's problems with teacher, student and task, each with a remedy; by default none."""
        return []

    def summary(self, spec: DistillationSpec) -> list[str]:
        """Returns lines about the chosen options, logged before a run; by default none."""
        return []

    def uncacheable(self, stage: Stage) -> str:
        """Returns why a teacher cache cannot store a stage's targets; empty by default."""
        return ""

    def index_limits(self, stage: Stage, teacher: EncoderConfig) -> Mapping[str, int]:
        """Returns target → number of possible indices, for targets with strictly ascending indices; by default none.

        Other integer targets are positions in the text.
        """
        return {}

    def candidates(self, stage: Stage, encoded: EncodedExamples) -> np.ndarray | None:
        """Returns how many tokens each example may keep, int64 `[N]`; by default None: the stage selects none.

        With them, the stage's targets are `[B, k, …]`: a row for each kept token, and zeros where an example has fewer
        candidates than k. A teacher cache stores only the candidates' rows.
        """
        return None

    def initialize(self, teacher: Model | None, student: Model) -> None:
        """Copies weights from teacher to student before training; by default none.

        `teacher` is None with a teacher cache. Runs skip this for a student from a directory, which keeps its weights.
        """

    def targets(self, stage: Stage, teacher: Features, batch: Batch) -> Targets:
        """Returns the targets: all teacher outputs in the loss, and so a teacher cache's content. By default none.

        The first axis of every target is the batch axis. If an axis's size depends on the batch's length S, it is a
        token axis; a constant size is not, even if it equals S.
        """
        return {}


def plan_stages(method: Method, spec: DistillationSpec) -> tuple[Stage, ...]:
    """Validates teacher, student and task, and returns the run's stages.

    Raises:
      UserError: teacher, student and task do not match; lists all problems with remedies.
    """
    stages, problems = validated_stages(method, spec)
    raise_if_any(problems, f"{method.name}: teacher and student do not match")
    return stages


def validated_stages(method: Method, spec: DistillationSpec) -> tuple[tuple[Stage, ...], list[str]]:
    """Returns the run's stages and all problems; no stages if a problem prevents their creation."""
    problems = [*vocabulary_problems(spec), *method.validate(spec)]
    stages: tuple[Stage, ...] = ()
    try:
        stages = tuple(method.stages(spec))
        if method.schedule is not None:
            stages = tuple(_with_schedule(stage, method.schedule) for stage in stages)
        if method.label_weight is not None:
            problems += label_weight_problems(method, stages)
            if 0 <= method.label_weight <= 1:
                stages = tuple(_with_label_weight(stage, method.label_weight) for stage in stages)
    except UserError as error:
        # The earlier problems usually include this one.
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
    if spec.tokenizer_difference:
        problems += token_problems(stages, spec.task, spec.tokenizer_difference, soft_labels=spec.soft_labels)
    if any("logits" in stage.teacher_features for stage in stages) and not spec.soft_labels:
        problems += label_problems(spec)
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names) or "" in names:
        problems.append(f"stages must have different names; received {', '.join(names)}")
    return stages, list(dict.fromkeys(problems))


def label_weight_problems(method: Method, stages: Sequence[Stage]) -> list[str]:
    """Returns the problem with a label weight outside 0 to 1, or without a stage to use it."""
    weight = method.label_weight
    assert weight is not None
    if not 0 <= weight <= 1:
        return [f"label_weight must be 0 to 1; received {weight:g}"]
    if any(map(_learns_answers, stages)):
        return []
    return [f"label_weight needs a stage that learns predictions; {method.name} has none here; leave it out"]


def _learns_answers(stage: Stage) -> bool:
    """Whether a stage learns the teacher's predictions, or the labels and nothing else."""
    return stage.task is not None and ("prediction" in stage.weights or set(stage.weights) == {"labels"})


def _with_label_weight(stage: Stage, weight: float) -> Stage:
    """Mixes predictions and labels in a stage that learns one of them."""
    if not _learns_answers(stage):
        return stage
    others = {term: value for term, value in stage.weights.items() if term not in ("prediction", "labels")}
    total = stage.weights.get("prediction", 1.0)
    shares = {"prediction": total * (1 - weight), "labels": total * weight}
    used = {term: share for term, share in shares.items() if share}
    features = {name: layers for name, layers in stage.teacher_features.items() if name != "logits"}
    logits: FeatureRequest = {"logits": ()} if "prediction" in used else {}
    return dataclasses.replace(stage, teacher_features={**features, **logits}, weights={**others, **used})


def _with_schedule(stage: Stage, schedule: ScheduleName) -> Stage:
    return dataclasses.replace(stage, optimizer=dataclasses.replace(stage.optimizer, schedule=schedule))


def vocabulary_problems(spec: DistillationSpec) -> list[str]:
    """Returns why the models cannot share token ids; none if each has its own tokenizer."""
    teacher, student = spec.teacher, spec.student
    problems: list[str] = []
    if spec.tokenizer_difference:
        return problems
    remedy = "give a student with the teacher's vocabulary, or a model directory with its own tokenizer"
    if teacher.vocab_size != student.vocab_size:
        problems.append(
            f"both models need the same vocabulary; the teacher's has {teacher.vocab_size} tokens, the student's "
            f"{student.vocab_size}; {remedy}"
        )
    if teacher.pad_token_id != student.pad_token_id and (teacher.reads_padding_id or student.reads_padding_id):
        problems.append(
            f"both models need the same padding id; the teacher's is {teacher.pad_token_id}, the student's "
            f"{student.pad_token_id}; {remedy}"
        )
    if spec.pairs and student.type_vocab_size < teacher.type_vocab_size:
        problems.append(
            f"pairs need the teacher's {teacher.type_vocab_size} segments; the student has "
            f"{student.type_vocab_size}; raise its type_vocab_size"
        )
    return problems


def head_count_problems(spec: DistillationSpec) -> list[str]:
    """Returns a problem if the models differ in attention heads; for methods with a loss per head."""
    teacher, student = spec.teacher.num_attention_heads, spec.student.num_attention_heads
    if teacher == student:
        return []
    return [
        f"attention is compared per head; the teacher has {teacher} heads, the student {student}; give a student with "
        f"{teacher} heads"
    ]


def text_segments(spec: DistillationSpec) -> Literal[1, 2]:
    """Returns how many segments per text both models support, at most two."""
    return 1 if min(spec.teacher.type_vocab_size, spec.student.type_vocab_size) < 2 else 2


def segment_problems(spec: DistillationSpec, requested: int | None) -> list[str]:
    """Returns a problem if texts with two segments are requested from models with one token type."""
    if spec.task is not None or requested != 2 or text_segments(spec) == 2:
        return []
    return [
        "text_segments=2 needs two token types in both models; received a teacher with "
        f"{spec.teacher.type_vocab_size} and a student with {spec.student.type_vocab_size}; give text_segments=1"
    ]


def label_problems(spec: DistillationSpec) -> list[str]:
    """Returns problems with the teacher's logits as targets: no head, another task, or other labels."""
    task, teacher_task = spec.task, spec.teacher_task
    if task is None:
        return []
    if teacher_task is None:
        return [f"the teacher must be fine-tuned for {task.kind}; it is a bare encoder; fine-tune it first"]
    # Logits for another kind of task cannot be targets.
    if task.kind != teacher_task.kind:
        return [
            f"the teacher must be fine-tuned for {task.kind}; it has a head for {teacher_task.kind}; fine-tune it first"
        ]
    if not same_heads(task, teacher_task):
        return [
            f"the teacher must have the heads of the task, {described_heads(task)}; received "
            f"{described_heads(teacher_task)}; fine-tune the teacher on these data"
        ]
    if task.labels != teacher_task.labels and label_positions(task.labels, teacher_task.labels) is not None:
        return [
            f"cached targets must have the labels in the order {', '.join(task.labels)}; received "
            f"{', '.join(teacher_task.labels)}; run cache-teacher again on these data, into another folder"
        ]
    if task.labels != teacher_task.labels:
        return [
            f"the teacher must have the labels of the task, {', '.join(task.labels)}; received "
            f"{', '.join(teacher_task.labels)}; fine-tune the teacher on this task, or rename the labels in the data"
        ]
    if task.pairs != teacher_task.pairs:
        forms = [one.pairs or "joint" for one in (teacher_task, task)]
        return [
            f"teacher and student must read pairs in the same form; received {forms[0]} for the teacher and {forms[1]} "
            "for the student; pass the teacher's probabilities as soft labels instead of the teacher "
            f"({argument('soft_label_columns', python='soft_labels')})"
        ]
    return []


def _layer_problems(side: str, config: EncoderConfig, requests: Sequence[FeatureRequest]) -> list[str]:
    """Returns the requested layers that a model lacks."""
    outside: dict[str, set[int]] = {}
    for request in requests:
        for name, layers in request.items():
            outside.setdefault(name, set()).update(set(layers) - set(_layers(name, config)))
    problems = []
    for name, absent in outside.items():
        if absent:
            available = _layers(name, config)
            first, last = min(absent), max(absent)
            is_range = len(absent) > 2 and last - first + 1 == len(absent)
            requested = f"{first} to {last}" if is_range else ", ".join(map(str, sorted(absent)))
            problems.append(
                f"the {side} has {name} for layers {available[0]} to {available[-1]}; stages request {requested}"
            )
    return problems


def _layers(name: str, config: EncoderConfig) -> range:
    """Returns the layers with a feature; layer 0 is the embedding."""
    return range(0 if name == "hidden_states" else 1, config.num_layers + 1)


def _head_problems(stage: Stage, spec: DistillationSpec) -> list[str]:
    problems = []
    if stage.data == "pretraining":
        heads = spec.teacher_heads
        if "logits" in stage.teacher_features and heads is not None and heads != PRETRAINING_HEADS:
            problems.append(
                f"stage {stage.name} needs a teacher with exactly the heads {' and '.join(PRETRAINING_HEADS)}; "
                f"received {', '.join(heads) or 'none'}; pretrain the teacher, and do not fine-tune it"
            )
    elif "logits" in stage.student_features and spec.task is None:
        problems.append(f"stage {stage.name} reads logits and needs a task; received none; give a task")
    return problems
