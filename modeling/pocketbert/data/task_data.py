"""Training data of a run: a task with its examples, or plain text. `PretrainingData` is the third kind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task and its examples.

    Attributes:
      task: classification, multi_label, regression or span.
      train: examples, labelled where a stage learns from their labels; of spans a file of questions.
      dev: labelled ones, for the metrics that choose the best checkpoint.
      metrics: names for `pocketbert.tasks.metrics.compute`, or of questions' scores; none for the task's own.
      main_metric: the one of them that chooses; empty for the task's own.
      augmented: the training examples with augmented ones, labelled likewise; None takes the training examples alone.
    """

    task: TaskConfig
    train: LabelledData
    dev: LabelledData
    metrics: Sequence[str] = ()
    main_metric: str = ""
    augmented: LabelledData | None = None


@dataclass(frozen=True)
class TextData:
    """Plain text, for distillation without a task.

    Attributes:
      path: a file, or a folder such as WikiExtractor's.
    """

    path: Path

    def __init__(self, path: str | os.PathLike[str]) -> None:
        object.__setattr__(self, "path", Path(path))
