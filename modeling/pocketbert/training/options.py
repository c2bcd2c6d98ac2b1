"""What a fine-tuning run is told, and what it answers."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from pocketbert.errors import UserError, raise_if_any
from pocketbert.training.class_weights import parse_class_weights

# What a grid cannot vary: the seed has its own place there, the checkpoints do not change a result, and labels, which
# class_weights may have, do not fit into the names of folders.
FIXED_IN_A_GRID = ("seed", "checkpoint_seconds", "class_weights")
# What answering questions alone uses.
WINDOW_OPTIONS = ("stride", "max_question_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """How to fine-tune. The defaults are BERT's (Devlin et al. 2019, appendix A.3).

    Attributes:
      learning_rate: peak learning rate.
      schedule: schedule after the warm-up: `linear` to 0, or `constant`.
      warmup_ratio: share of steps for warm-up.
      epochs: passes over the training examples.
      batch_size: batch size.
      max_length: maximum sequence length; longer texts are truncated, paragraphs read in windows (384 for questions
        where not given).
      stride: distance between windows in tokens (default: a third of --max-length).
      max_question_tokens: maximum question length; longer questions are truncated.
      weight_decay: decoupled weight decay, except for biases and norms.
      clip_norm: maximum global gradient norm.
      precision: computation in `float32` or `bfloat16`; weights stay float32.
      class_weights: class weights in the loss: `none`, `balanced` or `label=weight,…`.
      seed: seed of the new head, dropout and example order.
      evaluation_steps: evaluate every so many steps, not only after each epoch.
      patience: stop after so many evaluations without improvement.
      checkpoint_seconds: seconds between checkpoints; it does not change the result.
    """

    GROUP: ClassVar = "Training"
    COMMON: ClassVar = ("learning_rate", "epochs", "batch_size", "max_length", "precision", "patience")

    learning_rate: float = 3e-5
    schedule: Literal["linear", "constant"] = "linear"
    warmup_ratio: float = 0.1
    epochs: int = 3
    batch_size: int = 32
    max_length: int = 128
    stride: int | None = None
    max_question_tokens: int = 64
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    class_weights: str = "none"
    seed: int = 0
    evaluation_steps: int | None = None
    patience: int | None = None
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        for name in ("learning_rate", "epochs", "batch_size", "clip_norm", "evaluation_steps", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                problems.append(f"{name} must be positive; received {value}")
        for name in ("warmup_ratio", "weight_decay"):
            if not 0 <= getattr(self, name) < 1:
                problems.append(f"{name} must lie in [0, 1); received {getattr(self, name)}")
        if self.max_length < 3:
            problems.append(f"max_length must leave room for a token between two special ones; got {self.max_length}")
        if self.seed < 0:
            problems.append(f"seed must not be negative; received {self.seed}")
        if self.checkpoint_seconds < 0:
            problems.append(f"checkpoint_seconds must not be negative; received {self.checkpoint_seconds}")
        for name, accepted in (("schedule", ("linear", "constant")), ("precision", ("float32", "bfloat16"))):
            if getattr(self, name) not in accepted:
                problems.append(f"{name} must be one of {', '.join(accepted)}; received {getattr(self, name)!r}")
        try:
            parse_class_weights(self.class_weights)
        except UserError as error:
            problems.append(str(error))
        raise_if_any(problems, "fine-tuning options")

    def windows(self) -> dict[str, Any]:
        """How paragraphs are cut: fields of `WindowOptions`."""
        return {name: getattr(self, name) for name in WINDOW_OPTIONS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneResult:
    """What a finished run gave.

    Attributes:
      model: the best checkpoint's model directory.
      main_metric: the metric that chose it.
      metrics: its metrics on the development examples.
      baseline: the constant answer and its metrics on them, as `pocketbert.tasks.scores.Scores` has it.
      seed: the run's.
      best_step: steps taken before the best evaluation.
      steps: steps taken in all.
      seconds: training and evaluation, over all attempts.
      activation_range: the largest activations in each layer of a model with NoNorm, on a few training examples, and
        what float16 would make of them, as `pocketbert.activation_stats.ActivationRange.to_json` gives it; None for
        others.
      positive_label: the class that F1 is about, or None.
      classes: the results of each class, as `pocketbert.tasks.metrics.class_results` gives them, or None.
      warnings: what makes the scores worthless.
    """

    model: str
    main_metric: str
    metrics: dict[str, float]
    seed: int
    best_step: int
    steps: int
    seconds: float
    activation_range: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    positive_label: str | None = None
    classes: dict[str, Any] | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
