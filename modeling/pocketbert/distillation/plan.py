"""The distillation plan: a teacher, live or cached, adds targets, adapters and scores to a run."""

from __future__ import annotations

import dataclasses
import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.configs import PRETRAINING_HEADS
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.distillation.confidence import confident
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.initialization import inherit_adapters, initialize_adapters, teacher_arrays
from pocketbert.distillation.method import DistillationSpec, Method
from pocketbert.distillation.teacher_cache_identity import (
    cached_manifests,
    teacher_cache_identity,
    teacher_caches_digest,
    teacher_digest,
    tokenizer_digest,
)
from pocketbert.files import sha256, write_json, write_text
from pocketbert.heads_config import same_heads
from pocketbert.model import Model, from_pretrained
from pocketbert.progress import log_info
from pocketbert.tasks.scores import Scores
from pocketbert.tokenizers.opening import open_tokenizer, with_truncation
from pocketbert.training.distribution import precision_policy
from pocketbert.training.initialization import assign_weights
from pocketbert.training.kept_heads import reorder_head
from pocketbert.training.objective import Adapters
from pocketbert.training.outcome_notes import falling_notes, flat_notes, simple_methods, teacher_notes, with_notes
from pocketbert.training.plan import Plan, PlannedRun
from pocketbert.training.run_data import RunData, TaskRunData
from pocketbert.training.run_folder import ADAPTERS_FILE, REPORT_FILE, START_FILE, TEACHER_FILE, read_record
from pocketbert.training.score_report import page
from pocketbert.training.stage import Stage
from pocketbert.training.state import recorded_model, recorded_origin
from pocketbert_runtime.json_reading import parse_json, read_members
from pocketbert_runtime.label_names import label_positions
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer


