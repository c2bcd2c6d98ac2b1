"""A stage: one run of training with one set of losses, and how its weights are updated.

Nothing here imports TensorFlow.
"""

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
ScheduleName = Literal["linear", "constant"]
# The terms of a loss that may read labels, in every method, and the labels that each may read.
LABEL_TERMS = {
    "labels": "labels",
    "masked_lm": "masked_lm_labels",
    "next_sentence": "next_sentence_labels",
}


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
      learning_rate: peak learning rate.
      algorithm: `adamw` or `lamb`.
      schedule: after the warm-up, `linear` down to 0 at the stage's last step, or `constant`.
      warmup_ratio: part of the stage's steps in which the rate rises from 0.
      warmup_steps: the same as a number of steps; it replaces `warmup_ratio`. In a stage of less than ten times as
        many steps it is a tenth of them, since a rate that never comes down again is nobody's intention.
      weight_decay: decoupled weight decay, except for biases and norms.
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


def all_trainable(name: str) -> bool:
    """Lets every weight learn; `name` is the weight's."""
    del name
    return True


def unit_multiplier(name: str, step: tf.Tensor) -> float:
    """Leaves every weight's learning rate as it is, in every step."""
    del name, step
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One run of training with one set of losses.

    Weights are named as in the student's model directory (`Model.named_variables`), those of an adapter
    `adapters.NAME.kernel` and `adapters.NAME.bias`.

    Attributes:
      name: a folder's and a curve's name, unique in the run; empty where the run has no stages to tell apart.
      teacher_features: what `Method.targets` reads; empty where the teacher is neither loaded nor read.
      student_features: what `Objective.loss` reads of the model that is trained.
      weights: term → weight in the sum; exactly the terms that `Method.loss` gives. A loss is given labels of those
        `LABEL_TERMS` alone that are among them.
      data: plain text, pretraining examples (pairs of segments with masked tokens), the task's examples, or those
        with augmented ones.
      max_length: tokens; longer texts are cut, or packed into inputs.
      duration: how long the stage lasts.
      batch_size: examples an update, over all replicas.
      optimizer: how weights are updated.
      micro_batches: parts of a batch that are computed one after the other, for memory; the sum is the same.
      optimizer_state: `carry` keeps the moments of the stage before.
      trainable: which weights learn, by name.
      learning_rate_multiplier: (name, the stage's step) → factor on a weight's whole change, decay included.
      student_dropout: whether the student's dropout is active.
      keep: `best` keeps the checkpoint with the best development metric, which needs a head that is trained; the
        next stage, and the student that is saved, start from it.
      evaluations: so many, evenly over the stage, in place of one after each pass over its data; None: those.
      masked_text: with `data="text"`: tokens are masked as in BERT's pretraining.
      text_segments: with `data="text"`: segments of an input, 1 or 2 (`pocketbert.data.packing.pack`).
      task: whose loss the term `labels` is; None where there is no such term.
      options: the method's options, for its `targets` and `loss`, which get the stage and nothing else of the run.
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
    micro_batches: int = 1
    optimizer_state: Literal["fresh", "carry"] = "fresh"
    trainable: Callable[[str], bool] = all_trainable
    learning_rate_multiplier: Callable[[str, tf.Tensor], tf.Tensor | float] = unit_multiplier
    student_dropout: bool = True
    keep: Literal["last", "best"] = "last"
    evaluations: int | None = None
    masked_text: bool = False
    text_segments: Literal[1, 2] = 1
    task: TaskConfig | None = None
    options: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        problems = _positive(self, "batch_size", "micro_batches", "evaluations")
        if not re.fullmatch(r"([a-z0-9][a-z0-9_-]*)?", self.name):
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
        """What the loss is given of a batch beside the model's inputs."""
        return tuple(name for term, name in LABEL_TERMS.items() if term in self.weights)

    def describe(self) -> dict[str, Any]:
        """The stage as JSON values, for a run's records; functions are left out, `options` say what made them."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items() if not callable(value)}


def position_problems(side: str, config: EncoderConfig, stages: Iterable[Stage]) -> list[str]:
    """Texts that are longer than a model takes; said once, though a method may have a stage for each layer."""
    longest = max(stages, key=lambda stage: stage.max_length, default=None)
    if longest is None or longest.max_length <= config.max_position_embeddings:
        return []
    return [
        f"stage {longest.name} has texts of {longest.max_length} tokens; the {side} has "
        f"{config.max_position_embeddings} positions; lower the length"
    ]


def _plain(value: Any) -> Any:
    """A value of a stage as JSON gives it back."""
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
