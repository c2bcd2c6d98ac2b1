"""A stage: its data, losses, optimizer, duration and trained weights. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import raise_if_any

if TYPE_CHECKING:
    import tensorflow as tf

# Feature → layers, for example {"hidden_states": (0, 3), "attention_logits": (3,), "logits": ()}.
FeatureRequest: TypeAlias = Mapping[str, tuple[int, ...]]
Data = Literal["text", "pretraining", "task", "augmented"]
ScheduleName = Literal["linear", "cosine", "constant"]
# Loss terms with labels, in every objective → their labels.
LABEL_TERMS = {
    "labels": "labels",
    "masked_lm": "masked_lm_labels",
    "next_sentence": "next_sentence_labels",
}


@dataclass(frozen=True)
class Steps:
    """Stage duration in weight updates."""

    count: int

    def __post_init__(self) -> None:
        raise_if_any(_positive(self, "count"), "Steps")


@dataclass(frozen=True)
class Epochs:
    """Stage duration in passes over the data."""

    count: int

    def __post_init__(self) -> None:
        raise_if_any(_positive(self, "count"), "Epochs")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Optimizer for a stage; see `pocketbert.training.optimizers`.

    Attributes:
      learning_rate: peak learning rate.
      algorithm: `adamw` or `lamb`.
      schedule: schedule after the warm-up: `linear` or `cosine` to 0 at the last step, or `constant`.
      warmup_ratio: share of the steps for warm-up.
      warmup_steps: warm-up steps, instead of `warmup_ratio`; at most a tenth of the stage.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm, or None.
      bias_correction: whether to correct the moments' bias (Kingma & Ba 2015); BERT's and MobileBERT's code do not.
      beta_1: decay of the first moment.
      beta_2: decay of the second moment.
      epsilon: added to the second moment's root.
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
        """Returns the warm-up steps for a stage with `total_steps` steps."""
        if self.warmup_steps is None:
            return int(self.warmup_ratio * total_steps)
        return min(self.warmup_steps, total_steps // 10)


def all_trainable(name: str) -> bool:
    """Trains every weight."""
    del name
    return True


def unit_multiplier(name: str, step: tf.Tensor) -> float:
    """Multiplies every learning rate by 1."""
    del name, step
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One phase of training with one set of losses.

    Weight names are those in the student's model directory (`Model.named_variables`), and `adapters.NAME.kernel` and
    `adapters.NAME.bias` for an adapter.

    Attributes:
      name: unique name for a folder and curves; empty if the run has one stage.
      teacher_features: teacher features for `Method.targets`; empty if the stage needs no teacher.
      student_features: features of the trained model for `Objective.loss`.
      weights: term → weight in the sum, for all terms in `Objective.loss`. The loss gets labels for those in
        `LABEL_TERMS`.
      data: `text` (plain text), `pretraining` (segment pairs with masked tokens), `task` (task examples) or `augmented`
        (task examples with augmented ones).
      max_length: maximum sequence length; longer texts are truncated, plain text is packed into inputs.
      duration: duration in steps or epochs.
      max_steps: most steps, if the duration has more.
      batch_size: examples per update, over all replicas.
      optimizer: the optimizer.
      micro_batches: parts per batch, to save memory; the update is the same.
      optimizer_state: `carry` keeps the previous stage's moments.
      trainable: weight name → whether to train it.
      learning_rate_multiplier: (weight name, step in the stage) → factor on the whole update, including decay.
      label_smoothing: share of equal probabilities in the labels for `LABEL_TERMS`.
      rate_factors: weight name → further learning rate factor; 1 for the others.
      student_dropout: whether the student uses dropout.
      keep: `last`, or `best` for the checkpoint with the best dev metric; this requires a trained head. The next stage
        and the saved student start from the kept weights.
      short_epoch_steps: steps between evaluations if an epoch has fewer than 50 steps; None for one after each epoch.
      calibrate: scale the kept logits by a temperature fitted on the dev split.
      evaluations: evaluations, spaced evenly over the stage; None for one after each epoch.
      masked_text: for `data="text"`: mask tokens as in BERT's pretraining.
      text_segments: for `data="text"`: segments per input, 1 or 2 (`pocketbert.data.packing.pack`).
      task: task for the term `labels`, or None.
      options: method options for `targets` and `loss`.
    """

    name: str
    teacher_features: FeatureRequest = field(default_factory=dict)
    student_features: FeatureRequest
    weights: Mapping[str, float]
    data: Data
    max_length: int
    duration: Steps | Epochs
    batch_size: int
    optimizer: OptimizerConfig
    max_steps: int | None = None
    micro_batches: int = 1
    optimizer_state: Literal["fresh", "carry"] = "fresh"
    trainable: Callable[[str], bool] = all_trainable
    learning_rate_multiplier: Callable[[str, tf.Tensor], tf.Tensor | float] = unit_multiplier
    label_smoothing: float = 0.0
    rate_factors: Mapping[str, float] = field(default_factory=dict)
    student_dropout: bool = True
    keep: Literal["last", "best"] = "last"
    evaluations: int | None = None
    short_epoch_steps: int | None = None
    calibrate: bool = False
    masked_text: bool = False
    text_segments: Literal[1, 2] = 1
    task: TaskConfig | None = None
    options: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        problems = _positive(self, "batch_size", "max_steps", "micro_batches", "evaluations")
        if not re.fullmatch(r"([a-z0-9][a-z0-9_-]*)?", self.name):
            problems.append(f"name must consist of a-z, 0-9, _ and -, as a folder name; received {self.name!r}")
        if not self.weights:
            problems.append("there must be at least one loss term; received no weights")
        problems += [f"the weight of {term} must be >= 0; received {w}" for term, w in self.weights.items() if w < 0]
        if not self.student_features:
            problems.append("a loss must read at least one feature of the student; received no student_features")
        if self.max_length < 3:
            problems.append(f"max_length must be at least 3, for one token and two special ones; got {self.max_length}")
        problems += part_problems(self.batch_size, self.micro_batches)
        for name, accepted in (
            ("data", get_args(Data)),
            ("optimizer_state", ("fresh", "carry")),
            ("keep", ("last", "best")),
            ("text_segments", (1, 2)),
        ):
            if getattr(self, name) not in accepted:
                problems.append(
                    f"{name} must be one of {', '.join(map(str, accepted))}; received {getattr(self, name)!r}"
                )
        if self.masked_text and self.data != "text":
            problems.append(f"masked_text is for data='text'; received data={self.data!r}")
        if self.text_segments != 1 and self.data != "text":
            problems.append(f"text_segments is for data='text'; received data={self.data!r}")
        for term, name in LABEL_TERMS.items():
            if term in self.weights and (name == "labels") == (self.data in ("text", "pretraining")):
                problems.append(f"the term {term} reads {name}, which data={self.data!r} does not have")
        raise_if_any(problems, f"stage {self.name}")

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels for the loss."""
        return tuple(name for term, name in LABEL_TERMS.items() if term in self.weights)

    def describe(self) -> dict[str, Any]:
        """Returns the stage as JSON values, for the record. It omits functions, because `options` determine them."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items() if not callable(value)}


def part_problems(batch_size: int, micro_batches: int) -> list[str]:
    """Reports micro-batches that do not divide the batch evenly."""
    if micro_batches < 1 or not batch_size % micro_batches:
        return []
    return [f"batch_size must divide into micro_batches; received {batch_size} and {micro_batches}"]


def position_problems(side: str, config: EncoderConfig, stages: Iterable[Stage]) -> list[str]:
    """Reports the longest stage if its sequences exceed the model's positions."""
    longest = max(stages, key=lambda stage: stage.max_length, default=None)
    if longest is None or longest.max_length <= config.max_position_embeddings:
        return []
    return [
        f"stage {longest.name} has texts of {longest.max_length} tokens; the {side} has "
        f"{config.max_position_embeddings} positions; lower the length"
    ]


def _plain(value: Any) -> Any:
    """Converts a stage value to types that JSON preserves."""
    if isinstance(value, Steps | Epochs):
        return {type(value).__name__.lower(): value.count}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _positive(value: Any, *names: str) -> list[str]:
    return [
        f"{name} must be positive; received {getattr(value, name)}"
        for name in names
        if getattr(value, name) is not None and not getattr(value, name) > 0
    ]
