"""Training with a teacher: one step of any method, and the trainer of a distillation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.distillation.initialization import inherit_adapters, initialize_adapters, teacher_arrays
from pocketbert.distillation.method import Method
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.teacher import cached_teacher_metrics, is_scorable, load_teacher, measure_teacher
from pocketbert.distillation.teacher_cache_identity import cached_manifests, teacher_cache_identity
from pocketbert.files import write_json, write_text
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.scores import Scores
from pocketbert.training.distribution import Distribution, precision_policy
from pocketbert.training.initialization import assign_weights
from pocketbert.training.objective import Adapters, Batch, Features, Targets
from pocketbert.training.outcome_notes import falling_notes, flat_notes, simple_methods, teacher_notes, with_notes
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import REPORT_FILE, START_FILE, TEACHER_FILE, read_record
from pocketbert.training.score_report import page
from pocketbert.training.stage import FeatureRequest, Stage
from pocketbert.training.step import Trainable, TrainingModel
from pocketbert.training.trainer import Trainer


class Teacher(Protocol):
    """A `Model`, or any object with `features`."""

    def features(self, inputs: Any, request: FeatureRequest, training: bool | None = None) -> Features:
        """See `Model.features`."""


class Distiller(TrainingModel):
    """Trains a student in one stage of a method; see `TrainingModel` for the datasets that `fit` takes.

    The teacher is not part of this model: it runs without dropout, gets no gradients and is not saved.

    Args:
      student: the trained model.
      method: computes targets and losses.
      stage: a stage of the method.
      teacher: computes targets; None if targets are cached or the stage reads no teacher.
      adapters: the method's adapters; they are trained too.
    """

    def __init__(
        self,
        student: Trainable,
        method: Method,
        stage: Stage,
        *,
        teacher: Teacher | None = None,
        adapters: Adapters | None = None,
    ) -> None:
        super().__init__(student, method, stage, adapters=adapters)
        self._method = method
        # A function, because Keras tracks every model that is an attribute.
        self._read_teacher = None if teacher is None else _reader(teacher, stage)

    def targets(self, inputs: Batch) -> Targets:
        """The method's targets, from the live teacher."""
        if not self.stage.teacher_features:
            return {}
        if self._read_teacher is None:
            raise ValueError(
                f"stage {self.stage.name} reads {', '.join(self.stage.teacher_features)} from a teacher; received "
                "neither a teacher nor cached targets"
            )
        return self._method.targets(self.stage, self._read_teacher(inputs), inputs)


