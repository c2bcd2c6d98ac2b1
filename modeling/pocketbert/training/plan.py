"""Plans a run and validates it before the run writes files."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.registry import get_task
from pocketbert.training.config import QAT_BLOCKS, RunConfig
from pocketbert.training.cut_texts import truncation_problems
from pocketbert.training.decision_options import choice_problems
from pocketbert.training.distribution import Distribution
from pocketbert.training.frozen_weights import FrozenWeights, check_rates, freeze, frozen_paths, in_words, outline
from pocketbert.training.initialization import ModelInit, make_model
from pocketbert.training.objective import Adapters, Objective
from pocketbert.training.run_data import Data, RunData, StageEvaluator, TaskRunData, TextRunData
from pocketbert.training.stage import LABEL_TERMS, Stage
from pocketbert.training.stage_batches import StageBatches, encoded_batches, pretraining_batches
from pocketbert.training.state import TrainState
from pocketbert.training.step import TrainingModel
from pocketbert.training.weight_patterns import parse_rate_factors, rate_factors_by_name
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer


_PlanT = TypeVar("_PlanT", bound="Plan")


class PlannedRun(Protocol):
    """A run as its plan sees it; the trainer satisfies it.

    Attributes:
      folder: the run's folder.
      distribution: the run's replicas; only the chief writes.
      state: the run's current position.
      model: the trained model.
      start: record of the start; a resumed run has it from the beginning.
      extra_result: see `Plan.prepare`.
    """

    folder: Path
    distribution: Distribution
    state: TrainState
    model: Model
    start: dict[str, Any]
    extra_result: dict[str, Any]

    def evaluator(self, stage: Stage) -> StageEvaluator | None:
        """Returns a stage's evaluator, or None."""

    def load_kept(self) -> None:
        """Loads the kept weights."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run before its first step: models, data, stages and losses. Other kinds of runs extend it.

    Attributes:
      objective: the losses.
      options: the objective's options as JSON values, for the record.
      stages: the stages, in order.
      run: run options.
      start: the model and its initial weights.
      tasks: one task per head.
      vocabulary: vocabulary for tokenizing the texts.
      data: training examples and dev split.
      data_notes: data warnings; they do not change the run.
      windows: `WindowOptions` fields, for questions on paragraphs.
      evaluation_batch_size: dev examples per model call.
      new_head: whether to replace the model directory's head; None keeps it in a run without this option.
      frozen: weights frozen in all stages.
      compares: whether to score simple methods and a live teacher beside the model, and log the outcome. It changes no
        weight, so the record omits it.
      temperature: divisor for the last weights' logits where no dev split gives one.
    """

    # Prefix for the model's values in the record.
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
    compares: bool = True
    temperature: float = 1.0
    _encoded: dict[tuple[str, bool, int, int], EncodedExamples | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for name, value in with_run_options(self.run, self.start, self.tasks, self.stages).items():
            object.__setattr__(self, name, value)
        if self.run.qat != "none":
            remedy = "train with qat=none, and let the gate of export judge"
            raise_if_any(self.start.config.block_problems("qat", QAT_BLOCKS, remedy), "quantization-aware training")
        if self.run.truncation is not None:
            vocabulary = dataclasses.replace(self.vocabulary, truncation=self.run.truncation)
            object.__setattr__(self, "vocabulary", vocabulary)
        if self.frozen_paths:
            check_rates(self.run, self.frozen_paths, self.start.config, self.tasks)
            object.__setattr__(self, "stages", freeze(self.stages, self.frozen_paths, self.start.config, self.tasks))

    @functools.cached_property
    def frozen_paths(self) -> tuple[str, ...]:
        """Paths of the weights that stay frozen in every stage."""
        return frozen_paths(self.frozen, self.run.freeze, self.start.config, self.tasks, new_head=self.new_head)

    @functools.cached_property
    def frozen_parts(self) -> list[str]:
        """The same weights, with one prefix for each fully frozen part."""
        return outline(self.frozen_paths, self.start.config, self.tasks)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The run's tokenizer."""
        from pocketbert.tokenizers.opening import open_tokenizer

        return open_tokenizer(self.vocabulary)

    def encoded(self, stage: Stage) -> EncodedExamples | None:
        """Returns token ids for a stage's examples, made on first use; None for data in records."""
        key = self.data.part(stage), self.data.reads_unlabelled(stage), stage.max_length, stage.text_segments
        if key not in self._encoded:
            self._encoded[key] = self.data.encoded(stage, self.tokenizer, self.run.seed, self.windows)
        return self._encoded[key]

    def recorded(self) -> dict[str, Any]:
        """Returns everything that determines the result, as JSON values, for `run.json`."""
        return {
            "objective": self.objective.name,
            **self.run.recorded(),
            **self.options,
            **self.start.recorded(self.ROLE),
            **self.data.recorded(),
            **({"frozen": self.frozen_parts} if self.frozen_paths else {}),
        }

    def as_kind(self, kind: type[_PlanT], **changes: Any) -> _PlanT:
        """Converts the plan to another kind, with changed fields."""
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self) if item.init}
        return kind(**{**fields, **changes})

    def open_batches(self, index: int, replicas: int) -> StageBatches:
        """Opens a stage's examples; `index` is its number, from 0."""
        stage, run = self.stages[index], self.run
        encoded = self.encoded(stage)
        if encoded is None:
            data = self.data.given
            return pretraining_batches(stage, data, run.seed, replicas, index=index, whole_words=run.whole_words)
        masks = self.tokenizer if stage.masked_text else None
        cache = self.cached_targets(stage, encoded)
        return encoded_batches(
            stage, encoded, run.seed, replicas, masks=masks, whole_words=run.whole_words, cache=cache
        )

    def cached_targets(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        """Returns cached teacher targets for a stage's examples, or None."""
        del stage, encoded
        return None

    def make_model(self, run: PlannedRun) -> Model:
        """Makes the model with its initial weights. May add to `run.start`; a resumed run reads it instead."""
        del run
        if self.frozen_paths:
            parts = (in_words(part, self.start.config) for part in self.frozen_parts)
            log_info(f"keeping {len(self.frozen_paths)} weights as they are: {', '.join(parts)}")
        return make_model(self.start, self.tasks, self.tokenizer, self.run.seed, new_head=self.new_head)

    def make_adapters(self, model: Model) -> Adapters:
        """Makes trained layers between model and loss."""
        del model
        return {}

    def make_step(self, stage: Stage, model: Model, adapters: Adapters) -> TrainingModel:
        """Makes the model with its loss for a stage."""
        return TrainingModel(model, self.objective, stage, adapters=adapters)

    def prepare(self, run: PlannedRun, *, resumes: bool) -> dict[str, Any]:
        """Prepares a new run, or one that `resumes`, for its next step; returns result fields known before training."""
        del run, resumes
        return {}

    def scores(self, run: PlannedRun) -> dict[str, Any]:
        """Returns the metric fields for `TrainResult`, after the last stage."""
        return self.data.result(run.state.best_metrics, f"{self.ROLE}, after step {run.state.best_step}")


def with_run_options(
    run: RunConfig, start: ModelInit, tasks: Sequence[TaskConfig], stages: Sequence[Stage]
) -> dict[str, Any]:
    """Returns plan fields with the run's dropout, learning rates and most steps.

    Raises:
      UserError: a pattern in `rate_factors` matches no weight.
    """
    factors = rate_factors_by_name(run.layer_decay, parse_rate_factors(run.rate_factors), start.config, tasks)
    if run.dropout is not None:
        config = start.config.replace(hidden_dropout=run.dropout, attention_dropout=run.dropout)
        start = dataclasses.replace(start, config=config)
        tasks = [dataclasses.replace(task, dropout=run.dropout) for task in tasks]
    fields: dict[str, Any] = {"rate_factors": factors}
    fields |= {"max_steps": run.max_steps, "label_smoothing": run.label_smoothing}
    changed = [dataclasses.replace(stage, **fields) for stage in stages]
    return {"start": start, "tasks": tuple(tasks), "stages": tuple(changed)}


def open_data(data: Data) -> RunData:
    """Wraps the user's data.

    Raises:
      UserError: `data` is none of the three kinds.
    """
    if isinstance(data, TaskData):
        if data.test is not None:
            log_info(f"the {len(data.test)} test examples are not read: only pb.compress scores them")
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


def unused_options(
    run: RunConfig, stages: Sequence[Stage], data: RunData, vocabulary: Vocabulary | None = None
) -> list[str]:
    """Reports run options that stages or data ignore, including a vocabulary's truncation."""
    problems = truncation_problems(run.truncation, vocabulary, stages, data)
    if run.patience is not None and {stage.keep for stage in stages} == {"last"}:
        problems.append(
            f"patience needs a dev split, and a stage that keeps its best weights; received {run.patience} without "
            "one; leave it out"
        )
    if run.teacher_precision is not None and not any(stage.teacher_features for stage in stages):
        problems.append(
            f"teacher_precision needs a teacher; received {run.teacher_precision} without one; leave it out"
        )
    labels = {term for stage in stages for term in stage.weights if term in LABEL_TERMS}
    smooths = any(get_task(task).smooths_labels for task in data.tasks)
    if run.label_smoothing and not (labels and smooths):
        reason = (
            "no stage learns from labels" if smooths else f"{data.tasks[0].kind if data.tasks else 'this run'} has none"
        )
        problems.append(f"label_smoothing needs labels with classes; {reason}; leave it out")
    return [*problems, *choice_problems(run, stages, data), *data.option_problems(run)]
