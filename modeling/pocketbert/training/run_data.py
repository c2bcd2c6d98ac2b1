"""Run data: a task's examples, plain text, or pretraining examples.

Each kind is one class. It checks itself against the stages, gives them examples, and scores models on its dev split.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from pocketbert.configs import EncoderConfig, TaskConfig, head_names
from pocketbert.data.batches import SOFT_LABELS, EncodedExamples
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.unlabelled import joined
from pocketbert.errors import UserError, did_you_mean
from pocketbert.files import sha256
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import log_info, track
from pocketbert.tasks.metrics import listed_metrics
from pocketbert.tasks.outputs import ModelForward
from pocketbert.tasks.registry import listed, supervised_task
from pocketbert.training.config import RunConfig
from pocketbert.training.decision_options import choice_of
from pocketbert.training.dev_loss import KeptOutputs, LossEvaluator
from pocketbert.training.stage import Stage
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.tokenizers.base import Tokenizer

Data: TypeAlias = "TaskData | TextData | PretrainingData"


class StageEvaluator(Protocol):
    """Scores a model."""

    @property
    def loss(self) -> float | None:
        """Mean label loss in the last call of `metrics`; None if unknown."""

    def metrics(self, when: str) -> dict[str, float]:
        """Returns metrics for the current weights; `when` completes an error message, for example `after step 7`."""


class RunData(abc.ABC):
    """Data of one kind.

    Attributes:
      given: the user's data.
      served: accepted values of `Stage.data`.
      main_metric: metric for choosing checkpoints and comparing runs; empty without an evaluation.
      task: the supervised task, or None.
      tasks: heads to train.
      has_pairs: whether an example is a pair of texts.
      has_soft_labels: whether training examples have a teacher's probabilities.
      vocabulary: vocabulary for examples stored as token ids, else None.
    """

    served: ClassVar[Collection[str]]
    given: Any
    main_metric: str = ""
    task: TaskConfig | None = None
    tasks: tuple[TaskConfig, ...] = ()
    has_pairs: bool = False
    has_soft_labels: bool = False
    vocabulary: Vocabulary | None = None

    @abc.abstractmethod
    def paths(self) -> list[str | os.PathLike[str] | None]:
        """Files and folders to read."""

    @abc.abstractmethod
    def recorded(self) -> dict[str, Any]:
        """Returns data digests and the choices that affect a result, as JSON values, for `run.json`."""

    def part(self, stage: Stage) -> str:
        """Names the part for a stage; stages with the same part and length share token ids."""
        return stage.data

    def problems(self, kinds: Sequence[str], labelled: Collection[str] = ("dev",)) -> list[str]:
        """Reports problems with the data alone."""
        return []

    def reads_unlabelled(self, stage: Stage) -> bool:
        """Whether a stage also trains on texts without labels."""
        return False

    def stage_problems(self, stages: Sequence[Stage]) -> list[str]:
        """Reports stages unsuitable for these data, and unused data."""
        problems = [f"stage {stage.name} {_needed(stage.data)}" for stage in stages if stage.data not in self.served]
        return problems + self._unused({stage.data for stage in stages})

    def model_problems(
        self,
        stages: Sequence[Stage],
        role: str,
        config: EncoderConfig,
        vocabularies: Mapping[str, Vocabulary | None],
    ) -> list[str]:
        """Reports why these data do not fit the model.

        Args:
          stages: the run's stages.
          role: the model's name in messages, for example `student`.
          config: the model's architecture.
          vocabularies: name for messages → a model's vocabulary, or None if unknown.
        """
        return []

    def option_problems(self, run: RunConfig) -> list[str]:
        """Reports run options without effect on these data."""
        names = [
            name for name in ("whole_words", "evaluation_batches") if getattr(run, name) != getattr(RunConfig, name)
        ]
        return [f"{name} needs pretraining examples; received none; leave it out" for name in names]

    def uncacheable(self, stage: Stage) -> str:
        """Returns why a stage's teacher targets cannot be cached; empty if they can."""
        return ""

    def encoded(
        self, stage: Stage, tokenizer: Tokenizer, seed: int, windows: Mapping[str, Any]
    ) -> EncodedExamples | None:
        """Returns a stage's examples as token ids; None for data in records, which are read batch by batch.

        The seed determines how plain text is packed.
        """
        return None

    def evaluated_length(self, stage: Stage) -> int | None:
        """Returns the maximum sequence length on the dev split in a stage; None if the stage is not evaluated."""
        return None

    def evaluator(
        self, model: Model, max_length: int, run: RunConfig, windows: Mapping[str, Any], batch_size: int
    ) -> StageEvaluator:
        """Makes a model's evaluator on the dev split."""
        raise UserError(f"evaluation needs a dev split; {', '.join(map(str, self.paths()))} has none; give one")

    def result(self, metrics: Mapping[str, float], title: str) -> dict[str, Any]:
        """Returns the metric fields for `TrainResult`; logs them under `title`."""
        return {"metrics": metrics}

    def _unused(self, used: Collection[str]) -> list[str]:
        """Reports unused parts of the data."""
        return []


