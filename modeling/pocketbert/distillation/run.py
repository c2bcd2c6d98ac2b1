"""Distillation as a whole: a method's stages one after another, and the student that they leave."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.activation_stats import ActivationWatch
from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData
from pocketbert.data.teacher_cache import TeacherCache
from pocketbert.distillation.distiller import Distiller
from pocketbert.distillation.evaluation import (
    make_evaluator,
    measure_teacher,
    stored_teacher_metrics,
    teacher_answers,
)
from pocketbert.distillation.initialization import initialize_adapters, make_student
from pocketbert.distillation.method import Method, Stage
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.preparation import Preparation, prepare
from pocketbert.distillation.run_options import DistillResult, RunOptions
from pocketbert.distillation.stage_data import EncodedSource, PretrainingSource, Source, StageData
from pocketbert.distillation.stage_examples import StageExamples
from pocketbert.distillation.stage_run import Evaluator, StageRun, load_kept
from pocketbert.distillation.teacher_cache_identity import teacher_cache_identity
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.model import Model, from_pretrained
from pocketbert.outputs import check_inputs
from pocketbert.progress import log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.wordpiece import WordPieceTokenizer
from pocketbert.training import activations
from pocketbert.training.callbacks import MetricsLog, NoLog
from pocketbert.training.checkpointing import Position, check_kept, read_position
from pocketbert.training.distribution import Distribution, open_distribution
from pocketbert.training.run import Clock, Driver, precision_policy, run_once, run_seeds
from pocketbert.training.run_folder import (
    CHECKPOINT_FILE,
    MODEL_FOLDER,
    OPTIONS_FILE,
    STAGES_FOLDER,
    TEACHER_FILE,
    begin_run,
    read_record,
)


def distill(
    *,
    method: str | Method,
    student: str | Path | EncoderConfig | None,
    output: str | os.PathLike[str],
    teacher_directory: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    task_data: TaskData | None = None,
    text: str | os.PathLike[str] | None = None,
    pretraining: str | os.PathLike[str] | None = None,
    dev_pretraining: str | os.PathLike[str] | None = None,
    options: Any = None,
    run: RunOptions = RunOptions(),  # noqa: B008
    teacher_layers: Sequence[int] = (),
    overwrite: bool = False,
) -> DistillResult:
    """Distils a teacher into a student, stage by stage.

    Interrupted at any moment of any stage and called again with the same arguments, it goes on from its last checkpoint
    and ends with the weights that it would have had anyway, to the bit, on the same machine. A finished run gives its
    result.

    Args:
      method: a method or its name.
      student: a preset's name, an architecture or a config.json for fresh weights, or a model directory; None for the
        teacher's architecture with `teacher_layers` alone.
      output: the run's folder: `model/`, `adapters.safetensors`, `stages/NAME/` (what each stage but the last kept),
        `metrics.jsonl`, `tensorboard/`, `result.json`.
      teacher_directory: the teacher; needed only where a stage reads one. With a store it is not loaded; its files are
        only compared with the store's.
      store: targets from `pocketbert cache-teacher`, in place of the teacher, with its metrics.
      task_data: what the student learns; None for general distillation.
      text: plain text for general distillation, a file or folder.
      pretraining: pretraining's examples, a folder of `pocketbert pretrain-data`; the student then has heads for masked
        words and next sentences.
      dev_pretraining: held-out ones, to evaluate by; None evaluates nothing.
      options: the method's options; None for its defaults.
      run: how it is run.
      teacher_layers: start from these layers of the teacher, counted from 1.
      overwrite: throw away a finished run in `output`, or one with other options.

    Returns:
      The student and its metrics.

    Raises:
      UserError: bad input, teacher and student that do not fit (everything is listed), a store that was made from
        something else, or `output` holds a run with other options. Nothing has been written then.
      TrainingFailed: the loss or the outputs are no longer finite; it names stage and step.
    """
    examples = [part.source for part in (task_data.train, task_data.dev)] if task_data else []
    named = student if isinstance(student, str | Path) else None
    check_inputs(output, (named, teacher_directory, store, text, pretraining, dev_pretraining, *examples))
    chosen = get_method(method) if isinstance(method, str) else method
    preparation = prepare(
        method=chosen,
        options=chosen.options() if options is None else options,
        run=run,
        student=student,
        teacher_layers=teacher_layers,
        teacher_directory=None if teacher_directory is None else Path(teacher_directory),
        store=None if store is None else Path(store),
        task_data=task_data,
        text=None if text is None else Path(text),
        pretraining=None if pretraining is None else Path(pretraining),
        dev_pretraining=None if dev_pretraining is None else Path(dev_pretraining),
    )
    return distill_prepared(preparation, output, overwrite=overwrite)


def distill_prepared(
    preparation: Preparation, output: str | os.PathLike[str], *, overwrite: bool = False
) -> DistillResult:
    """`distill` from where everything is checked and nothing is written.

    Args:
      preparation: the distillation.
      output: as there.
      overwrite: as there.

    Returns:
      As there.

    Raises:
      UserError: examples or stores that do not fit, or `output` holds a run with other options.
      TrainingFailed: as there.
    """
    run, recorded = preparation.run, preparation.recorded(_recorded_before(Path(output)))
    distribution = open_distribution(run.distribution, run.tpu)

    def train_in(folder: Path) -> dict[str, Any]:
        with precision_policy(run.precision), distribution.scope():
            started = _Run(preparation, folder, distribution)
            # Only now: bad input leaves no run behind.
            if distribution.is_chief:
                begin_run(folder, recorded)
            return started.run()

    folder, result = run_once(output, recorded, train_in, overwrite=overwrite, distribution=distribution)
    # Not in the file, so that a run's folder may move.
    return DistillResult(model=str(folder / MODEL_FOLDER), **result)


def distill_seeds(
    seeds: Sequence[int], output: str | os.PathLike[str], run: RunOptions, **arguments: Any
) -> dict[str, Any]:
    """Runs `distill` once a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      output: the folder of folders; gets a `result.json` with what is returned.
      run: how each is run; its seed is replaced.
      **arguments: the others of `distill`.

    Returns:
      As `pocketbert.training.run.run_seeds`.
    """

    def run_one(seed: int, folder: Path) -> DistillResult:
        return distill(output=folder, run=dataclasses.replace(run, seed=seed), **arguments)

    return run_seeds(seeds, output, run_one, writes=lambda: open_distribution(run.distribution, run.tpu).is_chief)


def _recorded_before(output: Path) -> dict[str, Any]:
    path = output / OPTIONS_FILE
    try:
        return read_record(path) if path.exists() else {}
    except UserError:
        # `open_run` says so, unless it is overwritten.
        return {}


class _Run:
    """One distillation from its folder's last checkpoint to its end."""

    def __init__(self, preparation: Preparation, folder: Path, distribution: Distribution) -> None:
        self.preparation, self.folder, self.distribution = preparation, folder, distribution
        self._evaluators: dict[int, Evaluator] = {}
        vocabulary = preparation.vocabulary
        self.tokenizer = WordPieceTokenizer(vocabulary.path, **dataclasses.asdict(vocabulary.config))
        self.examples = StageExamples(preparation, self.tokenizer)
        self.position = read_position(folder / CHECKPOINT_FILE) or Position()
        # All of them, and the stores with them: what does not fit is refused before anything is written.
        self.data = [
            StageData(stage, self._source(index, stage), distribution.replicas)
            for index, stage in enumerate(preparation.stages)
        ]
        self.student = make_student(
            preparation.student,
            tasks=preparation.tasks,
            tokenizer=self.tokenizer,
            teacher_directory=preparation.teacher_directory,
            teacher_task=preparation.setting.teacher_task,
            seed=preparation.run.seed,
        )
        self.adapters = dict(preparation.method.adapters(preparation.setting, preparation.options))
        initialize_adapters(self.adapters, self.student.config.initializer_range, preparation.run.seed)

    def run(self) -> dict[str, Any]:
        """Goes through the stages; returns the fields of `DistillResult` but the model's path."""
        preparation, position = self.preparation, self.position
        teacher_metrics = self._teacher_metrics()
        if position.step:
            name = preparation.stages[position.stage].name
            log_info(f"{self.folder}: going on after step {position.step}, in stage {name}")
        elif not position.stage and preparation.student.start != "directory":
            preparation.method.initialize(
                self._teacher if self._needs_teacher else None, self.student, preparation.options
            )
        with MetricsLog(self.folder, position.log_bytes) if self.distribution.is_chief else NoLog() as log:
            clock = Clock(position.seconds)
            while True:
                if not position.finished:
                    position = self._run_stage(position, log, clock)
                if position.stage + 1 == len(preparation.stages):
                    break
                position = position.next_stage()
        summaries = [*position.past, position.summary()]
        names = [stage.name for stage in preparation.stages]
        if self._activation_watch is not None:
            # The last steps need not be the best, and of a run that was killed after them the student is fresh.
            check_kept(self.folder, position.kept)
            load_kept(self.folder, self.student, self.adapters)
        return {
            "main_metric": preparation.main_metric,
            **self._scored(position),
            "teacher_metrics": teacher_metrics,
            "seed": preparation.run.seed,
            "best_step": position.best_step,
            "steps": position.step,
            "seconds": round(position.seconds, 3),
            "stages": [{"name": name, **summary} for name, summary in zip(names, summaries, strict=True)],
            "activation_range": activations.report(self._activation_watch),
        }

    def _scored(self, position: Position) -> dict[str, Any]:
        """The student's metrics for the result, beside the baseline's where it learned a task; says them."""
        data, metrics = self.preparation.task_data, position.best_metrics
        if data is None or not metrics:
            return {"metrics": metrics}
        scores = supervised_task(data.task).beside_baseline(data.dev, metrics, data.metrics, data.main_metric)
        log_info(f"student, after step {position.best_step}: {scores.sentence}")
        for warning in scores.warnings:
            log_info(f"warning: {warning}")
        return scores.to_json()

    def _run_stage(self, position: Position, log: MetricsLog, clock: Clock) -> Position:
        preparation, index = self.preparation, position.stage
        stage, data = preparation.stages[index], self.data[index]
        if index and position.step == position.first_step:
            check_kept(self._kept(index - 1), position.kept)
            load_kept(self._kept(index - 1), self.student, self.adapters)
        live = bool(stage.teacher_features) and preparation.store is None
        distiller = Distiller(
            self.student,
            preparation.method,
            stage,
            teacher=self._teacher if live else None,
            adapters=self.adapters,
        )
        stage_run = StageRun(
            stage,
            self.student,
            distiller,
            data,
            self._evaluator(stage),
            preparation.main_metric,
            self._kept(index),
            preparation.run,
            self.distribution,
            self._activation_watch,
        )
        position = stage_run.restore(self.folder, position)
        log_info(
            f"stage {stage.name} ({index + 1} of {len(self.data)}): {data.total_steps} steps of {stage.batch_size}, "
            f"{len(data)} examples"
        )
        seconds = preparation.run.checkpoint_seconds
        Driver(stage_run, position, self.folder, log, clock, seconds, writes=self.distribution.is_chief).drive()
        # The next stage starts from what the chief has written.
        self.distribution.wait()
        return position

    @functools.cached_property
    def _activation_watch(self) -> ActivationWatch | None:
        """One for all stages, so that their curves go on in one another: on the last one's training examples."""
        return activations.open_watch(
            self.student, lambda: self.data[-1].some(activations.BATCHES, activations.BATCH_SIZE)
        )

    def _kept(self, index: int) -> Path:
        """Where a stage's weights are kept: the last one's are the run's."""
        if index + 1 == len(self.preparation.stages):
            return self.folder
        return self.folder / STAGES_FOLDER / self.preparation.stages[index].name

    def _source(self, index: int, stage: Stage) -> Source:
        preparation, seed = self.preparation, self.preparation.run.seed
        if stage.data == "pretraining":
            assert preparation.pretraining is not None
            return PretrainingSource(preparation.pretraining, seed, index, whole_words=preparation.run.whole_words)
        encoded = self.examples.of_stage(stage)
        store = None
        if preparation.store is not None and stage.teacher_features:
            identity = teacher_cache_identity(
                preparation.method,
                stage,
                encoded,
                teacher_directory=preparation.teacher_directory,
                tokenizer=self.tokenizer,
            )
            store = TeacherCache.open(preparation.store / stage.name, identity)
        return EncodedSource(encoded, seed, masks=self.tokenizer if stage.masked_text else None, store=store)

    def _evaluator(self, stage: Stage) -> Evaluator | None:
        """Scores the student; made once a length, since making it is tracing the student."""
        held_out = self.preparation.dev_pretraining
        scored = held_out is not None if stage.data == "pretraining" else "logits" in stage.student_features
        if not scored:
            return None
        length = stage.max_length if held_out is None else held_out.max_length
        if length not in self._evaluators:
            self._evaluators[length] = make_evaluator(self.student, self.preparation, self.examples, length)
        return self._evaluators[length]

    @property
    def _needs_teacher(self) -> bool:
        return self.preparation.store is None and any(stage.teacher_features for stage in self.preparation.stages)

    @functools.cached_property
    def _teacher(self) -> Model:
        assert self.preparation.teacher_directory is not None
        log_info(f"loading the teacher, {self.preparation.teacher_directory}")
        run = self.preparation.run
        with precision_policy(run.teacher_precision or run.precision):
            return from_pretrained(self.preparation.teacher_directory)

    def _teacher_metrics(self) -> dict[str, float] | None:
        """On the development examples: a live teacher's, measured once a run before training, or those in its store."""
        preparation, path = self.preparation, self.folder / TEACHER_FILE
        if preparation.store is not None:
            return stored_teacher_metrics(preparation)
        if not self._needs_teacher or not teacher_answers(preparation):
            return None
        # Every process measures, or none: the teacher is loaded by all of them at once.
        if not self.distribution.as_chief_says(path.exists()):
            found = measure_teacher(self._teacher, preparation, self.examples)
            if self.distribution.is_chief:
                write_json(path, found)
            return found
        return read_record(path)
