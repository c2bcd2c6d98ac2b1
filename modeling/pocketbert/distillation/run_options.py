"""What a distillation is told beside its method's options, and what it answers. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

from pocketbert.errors import raise_if_any
from pocketbert.options import option_problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of every training run.

    Attributes:
      precision: computation in `float32` or `bfloat16`; weights and losses stay float32.
      teacher_precision: precision of a live teacher (default: as the student). `bfloat16` is faster on hardware that
        supports it; targets then have two to three digits.
      seed: seed of new weights, dropout, masking and example order.
      evaluation_steps: evaluate every so many steps, not only after each epoch, in stages with a head or a dev split.
      evaluation_batches: maximum number of dev batches with 32 pretraining examples, always the same; the default has
        about 50,000 masked tokens.
      whole_words: mask whole words in pretraining examples; the dev split keeps its masks.
      patience: stop a stage after so many evaluations without improvement.
      checkpoint_seconds: seconds between checkpoints; it does not change the result.
      distribution: which devices share each batch. `one`: TensorFlow's default, one GPU or the processors.
        `mirrored`: all GPUs of this machine. `multi-worker`: several machines, each of which runs this command with its
        own TF_CONFIG and sees the same files; the first writes. `tpu`: a TPU of this machine, no pod; nobody has tried
        this on one yet.
      tpu: the TPU's name or address, for `tpu`.
    """

    GROUP: ClassVar = "Run"
    COMMON: ClassVar = ("precision",)

    precision: Literal["float32", "bfloat16"] = "float32"
    teacher_precision: Literal["float32", "bfloat16"] | None = None
    seed: int = 0
    evaluation_steps: int | None = None
    evaluation_batches: int = 100
    whole_words: bool = False
    patience: int | None = None
    checkpoint_seconds: float = 60.0
    distribution: Literal["one", "mirrored", "multi-worker", "tpu"] = "one"
    tpu: str | None = None

    def __post_init__(self) -> None:
        problems = option_problems(self, may_be_zero=("seed", "checkpoint_seconds"))
        if self.tpu and self.distribution != "tpu":
            problems.append(f"a TPU's name is for distribution tpu; received {self.tpu!r} with {self.distribution!r}")
        raise_if_any(problems, "run options")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillResult:
    """What a finished distillation or pretraining gave.

    Attributes:
      model: the student's model directory, as the last stage left it.
      main_metric: the metric that chose it, or by which runs are compared; empty where nothing was evaluated.
      metrics: the student's on the development examples; empty likewise.
      teacher_metrics: the teacher's on the same examples; with a store those that `cache-teacher` measured. None where
        there is no teacher, it has no head for the task, or nobody measured it on these examples.
      seed: the run's.
      best_step: steps taken before the evaluation that `metrics` is of.
      steps: steps taken in all stages.
      seconds: training and evaluation, over all attempts.
      stages: of each stage its name, `steps`, `metrics` and `best_step`.
      activation_range: the largest activations in each layer of a student with NoNorm, on a few training examples, and
        what float16 would make of them, as `pocketbert.activation_stats.ActivationRange.to_json` gives it; None for
        others.
      baseline: a constant answer and its metrics on the development examples, as `pocketbert.tasks.scores.Scores`
        has it; None without a task, or where no constant answer is right.
      positive_label: the class that F1 is about, or None.
      warnings: what makes the metrics worthless.
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
    activation_range: dict[str, Any] | None = None
    baseline: dict[str, Any] | None = None
    positive_label: str | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