class TaskRunData(RunData):
    """A task with its examples.

    Args:
      data: the examples. Missing metrics are the task's. A missing main metric is the task's, or else the first metric.
        A main metric outside the metrics is added to them.
    Attributes:
      given: the examples.
    """

    served = ("task", "augmented")

    def __init__(self, data: TaskData) -> None:
        task = supervised_task(data.task)
        metrics = tuple(data.metrics) or task.metrics
        main = data.main_metric or (task.main_metric if task.main_metric in metrics else metrics[0])
        metrics = metrics if main in metrics else (*metrics, main)
        data = dataclasses.replace(data, metrics=metrics, main_metric=main)
        self.given = data
        self.main_metric, self.has_pairs = data.main_metric, data.train.has_pairs
        self.has_soft_labels = getattr(data.train, SOFT_LABELS, None) is not None
        self.task, self.tasks = data.task, (data.task,)

    def paths(self) -> list[str | os.PathLike[str] | None]:
        parts = (self.given.train, self.given.dev, self.given.unlabelled)
        return [source for part in parts if part is not None for source in getattr(part, "sources", [part.source])]

    def recorded(self) -> dict[str, Any]:
        data = self.given
        recorded: dict[str, Any] = {f"task_{name}": value for name, value in dataclasses.asdict(data.task).items()}
        # Records of runs without these fields do not have them.
        heads = recorded.pop("task_tasks"), recorded.pop("task_weight")
        recorded |= {} if heads[0] is None else {"heads": heads[0]}
        for name in ("decisions", "pairs"):
            if getattr(data.task, name) is None:
                del recorded[f"task_{name}"]
        recorded |= {"metrics": list(data.metrics), "main_metric": data.main_metric}
        for name, examples in (("train", data.train), ("dev", data.dev), ("augmented", data.augmented)):
            recorded[f"{name}_sha256"] = None if examples is None else examples.identity
        if data.unlabelled is not None:
            recorded |= {"unlabelled_sha256": data.unlabelled.identity, "least_confidence": data.least_confidence}
        return recorded

    def problems(self, kinds: Sequence[str], labelled: Collection[str] = ("dev",)) -> list[str]:
        data, problems = self.given, []
        if data.task.kind not in kinds:
            problems.append(f"the task must be {listed(list(kinds))}; received {data.task.kind}")
        if data.task.weight is not None:
            problems.append(f"weight is for one of several heads; received {data.task.weight:g}; leave it out")
        accepted = supervised_task(data.task).selection_metrics(data.dev)
        unknown = [name for name in data.metrics if name not in accepted]
        if unknown:
            labels = f" with {len(data.task.labels)} labels" if data.task.labels else ""
            problems.append(
                f"a metric for {data.task.kind}{labels} must be one of {listed_metrics(accepted)}; received "
                f"{', '.join(unknown)}{did_you_mean(unknown[0], accepted)}"
            )
        for name, examples in (("train", data.train), ("dev", data.dev), ("augmented", data.augmented)):
            if examples is None:
                continue
            part = {"train": "training", "dev": "development"}.get(name, name)
            if not len(examples):
                problems.append(f"there must be {part} examples; {examples.source} holds none")
            elif name in labelled and not examples.labelled:
                problems.append(f"{part} examples need labels; {examples.source} has none")
            if examples.has_pairs != data.train.has_pairs:
                problems.append(
                    f"{part} and training examples must both be pairs or both single texts; {examples.source} differs"
                )
        return problems

    def part(self, stage: Stage) -> str:
        """See `RunData`; training examples replace missing augmented ones."""
        return "task" if stage.data == "augmented" and self.given.augmented is None else stage.data

    def reads_unlabelled(self, stage: Stage) -> bool:
        """See `RunData`; stages that learn from labels read labelled examples alone."""
        return self.given.unlabelled is not None and bool(stage.teacher_features) and not stage.label_names

    def stage_problems(self, stages: Sequence[Stage]) -> list[str]:
        """See `RunData`; also reports stages without the labels they need."""
        problems = []
        if self.given.unlabelled is not None and not any(map(self.reads_unlabelled, stages)):
            option = argument("unlabelled_file", python="pb.data.with_unlabelled")
            problems.append(
                "no stage learns from a teacher alone, so unlabelled texts have no effect; received "
                f"{self.given.unlabelled.source}; leave out {option}"
            )
        soft = getattr(self.given.unlabelled, SOFT_LABELS, None)
        if self.given.unlabelled is not None and self.has_soft_labels and soft is None:
            problems.append("unlabelled texts have no soft labels; put their rows into the table with the others")
        for stage in stages:
            examples = self._examples(stage)
            if "labels" in stage.label_names and not examples.labelled:
                problems.append(
                    f"stage {stage.name} learns from labels; {examples.source} has none; give labelled examples"
                )
        return super().stage_problems(stages) + problems

    def uncacheable(self, stage: Stage) -> str:
        if self.given.task.pairs is None:
            return ""
        return (
            f"stage {stage.name} reads the texts of a pair one by one, so its targets cannot be cached; give a live "
            "teacher"
        )

    def encoded(self, stage: Stage, tokenizer: Tokenizer, seed: int, windows: Mapping[str, Any]) -> EncodedExamples:
        examples = self._examples(stage)
        more = " and unlabelled" if self.reads_unlabelled(stage) else ""
        log_info(f"tokenizing {len(examples)} examples ({self.part(stage)}{more})")
        task = supervised_task(self.given.task)
        encode = task.encode_soft if self.has_soft_labels else task.encode
        return encode(examples, tokenizer, stage.max_length, **windows)

    def with_teacher_rows(
        self,
        encoded: EncodedExamples,
        stage: Stage,
        tokenizer: Tokenizer,
        teacher_tokenizer: Tokenizer,
        positions: int,
        windows: Mapping[str, Any],
    ) -> EncodedExamples:
        """Adds a stage's rows for a teacher with another tokenizer; see `SupervisedTask.teacher_rows`."""
        log_info(f"tokenizing the examples for the teacher ({self.part(stage)}): its tokenizer is another one")
        rows = supervised_task(self.given.task).teacher_rows(
            self._examples(stage), tokenizer, teacher_tokenizer, stage.max_length, positions, **windows
        )
        return dataclasses.replace(encoded, teacher_rows=rows)

    def evaluated_length(self, stage: Stage) -> int | None:
        """See `RunData`; a stage is evaluated if it trains the head."""
        return stage.max_length if "logits" in stage.student_features else None

    def evaluator(
        self, model: Model, max_length: int, run: RunConfig, windows: Mapping[str, Any], batch_size: int
    ) -> StageEvaluator:
        data = self.given
        # This task's head among several; a teacher's task may differ in other fields.
        same = [(task.kind, task.name) == (data.task.kind, data.task.name) for task in model.tasks]
        index = same.index(True) if True in same else 0
        task = supervised_task(model.tasks[index])
        forward = KeptOutputs(ModelForward(model, task, batch_size, head_names(model.tasks)[index]))
        choice = choice_of(run, data.main_metric)
        options = {**windows, "metrics": data.metrics, **({} if choice is None else {"choice": choice})}
        evaluator = task.evaluator(forward, data.dev, model.tokenizer, max_length, choose_threshold=True, **options)

        def encoded() -> EncodedExamples:
            return task.encode(data.dev, model.tokenizer, max_length, **windows)

        return LossEvaluator(evaluator, task, forward, encoded, batch_size)

    def result(self, metrics: Mapping[str, float], title: str) -> dict[str, Any]:
        """See `RunData`; adds the majority baseline."""
        data = self.given
        if not metrics:
            return super().result(metrics, title)
        scores = supervised_task(data.task).with_baseline(data.dev, metrics, data.metrics, data.main_metric)
        scores.log(title)
        return scores.to_json()

    def _examples(self, stage: Stage) -> Any:
        examples = self.given.augmented if self.part(stage) == "augmented" else self.given.train
        if not self.reads_unlabelled(stage):
            return examples
        return joined(examples.first_texts(len(examples)), self.given.unlabelled)

    def _unused(self, used: Collection[str]) -> list[str]:
        augmented = self.given.augmented
        if augmented is None or "augmented" in used:
            return []
        return [
            f"no stage uses augmented examples; received {augmented.source}; leave out {argument('augmented')}, or the "
            "option that removes these stages"
        ]