@dataclass(frozen=True, kw_only=True)
class DistillationPlan(Plan):
    """A distillation before its first step.

    Attributes:
      objective: the method.
      spec: teacher, student and task.
      teacher_directory: the teacher's model directory, or None.
      teacher_cache: folder with cached targets; None for a live teacher.
      teacher_vocabulary: the teacher's vocabulary, if its tokenizer differs from the student's; else None.
      ensemble: model directories whose mean predictions are the soft labels; empty for one teacher.
    """

    ROLE: ClassVar = "student"

    objective: Method
    spec: DistillationSpec
    teacher_directory: Path | None = None
    teacher_cache: Path | None = None
    teacher_vocabulary: Vocabulary | None = None
    ensemble: tuple[str | os.PathLike[str], ...] = ()
    # Tokenized twice, by the identity of the student's rows, which the plan keeps.
    _taught: dict[int, EncodedExamples] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def needs_teacher(self) -> bool:
        """Whether a stage reads a live teacher."""
        return self.teacher_cache is None and bool(self.teacher_stages)

    @property
    def teacher_stages(self) -> list[str]:
        """Names of stages with a teacher, live or cached."""
        return [stage.name for stage in self.stages if read_of_teacher(stage, self.data)]

    @property
    def kept_adapters(self) -> Path | None:
        """Adapters from the run that trained the student's weights, if the method continues them."""
        directory = self.start.directory
        if directory is None or not self.objective.keeps_adapters:
            return None
        path = directory.absolute().parent / ADAPTERS_FILE
        return path if path.exists() else None

    def recorded(self) -> dict[str, Any]:
        """See `Plan`; adds digests for the teacher and the adapters."""
        recorded = super().recorded()
        if self.kept_adapters is not None:
            recorded["adapters_sha256"] = sha256(self.kept_adapters)
        if self.teacher_directory is not None:
            recorded |= recorded_model("teacher", self.teacher_directory)
        for number, directory in enumerate(self.ensemble, 1):
            recorded |= recorded_origin(f"teacher_{number}", directory)
        if self.teacher_cache is not None:
            recorded["teacher_cache_sha256"] = teacher_caches_digest(self.teacher_cache, self.teacher_stages)
        return recorded

    def encoded(self, stage: Stage) -> EncodedExamples | None:
        """See `Plan`; the first call leaves out unlabelled texts if the teacher is not sure."""
        given = self.data.given
        if getattr(given, "least_confidence", None) is not None and self.data.reads_unlabelled(stage):
            object.__setattr__(self, "data", TaskRunData(confident(given, self.teacher, self._teacher_length)))
        encoded = super().encoded(stage)
        if self.teacher_vocabulary is None or encoded is None or not read_of_teacher(stage, self.data):
            return encoded
        return self._with_teacher_rows(stage, encoded)

    def _with_teacher_rows(self, stage: Stage, encoded: EncodedExamples) -> EncodedExamples:
        """Tokenizes a stage's examples for the teacher, too; once for stages with the same examples."""
        if id(encoded) not in self._taught:
            assert isinstance(self.data, TaskRunData)
            positions = self.spec.teacher.max_position_embeddings
            tokenizers = self.tokenizer, self.teacher_tokenizer
            self._taught[id(encoded)] = self.data.with_teacher_rows(
                encoded, stage, *tokenizers, positions, self.windows
            )
        return self._taught[id(encoded)]

    @functools.cached_property
    def teacher_tokenizer(self) -> Tokenizer:
        """The teacher's tokenizer; it cuts texts like the student's."""
        if self.teacher_vocabulary is None:
            return self.tokenizer
        return open_tokenizer(dataclasses.replace(self.teacher_vocabulary, truncation=self.vocabulary.truncation))

    def cached_targets(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        if self.teacher_cache is None or not stage.teacher_features:
            return None
        identity = teacher_cache_identity(
            self.objective,
            stage,
            encoded.read_by_teacher,
            teacher_directory=self.teacher_directory,
            tokenizer=self.teacher_tokenizer,
        )
        return TeacherCache.open(self.teacher_cache / stage.name, identity)

    def make_model(self, run: PlannedRun) -> Model:
        """See `Plan`; copies teacher layers if the student starts from them."""
        return self.with_teacher_layers(super().make_model(run))

    def with_teacher_layers(self, student: Model) -> Model:
        """Copies teacher layers in place if the student starts from them; returns the student."""
        if self.start.layers:
            source = self.teacher if self.needs_teacher else self.teacher_directory
            assign_weights(student, teacher_arrays(student, source, self.spec.teacher_task, self.start.layers))
        return student

    def make_adapters(self, model: Model) -> Adapters:
        """Returns the method's adapters, new or from the run that trained the student's weights."""
        adapters = dict(self.objective.adapters(self.spec))
        initialize_adapters(adapters, model.config.initializer_range, self.run.seed)
        if self.kept_adapters is not None:
            log_info(f"continuing the adapters in {self.kept_adapters}")
            inherit_adapters(adapters, self.kept_adapters)
        return adapters

    def live_teacher(self, stage: Stage) -> Model | None:
        """Returns the teacher for a stage's targets; None for cached targets or a stage without a teacher."""
        return self.teacher if self.teacher_cache is None and read_of_teacher(stage, self.data) else None

    def make_step(self, stage: Stage, model: Model, adapters: Adapters) -> Distiller:
        """See `Plan`; adds the teacher."""
        return Distiller(model, self.objective, stage, teacher=self.live_teacher(stage), adapters=adapters)

    @functools.cached_property
    def teacher(self) -> Model:
        """The live teacher in its precision, loaded on first use."""
        with precision_policy(self.run.teacher_precision or self.run.precision):
            return self.load_teacher()

    def load_teacher(self) -> Model:
        """Loads the teacher; its logits have the order of the student's labels."""
        assert self.teacher_directory is not None
        log_info(f"loading the teacher, {self.teacher_directory}")
        teacher, task = from_pretrained(self.teacher_directory), self.spec.task
        if teacher.tokenizer is not None:
            # Its score and a cache are for the texts that the student reads.
            teacher.tokenizer = with_truncation(teacher.tokenizer, self.vocabulary.truncation)
        if task is not None and teacher.task is not None and teacher.task.kind == task.kind:
            if teacher.task.labels != task.labels and label_positions(task.labels, teacher.task.labels) is not None:
                reorder_head(teacher, task.labels)
        return teacher

    def prepare(self, run: PlannedRun, *, resumes: bool) -> dict[str, Any]:
        """See `Plan`; scores the teacher, and in a new run simple methods, and copies the method's weights.

        Weights from a directory or a supernet stay as they are. Returns the teacher's metrics and its cache's size.
        """
        notes: list[str] = []
        result: dict[str, Any] = {"teacher_metrics": self.teacher_metrics(run, notes), "teacher_cache_bytes": None}
        if self.teacher_cache is not None:
            manifests = cached_manifests(self.teacher_cache, self.teacher_stages)
            result["teacher_cache_bytes"] = sum(manifest.size_bytes for manifest in manifests.values())
        if resumes:
            return result
        data, methods = self.data.given, []
        if self.compares and self._is_scored and data.train.labelled:
            methods = [dataclasses.asdict(method) for method in simple_methods(data, self.data.main_metric)]
        run.start = {"methods": methods, "teacher_notes": notes}
        if run.distribution.is_chief:
            write_json(run.folder / START_FILE, run.start)
        if self.start.directory is None:
            self.initialize(run.model)
        return result

    def initialize(self, student: Model) -> None:
        """Copies the method's weights from the teacher before training, if any."""
        self.objective.initialize(self.teacher if self.needs_teacher else None, student)

    def scores(self, run: PlannedRun) -> dict[str, Any]:
        """See `Plan`; adds the outcome beside the teacher and simple methods, and writes `report.html`."""
        if not self._is_scored or not run.state.best_metrics:
            return super().scores(run)
        evaluator: Any = run.evaluator(self.stages[-1])
        run.load_kept()
        scores: Scores = evaluator.scores(self.data.main_metric, run.state.best_metrics)
        teacher = (run.extra_result["teacher_metrics"] or {}).get(self.data.main_metric)
        scores = dataclasses.replace(scores, teacher=teacher)
        # A weak teacher explains the student's weakness, and a weak student its flat probabilities.
        causes = [*run.start.get("teacher_notes", ()), *teacher_notes(scores, teacher), None]
        notes = [
            *flat_notes(evaluator, self.tasks[0].labels),
            *falling_notes(run.folder, self.stages[-1].name),
        ]
        scores = with_notes(
            scores, run.start.get("methods", ()), notes[:1], self.data_notes, self.data.paths(), causes[0]
        )
        if self.compares:
            scores.log(f"student, after step {run.state.best_step}")
        if run.distribution.is_chief and isinstance(self.data, TaskRunData):
            train, dev = self.data.given.train, self.data.given.dev
            text = page({"student": scores}, len(dev), dev.source, data=train.source)
            write_text(run.folder / REPORT_FILE, text)
        fields = scores.to_json()
        fields.pop("classes", None)
        return fields

    @property
    def _is_scored(self) -> bool:
        return self.data.task is not None and "logits" in self.stages[-1].student_features

    @property
    def can_score_teacher(self) -> bool:
        """Whether the dev split can score the teacher: its head must match the student's task."""
        spec = self.spec
        if self.data.task is None:
            return bool(self.data.main_metric) and spec.teacher_heads == PRETRAINING_HEADS
        task, teacher_task = spec.task, spec.teacher_task
        if task is None or teacher_task is None:
            return False
        same = (task.kind, task.labels) == (teacher_task.kind, teacher_task.labels)
        return same and same_heads(task, teacher_task)

    def teacher_metrics(self, run: PlannedRun, notes: list[str]) -> dict[str, float] | None:
        """Measures a live teacher once per run, or reads the metrics in the teacher cache; adds warnings to `notes`."""
        if not self.compares:
            return None
        if self.teacher_cache is not None:
            return self.cached_teacher_metrics()
        if not self.needs_teacher or not self.can_score_teacher:
            return None
        path = run.folder / TEACHER_FILE
        # All processes load the teacher together, so either all measure it or none does.
        if run.distribution.as_chief_says(path.exists()):
            kinds = {"metrics": dict[str, float], "notes": list[str]}
            record = read_members(read_record(path, kinds), kinds, str(path))
            notes += record["notes"]
            metrics: dict[str, float] = record["metrics"]
            return metrics
        metrics = self.measure_teacher(self.teacher, notes)
        if run.distribution.is_chief:
            # Together, so that no kill leaves one without the other.
            write_json(path, {"metrics": metrics, "notes": notes})
        return metrics

    def measure_teacher(self, teacher: Model, notes: list[str] | None = None) -> dict[str, float]:
        """Returns the teacher's metrics on the dev split, with the last stage's sequence length."""
        length = self._teacher_length
        evaluator = self.data.evaluator(teacher, length, self.run, self.windows, self.evaluation_batch_size)
        metrics = evaluator.metrics("of the teacher")
        log_info("teacher: " + ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        for note in flat_notes(evaluator, self.tasks[0].labels if self.data.task else (), "the teacher's"):
            log_info(f"warning: {note}")
            if notes is not None:
                notes.append(note)
        return metrics

    def cache_teacher_metrics(self, teacher: Model, cache: Path) -> None:
        """Measures the teacher for runs with a cache, unless the cache has its metrics already."""
        if not self.can_score_teacher:
            return
        assert self.teacher_directory is not None and teacher.tokenizer is not None
        origin = self._origin(teacher_digest(self.teacher_directory), tokenizer_digest(teacher.tokenizer))
        if _read_metrics(cache / TEACHER_FILE, origin) is None:
            write_json(cache / TEACHER_FILE, {"origin": origin, "metrics": self.measure_teacher(teacher)})

    def cached_teacher_metrics(self) -> dict[str, float] | None:
        """Reads metrics from `cache_teacher_metrics`; None if they belong to another teacher or dev split."""
        assert self.teacher_cache is not None
        manifests = cached_manifests(self.teacher_cache, self.teacher_stages)
        identities = [manifest.identity for manifest in manifests.values()]
        if not identities or not self.can_score_teacher:
            return None
        # The plan has checked that all stages were cached from one teacher.
        origin = self._origin(identities[0].teacher, identities[0].tokenizer)
        metrics = _read_metrics(self.teacher_cache / TEACHER_FILE, origin)
        if metrics is None:
            log_info(
                f"{self.teacher_cache} has no metrics of the teacher on this dev split; run the same cache-teacher "
                "command to add them"
            )
        return metrics

    def _origin(self, teacher: str | None, tokenizer: str | None) -> dict[str, Any]:
        """Returns a measurement's teacher, tokenizer, dev split and metrics, as JSON values."""
        data = self.data.given
        return {
            "teacher": teacher,
            "tokenizer": tokenizer,
            "examples": data.dev.identity,
            "max_length": self._teacher_length,
            "metrics": list(data.metrics),
        }

    @property
    def _teacher_length(self) -> int:
        return min(self.stages[-1].max_length, self.spec.teacher.max_position_embeddings)


def read_of_teacher(stage: Stage, data: RunData) -> list[str]:
    """Returns a stage's teacher features; soft labels replace the logits."""
    return [name for name in stage.teacher_features if name != "logits" or not data.has_soft_labels]


def _read_metrics(path: Path, origin: dict[str, Any]) -> dict[str, float] | None:
    """Reads a file's metrics if they have this origin; None also for a damaged file, which is written again."""
    try:
        content = parse_json(path.read_bytes(), path)
        return content["metrics"] if content["origin"] == origin else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
