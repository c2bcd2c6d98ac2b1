"""The plan of a run, made and validated before the run writes files."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.errors import UserError
from pocketbert.tokenizers.vocabulary import Vocabulary
from pocketbert.training.config import RunConfig
from pocketbert.training.frozen_weights import FrozenWeights, freeze, outline
from pocketbert.training.initialization import ModelInit
from pocketbert.training.objective import Objective
from pocketbert.training.run_data import Data, RunData, TaskRunData, TextRunData
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A run before its first step.

    Attributes:
      objective: the losses.
      options: options of the objective, as JSON values, for the record.
      stages: the stages, in order.
      run: options of the run.
      start: the model and its initial weights.
      tasks: one task per head.
      vocabulary: vocabulary that tokenizes the texts.
      data: training examples and dev split.
      data_notes: warnings about the data; they do not change the run.
      windows: fields of `WindowOptions`, for questions on paragraphs.
      evaluation_batch_size: dev examples per call of the model.
      new_head: do not keep the head of a model directory; None keeps it in a run without this option.
      frozen: weights that no stage trains.
    """

    # Prefix of the model's values in the record.
    ROLE: ClassVar = "model"

    objective: Objective
    options: Mapping[str, Any]
    stages: tuple[Stage, ...]
    run: RunConfig
    start: ModelInit
    tasks: tuple[TaskConfig, ...]
    vocabulary: Vocabulary
    data: RunData
    data_notes: tuple[str, ...] = ()
    windows: Mapping[str, Any] = field(default_factory=dict)
    evaluation_batch_size: int = 32
    new_head: bool | None = None
    frozen: FrozenWeights = FrozenWeights()
    _encoded: dict[tuple[str, int, int], EncodedExamples | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.frozen_paths:
            object.__setattr__(self, "stages", freeze(self.stages, self.frozen_paths, self.start.config, self.tasks))

    @functools.cached_property
    def frozen_paths(self) -> tuple[str, ...]:
        """Paths of the weights that no stage trains."""
        return self.frozen.in_run(self.start.config, self.tasks, new_head=self.new_head)

    @functools.cached_property
    def frozen_parts(self) -> list[str]:
        """The same weights, with one prefix for all weights of a layer."""
        return outline(self.frozen_paths, self.start.config, self.tasks)

    @property
    def main_metric(self) -> str:
        """Metric that selects the best checkpoint; empty without an evaluation."""
        return self.data.main_metric

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the run."""
        from pocketbert.tokenizers.opening import open_tokenizer

        return open_tokenizer(self.vocabulary)

    def encoded(self, stage: Stage) -> EncodedExamples | None:
        """Token ids of a stage's examples, made on first use; None for data in records."""
        key = self.data.part(stage), stage.max_length, stage.text_segments
        if key not in self._encoded:
            self._encoded[key] = self.data.encoded(stage, self.tokenizer, self.run.seed, self.windows)
        return self._encoded[key]

    def recorded(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values, for `run.json`."""
        return {
            "objective": self.objective.name,
            **self.run.recorded(),
            **self.options,
            **self.start.recorded(self.ROLE),
            **self.data.recorded(),
            **({"frozen": self.frozen_parts} if self.frozen_parts else {}),
        }


def open_data(data: Data) -> RunData:
    """Wraps the data that a user gives.

    Raises:
      UserError: `data` is none of the three kinds.
    """
    if isinstance(data, TaskData):
        return TaskRunData(data)
    if isinstance(data, TextData):
        return TextRunData(data)
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.training.pretraining_run_data import PretrainingRunData

    if isinstance(data, PretrainingData):
        return PretrainingRunData(data)
    raise UserError(
        "training takes a task's examples, plain text or pretraining examples; received "
        f"{'none' if data is None else type(data).__name__}; make them with pocketbert.data"
    )


def unused_options(run: RunConfig, stages: Sequence[Stage], data: RunData) -> list[str]:
    """Options of a run that its stages or its data ignore."""
    problems = []
    if run.patience is not None and {stage.keep for stage in stages} == {"last"}:
        problems.append(
            f"patience needs a stage that keeps its best weights; received {run.patience} without one; leave it out"
        )
    return problems + data.option_problems(run)