class TextRunData(RunData):
    """Plain text."""

    served = ("text",)

    def __init__(self, data: TextData) -> None:
        self.given, self.path = data, data.path

    def paths(self) -> list[str | os.PathLike[str] | None]:
        return [self.path]

    def recorded(self) -> dict[str, Any]:
        """See `RunData`; omits file paths and times."""
        from pocketbert.data.readers.text import text_files

        digests = [sha256(file) for file in track(text_files(self.path), "hash the text", "file")]
        return {"text_sha256": hashlib.sha256(" ".join(digests).encode()).hexdigest()}

    def uncacheable(self, stage: Stage) -> str:
        if not stage.masked_text:
            return ""
        return (
            f"stage {stage.name} masks its text differently in each epoch, so its targets cannot be cached; give a "
            "live teacher, or turn masking off"
        )

    def encoded(self, stage: Stage, tokenizer: Tokenizer, seed: int, windows: Mapping[str, Any]) -> EncodedExamples:
        from pocketbert.data.packing import pack
        from pocketbert.data.readers.text import read_documents

        log_info(f"packing {self.path} into inputs of {stage.max_length} tokens")
        documents = read_documents(self.path)
        return pack(documents, tokenizer, stage.max_length, segments=stage.text_segments, seed=seed)

    def _unused(self, used: Collection[str]) -> list[str]:
        if "text" in used and self.given.dev is not None:
            return [f"distillation on plain text has no dev part; received {self.given.dev}; leave it out"]
        if "text" in used:
            return []
        return [
            f"no stage uses plain text; received {self.path}; leave out {_text()}, or run general distillation on "
            "it, without a task"
        ]


def _text() -> str:
    return argument("text", python="pb.data.text(…)")


def _needed(data: str) -> str:
    """Describes a stage's missing data."""
    if data == "text":
        return f"needs plain text; received none; give {_text()}"
    if data == "pretraining":
        option = argument("pretraining_data", python="pb.PretrainingData(…)")
        return f"needs pretraining examples; received none; give the output of pocketbert pretrain-data ({option})"
    return "needs examples of a task; received none; give a task and its data"
