"""What a distillation method is: the stages it trains in, what it reads of the teacher, and its losses.

Nothing here imports TensorFlow, and neither may the top of a method's file: the command line reads every method's
options before it answers `--help`. ADR 6 says how the shape was checked against the five papers.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError, raise_if_any

if TYPE_CHECKING:
    from pathlib import Path

    import tensorflow as tf

    from pocketbert._keras import tf_keras
    from pocketbert.model import Model

# What `Model.features` gives for a request: name → tensors, in the order asked for.
Features: TypeAlias = "Mapping[str, list[tf.Tensor]]"
TeacherFeatures = StudentFeatures = Features
# The model's inputs, int32 [B, S], by name; `labels` [B] where the data have them.
Batch: TypeAlias = "Mapping[str, tf.Tensor]"
# Feature → layers, for example {"hidden_states": (0, 3), "attention_logits": (3,), "logits": ()}.
FeatureRequest: TypeAlias = Mapping[str, tuple[int, ...]]
Adapters: TypeAlias = "Mapping[str, tf_keras.layers.Layer]"

Data = Literal["text", "task", "augmented"]
ScheduleName = Literal["linear", "constant"]


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Where a model's vocabulary is, and how its texts are cut.

    Attributes:
      path: the vocab.txt, a piece a line.
      lowercase: whether the tokenizer lower-cases.
    """

    path: Path
    lowercase: bool


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that a method may know before training.

    Attributes:
      teacher: the teacher's architecture.
      student: the student's.
      task: what the student learns; None for general distillation, on plain text.
      pairs: whether the task's examples are pairs of texts.
      teacher_task: the teacher's own head, or None where it has none or it is not known.
      teacher_vocabulary: the teacher's vocabulary, or None where it is not known.
      student_vocabulary: the student's, or None where the student has none of its own yet.
    """

    teacher: EncoderConfig
    student: EncoderConfig
    task: TaskConfig | None
    pairs: bool = False
    teacher_task: TaskConfig | None = None
    teacher_vocabulary: Vocabulary | None = None
    student_vocabulary: Vocabulary | None = None


@dataclass(frozen=True)
class Steps:
    """A stage's duration in updates of the weights."""

    count: int

    def __post_init__(self) -> None:
        raise_if_any(_positive(self, "count"), "Steps")


@dataclass(frozen=True)
class Epochs:
    """A stage's duration in passes over its data."""

    count: int

    def __post_init__(self) -> None:
        raise_if_any(_positive(self, "count"), "Epochs")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How a stage's weights are updated; the optimizers are those of `pocketbert.training.optimizers`.

    Attributes:
      learning_rate: the highest rate.
      algorithm: `adamw` or `lamb`.
      schedule: after the warm-up, `linear` down to 0 at the stage's last step, or `constant`.
      warmup_ratio: part of the stage's steps in which the rate rises from 0.
      warmup_steps: the same as a number of steps; it replaces `warmup_ratio`. In a stage of less than ten times as
        many steps it is a tenth of them, since a rate that never comes down again is nobody's intention.
      weight_decay: decoupled; not on biases and norms.
      clip_norm: the highest global norm of the gradients, or None.
      bias_correction: whether the moments are corrected (Kingma & Ba 2015); BERT's and MobileBERT's code do not.
      beta_1: decay of the gradients' running mean.
      beta_2: decay of the squared gradients' running mean.
      epsilon: added to the root of the latter.
    """

    learning_rate: float
    algorithm: Literal["adamw", "lamb"] = "adamw"
    schedule: ScheduleName = "linear"
    warmup_ratio: float = 0.0
    warmup_steps: int | None = None
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    bias_correction: bool = True
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        problems = _positive(self, "learning_rate", "clip_norm", "epsilon")
        for name in ("warmup_ratio", "weight_decay", "beta_1", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} must lie in [0, 1); received {getattr(self, name)}")
        if self.warmup_steps is not None and self.warmup_steps < 0:
            problems.append(f"warmup_steps must not be negative; received {self.warmup_steps}")
        for name, accepted in (("algorithm", ("adamw", "lamb")), ("schedule", get_args(ScheduleName))):
            if getattr(self, name) not in accepted:
                problems.append(f"{name} must be one of {', '.join(accepted)}; received {getattr(self, name)!r}")
        raise_if_any(problems, "OptimizerConfig")

    def warmup(self, total_steps: int) -> int:
        """Steps of the warm-up in a stage of `total_steps` steps."""
        if self.warmup_steps is None:
            return int(self.warmup_ratio * total_steps)
        return min(self.warmup_steps, total_steps // 10)


def everything(name: str) -> bool:
    """Lets every weight learn; `name` is the weight's."""
    del name
    return True


