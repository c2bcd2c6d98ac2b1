"""What a distillation is told beside its method's options, and what it answers. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pocketbert.errors import raise_if_any


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a distillation is run, whatever the method.

    Attributes:
      precision: `float32`, or `bfloat16` for teacher and student to compute in; weights and losses stay float32.
      seed: of fresh weights, dropout, masking and the order of examples.
      evaluation_steps: evaluate every so many steps, and after each epoch, in stages that train a head; None: only
        after each epoch.
      patience: end a stage after so many evaluations in a row without a new best; None: never.
      checkpoint_seconds: seconds between checkpoints; it does not change the result.
    """

    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    evaluation_steps: int | None = None
    patience: int | None = None
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        for name in ("evaluation_steps", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                problems.append(f"{name} must be positive; received {value}")
        for name in ("seed", "checkpoint_seconds"):
            if getattr(self, name) < 0:
                problems.append(f"{name} must not be negative; received {getattr(self, name)}")
        if self.precision not in ("float32", "bfloat16"):
            problems.append(f"precision must be one of float32, bfloat16; received {self.precision!r}")
        raise_if_any(problems, "run options")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillResult:
    """What a finished distillation gave.

    Attributes:
      model: the student's model directory, as the last stage left it.
      main_metric: the metric that chose it; empty after general distillation.
      metrics: the student's on the development examples; empty after general distillation.
      teacher_metrics: the teacher's on the same examples; None where it was not loaded or has no head.
      seed: the run's.
      best_step: steps taken before the evaluation that `metrics` is of.
      steps: steps taken in all stages.
      seconds: training and evaluation, over all attempts.
      stages: of each stage its name, `steps`, `metrics` and `best_step`.
    """

    model: str
    main_metric: str
    metrics: dict[str, float]
    teacher_metrics: dict[str, float] | None
    seed: int
    best_step: int
    steps: int
    seconds: float
    stages: list[dict[str, Any]]
