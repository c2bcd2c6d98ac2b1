"""All that is known of a run, and checked, before anything is written."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.text import text_files
from pocketbert.files import sha256
from pocketbert.progress import track
from pocketbert.training.config import RunConfig
from pocketbert.training.initialization import ModelInit
from pocketbert.training.objective import Objective
from pocketbert.training.stage import Stage
from pocketbert.training.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A run before its first step.

    Attributes:
      objective: the losses.
      options: the objective's, as JSON values, for the record.
      stages: what it does.
      run: how it is run.
      start: where the model comes from.
      tasks: its heads.
      vocabulary: what cuts its texts.
      data: what it learns from, and is evaluated on.
      windows: other fields of `WindowOptions`, for questions on paragraphs.
      evaluation_batch_size: development examples a call of the model.
    """

    objective: Objective
    options: Mapping[str, Any]
    stages: tuple[Stage, ...]
    run: RunConfig
    start: ModelInit
    tasks: tuple[TaskConfig, ...]
    vocabulary: Vocabulary
    data: TaskData | TextData | PretrainingData
    windows: Mapping[str, Any] = field(default_factory=dict)
    # Nothing has to be kept for gradients.
    evaluation_batch_size: int = 32

    @property
    def main_metric(self) -> str:
        """What choices are made by; empty where nothing is evaluated."""
        if isinstance(self.data, TaskData):
            return self.data.main_metric
        if isinstance(self.data, TextData) or self.data.dev is None:
            return ""
        return "masked_lm_accuracy"

    def recorded(self) -> dict[str, Any]:
        """All that decides the result, as JSON values, for a run's `run.json`."""
        recorded = {"objective": self.objective.name, **self.run.recorded(), **self.options, **self.start.recorded()}
        data = self.data
        if isinstance(data, TextData):
            recorded["text_sha256"] = _text_digest(data.path)
        elif isinstance(data, TaskData):
            recorded |= {f"task_{name}": value for name, value in dataclasses.asdict(data.task).items()}
            recorded |= {"metrics": list(data.metrics), "main_metric": data.main_metric}
            for name in ("train", "dev", "augmented"):
                examples = getattr(data, name)
                recorded[f"{name}_sha256"] = None if examples is None else examples.identity
        else:
            recorded["pretraining_sha256"] = data.identity
            recorded["dev_pretraining_sha256"] = None if data.dev is None else data.dev.identity
        return recorded


def _text_digest(path: Path) -> str:
    """SHA-256 of a text's files in the order of their reading; where they lie, and since when, does not matter."""
    digests = [sha256(file) for file in track(text_files(path), "hash the text", "file")]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()