class DistillationTrainer(Trainer):
    """Trainer of a distillation, with a live or cached teacher and the method's adapters."""

    plan: DistillationPlan

    def __init__(self, plan: DistillationPlan, folder: Path, distribution: Distribution) -> None:
        super().__init__(plan, folder, distribution)
        self._teachers: dict[Path, Model] = {}
        self._teacher_metrics: dict[str, float] | None = None
        self._teacher_notes: list[str] = []
        self._start: dict[str, Any] = {}
        self.adapters = dict(plan.objective.adapters(plan.spec))
        initialize_adapters(self.adapters, self.model.config.initializer_range, plan.run.seed)
        if plan.kept_adapters is not None:
            log_info(f"continuing the adapters in {plan.kept_adapters}")
            inherit_adapters(self.adapters, plan.kept_adapters)

    def make_model(self) -> Model:
        """Makes the student with its initial weights."""
        return copy_teacher_layers(super().make_model(), self.plan)

    def make_step(self, stage: Stage) -> Distiller:
        """See `Trainer`; adds the teacher."""
        live = bool(stage.teacher_features) and self.plan.teacher_cache is None
        teacher = self.teacher if live else None
        return Distiller(self.model, self.plan.objective, stage, teacher=teacher, adapters=self.adapters)

    def teacher_cache(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        """Opens the cached targets of a stage."""
        plan = self.plan
        if plan.teacher_cache is None or not stage.teacher_features:
            return None
        identity = teacher_cache_identity(
            plan.objective, stage, encoded, teacher_directory=plan.teacher_directory, tokenizer=plan.tokenizer
        )
        return TeacherCache.open(plan.teacher_cache / stage.name, identity)

    def begin(self) -> None:
        """Copies weights as the method requires, unless the student's weights come from a directory or a supernet.

        With a task, also scores simple methods on the dev split.
        """
        self._start = {"methods": [], "teacher_notes": self._teacher_notes}
        data = self.plan.data.given
        if self._is_scored and data.train.labelled:
            methods = simple_methods(data, self.plan.main_metric)
            self._start["methods"] = [dataclasses.asdict(method) for method in methods]
        if self.distribution.is_chief:
            write_json(self.folder / START_FILE, self._start)
        if self.plan.start.directory is None:
            self.plan.objective.initialize(self.teacher if self.plan.needs_teacher else None, self.model)

    def run(self) -> dict[str, Any]:
        """See `Trainer`; adds the teacher's metrics, and the size of its cache."""
        teacher_metrics = self._teacher_metrics = self.score_teacher()
        size = None
        if self.plan.teacher_cache is not None:
            manifests = cached_manifests(self.plan.teacher_cache, self.plan.teacher_stages)
            size = sum(manifest.size_bytes for manifest in manifests.values())
        return {**super().run(), "teacher_metrics": teacher_metrics, "teacher_cache_bytes": size}

    def scores(self) -> dict[str, Any]:
        """See `Trainer`; adds the outcome beside the teacher and simple methods, and writes `report.html`."""
        if not self._is_scored or not self.state.best_metrics:
            return super().scores()
        plan, path = self.plan, self.folder / START_FILE
        if not self._start and path.exists():
            self._start = read_record(path)
        evaluator: Any = self.evaluator(plan.stages[-1])
        self.load_kept()
        scores: Scores = evaluator.scores(plan.main_metric, self.state.best_metrics)
        teacher = (self._teacher_metrics or {}).get(plan.main_metric)
        scores = dataclasses.replace(scores, teacher=teacher)
        # A weak teacher explains the student's weakness, and a weak student its flat probabilities.
        causes = [*self._start.get("teacher_notes", ()), *teacher_notes(scores, teacher), None]
        notes = [
            *flat_notes(evaluator, plan.tasks[0].labels),
            *falling_notes(self.folder, plan.stages[-1].name),
        ]
        scores = with_notes(
            scores, self._start.get("methods", ()), notes[:1], plan.data_notes, plan.data.sources, causes[0]
        )
        scores.log(f"student, after step {self.state.best_step}")
        if self.distribution.is_chief and isinstance(plan.data, TaskRunData):
            train, dev = plan.data.given.train, plan.data.given.dev
            text = page({"student": scores}, len(dev), dev.source, data=train.source)
            write_text(self.folder / REPORT_FILE, text)
        fields = scores.to_json()
        fields.pop("classes", None)
        return fields

    @property
    def _is_scored(self) -> bool:
        return self.plan.data.task is not None and "logits" in self.plan.stages[-1].student_features

    @property
    def teacher(self) -> Model:
        """The live teacher, loaded on first use."""
        return self.teacher_of(self.plan)

    def teacher_of(self, plan: DistillationPlan) -> Model:
        """The live teacher of a plan, loaded on first use."""
        directory = plan.teacher_directory
        assert directory is not None
        if directory not in self._teachers:
            with precision_policy(plan.run.teacher_precision or plan.run.precision):
                self._teachers[directory] = load_teacher(plan)
        return self._teachers[directory]

    def score_teacher(self) -> dict[str, float] | None:
        """Measures a live teacher once per run, before training, or reads the metrics in the teacher cache."""
        plan, path = self.plan, self.folder / TEACHER_FILE
        if plan.teacher_cache is not None:
            return cached_teacher_metrics(plan)
        if not plan.needs_teacher or not is_scorable(plan):
            return None
        # All processes load the teacher together, so either all measure it or none does.
        if not self.distribution.as_chief_says(path.exists()):
            found = measure_teacher(self.teacher, plan, self._teacher_notes)
            if self.distribution.is_chief:
                write_json(path, found)
            return found
        return read_record(path)


def copy_teacher_layers(student: Model, plan: DistillationPlan) -> Model:
    """Copies the teacher layers that the student starts from, if any; returns the student."""
    if plan.start.layers:
        layers, task = plan.start.layers, plan.spec.teacher_task
        assign_weights(student, teacher_arrays(student, plan.teacher_directory, task, layers))
    return student


def _reader(teacher: Teacher, stage: Stage) -> Any:
    def read(inputs: Any) -> Any:
        with padding_after_texts(teacher):
            return teacher.features(inputs, stage.teacher_features, training=False)

    return read
