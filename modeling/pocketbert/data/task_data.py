"""Training data for a run: a task with its examples, or plain text. See also `PretrainingData`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert_runtime.task_config import described_task


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskData:
    """A task and its examples.

    Attributes:
      task: classification, multi_label, regression, span or another supervised task.
      train: training examples, with labels if a stage learns from them; a `QuestionFile` for spans.
      dev: labelled dev split, to select the best checkpoint.
      metrics: names for `pocketbert.tasks.metrics.compute`, or question scores; empty for the task's defaults.
      main_metric: metric to select the checkpoint; empty for the task's default.
      augmented: original and augmented training examples together; None for the originals only.
      unlabelled: unlabelled texts; distillation learns the teacher's predictions for them. None without them.
      least_confidence: leave out unlabelled texts if the teacher's best label has a lower probability; None for all.
      undivided: `train` and `dev` together, if the dev split was drawn; None if it was passed.
      test: labelled examples for the final score of `pb.compress`; nothing else reads them.
    """

    task: TaskConfig
    train: LabelledData
    dev: LabelledData
    metrics: Sequence[str] = ()
    main_metric: str = ""
    augmented: LabelledData | None = None
    unlabelled: LabelledData | None = None
    least_confidence: float | None = None
    undivided: LabelledData | None = None
    test: LabelledData | None = None

    def __repr__(self) -> str:
        more = "" if self.augmented is None else f", {len(self.augmented)} augmented"
        more += "" if self.unlabelled is None else f", {len(self.unlabelled)} unlabelled"
        counts = f"{len(self.train)} training and {len(self.dev)} dev examples{more}"
        return f"<TaskData {described_task(self.task)}: {counts} of {self.train.source}>"


def described_network(config: EncoderConfig, tasks: Sequence[TaskConfig], shapes: Iterable[Sequence[int]]) -> str:
    """Describes a network in a few words."""
    heads = "; ".join(map(described_task, tasks)) or "no head"
    parameters = sum(math.prod(shape) for shape in shapes)
    layers = f"{config.num_layers} layers of {config.hidden_size}"
    return f"{config.model_type}: {layers}, {parameters:,} parameters, {heads}"


@dataclass(frozen=True)
class TextData:
    """Plain text, for distillation without a task and for masked LM.

    Attributes:
      path: a file, or a folder such as WikiExtractor's output.
      dev: text in the same formats for masked LM's dev part, or None.
    """

    path: Path
    dev: Path | None = None

    def __init__(self, path: str | os.PathLike[str], dev: str | os.PathLike[str] | None = None) -> None:
        object.__setattr__(self, "path", Path(path))
        object.__setattr__(self, "dev", None if dev is None else Path(dev))