def one(name: str, step: tf.Tensor) -> float:
    """Leaves every weight's learning rate as it is, in every step."""
    del name, step
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One run of training with one set of losses.

    Weights are named as in the student's model directory (`Model.named_variables`), those of an adapter
    `adapters.NAME.kernel` and `adapters.NAME.bias`.

    Attributes:
      name: a folder's and a curve's name, unique in the run.
      teacher_features: what `Method.targets` reads; empty where the teacher is neither loaded nor read.
      student_features: what `Method.loss` reads.
      weights: term → weight in the sum; exactly the terms that `Method.loss` gives.
      data: plain text, the task's examples, or those with augmented ones.
      max_length: tokens; longer texts are cut, or packed into pieces.
      duration: how long the stage lasts.
      batch_size: examples an update, over all replicas.
      optimizer: how weights are updated.
      micro_batches: parts of a batch that are computed one after the other, for memory; the sum is the same.
      optimizer_state: `carry` goes on with the moments of the stage before.
      trainable: which weights learn, by name.
      learning_rate_multiplier: (name, the stage's step) → factor on a weight's whole change, decay included.
      student_dropout: whether the student's dropout is active.
      keep: `best` keeps the checkpoint with the best development metric, which needs a head that is trained; the
        next stage, and the student that is saved, start from it.
      masked_text: with `data="text"`: tokens are masked as in BERT's pretraining.
      options: the method's options, for its `targets` and `loss`, which get the stage and nothing else of the run.
    """

    name: str
    teacher_features: FeatureRequest
    student_features: FeatureRequest
    weights: Mapping[str, float]
    data: Data
    max_length: int
    duration: Steps | Epochs
    batch_size: int
    optimizer: OptimizerConfig
    micro_batches: int = 1
    optimizer_state: Literal["fresh", "carry"] = "fresh"
    trainable: Callable[[str], bool] = everything
    learning_rate_multiplier: Callable[[str, tf.Tensor], tf.Tensor | float] = one
    student_dropout: bool = True
    keep: Literal["last", "best"] = "last"
    masked_text: bool = False
    options: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        problems = _positive(self, "batch_size", "micro_batches")
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", self.name):
            problems.append(f"name must be of a-z, 0-9, _ and -, to name a folder; received {self.name!r}")
        if not self.weights:
            problems.append("there must be at least one loss term; received no weights")
        problems += [f"the weight of {term} must be >= 0; received {w}" for term, w in self.weights.items() if w < 0]
        if not self.student_features:
            problems.append("a loss must read something of the student; received no student_features")
        if self.max_length < 3:
            problems.append(f"max_length must leave room for a token between two special ones; got {self.max_length}")
        if self.micro_batches > 0 and self.batch_size % self.micro_batches:
            problems.append(
                f"batch_size must divide into micro_batches; received {self.batch_size} and {self.micro_batches}"
            )
        for name, accepted in (
            ("data", get_args(Data)),
            ("optimizer_state", ("fresh", "carry")),
            ("keep", ("last", "best")),
        ):
            if getattr(self, name) not in accepted:
                problems.append(f"{name} must be one of {', '.join(accepted)}; received {getattr(self, name)!r}")
        if self.masked_text and self.data != "text":
            problems.append(f"masked_text is for data='text'; received data={self.data!r}")
        raise_if_any(problems, f"stage {self.name}")

    def describe(self) -> dict[str, Any]:
        """The stage as JSON values, for a run's records; functions are left out, `options` say what made them."""
        described: dict[str, Any] = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if callable(value):
                continue
            if isinstance(value, Mapping):
                value = {key: list(v) if isinstance(v, tuple) else v for key, v in value.items()}
            elif isinstance(value, Steps | Epochs):
                value = {type(value).__name__.lower(): value.count}
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                value = dataclasses.asdict(value)
            described[item.name] = value
        return described


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
        come with fresh weights of zeros and ones, as layers of this package do; the run draws their values.
        """

    def mismatches(self, setting: Setting, options: Any) -> list[str]:
        """Everything of this method's own that cannot match, each with what was received and a remedy."""

    def initialize(self, teacher: Model | None, student: Model, options: Any) -> None:
        """Copies what the method copies from teacher to student before training; `teacher` is None with a store."""

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
    problems = [*vocabulary_mismatches(setting), *method.mismatches(setting, options)]
    stages: tuple[Stage, ...] = ()
    try:
        stages = tuple(method.stages(setting, options))
    except UserError as error:
        # What keeps the stages from being made is often among the mismatches already.
        if not problems:
            problems.append(str(error))
    for stage in stages:
        problems += _stage_mismatches(stage, setting)
    if any("logits" in stage.teacher_features for stage in stages):
        problems += label_mismatches(setting)
    names = [stage.name for stage in stages]
    if len(set(names)) != len(names):
        problems.append(f"stages must have names of their own; received {', '.join(names)}")
    raise_if_any(dict.fromkeys(problems), f"{method.name}: this teacher and student do not fit")
    return stages


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
    if known[0] is None or known[1] is None:
        return problems
    if known[0].lowercase != known[1].lowercase:
        problems.append(
            f"both need one way to cut texts; the teacher has lowercase={known[0].lowercase}, the student "
            f"lowercase={known[1].lowercase}; {remedy}"
        )
    if teacher.vocab_size == student.vocab_size:
        from pocketbert.tokenizers.vocabulary import read_vocabulary

        pieces = zip(read_vocabulary(known[0].path), read_vocabulary(known[1].path), strict=False)
        differ = [(index, *pair) for index, pair in enumerate(pieces) if pair[0] != pair[1]]
        if differ:
            index, ours, theirs = differ[0]
            problems.append(
                f"both need one vocabulary; {known[0].path} and {known[1].path} differ in {len(differ)} pieces, the "
                f"first at id {index}: {ours!r} and {theirs!r}; {remedy}"
            )
    return problems


def head_count_mismatches(setting: Setting) -> list[str]:
    """What keeps the attention of single heads from being compared; for methods that do."""
    teacher, student = setting.teacher.num_attention_heads, setting.student.num_attention_heads
    if teacher == student:
        return []
    return [f"attention is matched head by head; the teacher has {teacher} heads, the student {student}"]


def label_mismatches(setting: Setting) -> list[str]:
    """What keeps the teacher's logits from being the student's targets."""
    ours, theirs = setting.task, setting.teacher_task
    if ours is None or theirs is None:
        return []
    if ours.kind != theirs.kind:
        return [f"the teacher must be fine-tuned for {ours.kind}; it has a head for {theirs.kind}; fine-tune it first"]
    if ours.labels != theirs.labels:
        return [
            f"the teacher's labels must be the task's, in this order: {', '.join(ours.labels)}; received "
            f"{', '.join(theirs.labels)}; fine-tune the teacher on this task, or give its labels as --labels"
        ]
    return []


def _stage_mismatches(stage: Stage, setting: Setting) -> list[str]:
    problems = []
    sides = [("student", setting.student, stage.student_features)]
    if stage.teacher_features:
        sides.append(("teacher", setting.teacher, stage.teacher_features))
    for side, config, request in sides:
        if stage.max_length > config.max_positions:
            problems.append(
                f"stage {stage.name} has texts of {stage.max_length} tokens; the {side} has {config.max_positions} "
                "positions; lower the length"
            )
        for name, layers in request.items():
            lowest = 0 if name == "hidden_states" else 1
            outside = [layer for layer in layers if not lowest <= layer <= config.num_layers]
            if outside:
                problems.append(
                    f"stage {stage.name} reads {name} of the {side}'s layers {', '.join(map(str, outside))}; it has "
                    f"layers {lowest} to {config.num_layers}"
                )
    if "logits" in stage.student_features and setting.task is None:
        problems.append(f"stage {stage.name} reads logits; general distillation has no task; give one")
    return problems


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """One option of a method.

    Attributes:
      name: the field's name; the flag's has hyphens.
      type: the annotation as text, for example `int | None` or `tuple[str, ...]`.
      default: the default; None often means that it depends on the task.
      help: the option's text in the dataclass' docstring.
    """

    name: str
    type: str
    default: Any
    help: str


def describe_options(options: type) -> tuple[OptionField, ...]:
    """A method's options as they appear in flags, `--help` and docs.

    Annotations are of these forms, the last three with `| None` behind them or not: `bool`, `tuple[str, ...]`,
    `Literal[...]`, `str`, `int`, `float`.

    Raises:
      ValueError: a field has no default or no text in the docstring's `Attributes:` section.
    """
    texts = _attribute_texts(inspect.getdoc(options) or "")
    described = []
    for item in dataclasses.fields(options):
        default = item.default_factory() if callable(item.default_factory) else item.default
        if default is dataclasses.MISSING:
            raise ValueError(f"{options.__name__}.{item.name} must have a default; received none")
        if item.name not in texts:
            raise ValueError(f"{options.__name__}.{item.name} must be described in the class docstring; it is not")
        described.append(OptionField(name=item.name, type=str(item.type), default=default, help=texts[item.name]))
    return tuple(described)


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Field → text of the `Attributes:` section of a Google-style docstring, as `inspect.getdoc` gives it."""
    texts: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Attributes:\n")[2].splitlines():
        if line and not line.startswith(" "):
            break
        entry = re.match(r"  (\w+): (.*)", line)
        if entry:
            name = entry[1]
            texts[name] = entry[2]
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return texts


def _positive(value: Any, *names: str) -> list[str]:
    return [
        f"{name} must be positive; received {getattr(value, name)}"
        for name in names
        if getattr(value, name) is not None and not getattr(value, name) > 0
    ]
