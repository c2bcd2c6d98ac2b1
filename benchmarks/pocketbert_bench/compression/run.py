"""`compress`: train small networks cut out of one teacher, and export the best one within the limits."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.final_split import ThreeSplits
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed
from pocketbert.files import write_json, write_text
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.training.run_folder import MODEL_FOLDER, OPTIONS_FILE, REPORT_FILE, begin_run, pinned_commits, run_once
from pocketbert.trials.clock import Record, RunClock
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert.trials.journal import Journal
from pocketbert.trials.workers import InTurn, Workers
from pocketbert_bench.compression.budget import (
    EXPORT,
    FINAL,
    check_minutes,
    ending_seconds,
    short_time,
    with_few_examples,
)
from pocketbert_bench.compression.candidates import StudentCandidate, candidates_within, measured_costs
from pocketbert_bench.compression.choice import EXPORTS_FOLDER, Choice
from pocketbert_bench.compression.command_lines import SPLITS_FOLDER, CommandLines
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.costs import read_costs, write_costs
from pocketbert_bench.compression.folds import FOLD_FILE, FoldScores, dev_score, read_fold, score_fold
from pocketbert_bench.compression.inputs import Inputs, check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.measurements import (
    COSTS_FILE,
    MEASURED_FILE,
    MEASUREMENTS_FOLDER,
    read_measured,
    write_measured,
)
from pocketbert_bench.compression.methods import TrialData
from pocketbert_bench.compression.other_students import STARTS_FOLDER
from pocketbert_bench.compression.outcome import LEADERBOARD_FILE, CompressResult
from pocketbert_bench.compression.points_limit import PointsLimit, untrained_losses
from pocketbert_bench.compression.published import (
    ASIDE_FOLDER,
    BUNDLE_FOLDER,
    MODELS_FOLDER,
    kept_models,
    publish,
)
from pocketbert_bench.compression.report import page
from pocketbert_bench.compression.rungs import TRIALS_FOLDER, Rungs
from pocketbert_bench.compression.space import check_space, space_needed
from pocketbert_bench.compression.students import IMPORTANCE_FILE, importance_options, prepare_importance, student
from pocketbert_bench.compression.teacher import (
    TEACHER_FOLDER,
    teacher_options,
    trained_teacher,
    training_seconds,
    trial_data,
)
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.verification.verify import GateFailed

TEACHER_BUNDLE, FOLDS_FOLDER = "teacher_bundle", "folds"
JOURNAL_FILE, TIME_FILE = "journal.jsonl", "time.json"
COMPRESSION_FILES = (
    TEACHER_BUNDLE,
    BUNDLE_FOLDER,
    EXPORTS_FOLDER,
    MEASUREMENTS_FOLDER,
    FOLDS_FOLDER,
    SPLITS_FOLDER,
    IMPORTANCE_FILE,
    STARTS_FOLDER,
    COSTS_FILE,
    MEASURED_FILE,
    JOURNAL_FILE,
    TIME_FILE,
    LEADERBOARD_FILE,
    TRIALS_FOLDER,
    TEACHER_FOLDER,
    MODELS_FOLDER,
    ASIDE_FOLDER,
)
# Nothing reads them after the result.
_TEMPORARY = (EXPORTS_FOLDER, MEASUREMENTS_FOLDER, TRIALS_FOLDER)


def compress(
    model: str | os.PathLike[str] | None,
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    constraints: Constraints = Constraints(),  # noqa: B008
    minutes: float | None = None,
    trials: int | None = None,
    measurements: str | os.PathLike[str] | None = None,
    kfold: int | None = None,
    recipe: str | None = None,
    students: Sequence[str | os.PathLike[str]] = (),
    supernet: str | os.PathLike[str] | None = None,
    text: str | os.PathLike[str] | None = None,
    slices: Mapping[str, Mapping[str, str]] = {},
    like: str | os.PathLike[str] | None = None,
    stop_below_baseline: bool = False,
    card: CardOptions = CardOptions(),  # noqa: B008
    seed: int = 0,
    workers: Workers | None = None,
    overwrite: bool = False,
) -> CompressResult:
    """Finds the best verified bundle for your data within limits.

    It fine-tunes a teacher unless `model` is one, cuts smaller networks out of it, trains those with predicted latency
    and size within the limits, first shortly and then the best ones longer, and exports the winner. The dev split
    chooses; the final split gives the result's scores. With folds, the choice is repeated on each, and the scores are
    means over their final splits; then a model is chosen from all examples.

    Call it again with the same arguments to resume an interrupted run. With more `minutes` or `trials`, a finished run
    continues from its candidates, and its result is replaced at the end; with fewer, you get its result.

    Example:
      ```python
      result = pb.compress(None, data, "runs/small", constraints=pb.Constraints(max_latency_ms=3), minutes=60)
      ```

    Args:
      model: a model fine-tuned on the task (the teacher), an encoder to fine-tune first, or None for all-MiniLM-L6-v2.
        If no network can be cut out of it, as with ModernBERT, they are cut out of all-MiniLM-L6-v2 or `students`.
      data: the task and its labelled examples; candidates that learn predictions also read soft labels or unlabelled
        texts.
      output: the run's folder: `bundle/`, `model/`, `models/`, `report.html`, `leaderboard.json`, `result.json`.
      constraints: the limits.
      minutes: time from start to the finished bundle, without interruptions; pass either `minutes` or `trials`.
      trials: number of candidates to train instead of a time.
      measurements: folder of a finished run with the same networks; reuse its measured costs. With `trials`, the same
        options then give the same winner.
      kfold: number of folds for the final score; None for five below 500 examples, otherwise one final split with 15 %
        of the examples, or the test split in `data`.
      recipe: the bundle's recipe, without calibration, or mixed; None for dynamic_wi8, and with a size limit also for
        dynamic_wi4.
      students: further networks to train: presets with the teacher's vocabulary for random weights, or models. A model
        with another tokenizer learns predictions alone, also with two thirds and one third of its layers.
      supernet: supernet of `pocketbert search`, a model directory with the teacher's vocabulary. EfficientBERTs among
        the students start from slices of its weights, and a few parts of it with other expressions train, too.
      text: plain text, on which candidates also learn the teacher's relations (MiniLMv2) before they learn the labels.
      slices: name → example id (its line or row number) → value. The page has the loss for each value with at least 30
        final examples.
      like: folder of a finished run; train only its winner's structure and method, with its recipe. Or the name of a
        candidate, as in a leaderboard.
      stop_below_baseline: stop if a simple method is better than the teacher, instead of warning.
      card: facts for the model card.
      seed: random seed.
      workers: train the candidates; None for one after another in this process.
      overwrite: discard a finished run in the output folder, or a run with other options.
    Returns:
      The bundle with its scores.
    Raises:
      UserError: no candidate can meet the limits, there are too few examples, or `output` contains another run.
      TrainingFailed: the teacher or all candidates diverged, or no trained candidate met limits and gate.
    """
    inputs = check(
        model,
        data,
        constraints=constraints,
        minutes=minutes,
        trials=trials,
        measurements=measurements,
        kfold=kfold,
        recipe=recipe,
        students=students,
        supernet=supernet,
        text=text,
        slices=slices,
        like=like,
        stop_below_baseline=stop_below_baseline,
        card=card,
        seed=seed,
        pinned={} if overwrite else pinned_commits(output),
    )
    sources = [split.source for split in (data.train, data.dev, data.test, data.unlabelled) if split is not None]
    check_inputs(output, (inputs.directory, measurements, text, like, supernet, *students, *sources))
    compression = _Compression(inputs, workers or InTurn())
    folder, result = run_once(
        output,
        inputs.recorded,
        compression.run,
        overwrite=overwrite,
        files=COMPRESSION_FILES,
        is_finished=compression.is_finished,
    )
    return CompressResult(
        bundle_directory=str(folder / BUNDLE_FOLDER),
        model_directory=str(folder / MODEL_FOLDER),
        report=str(folder / REPORT_FILE),
        **result,
    )


def planned_candidates(inputs: Inputs) -> list[StudentCandidate]:
    """Lists `compress`'s candidates in order, with predicted costs; raises a `UserError` if none meets the limits."""
    return candidates_within(inputs, measured_costs(inputs))


class _Compression:
    """A compression with checked input."""

    def __init__(self, inputs: Inputs, workers: Workers) -> None:
        self._inputs, self._workers = inputs, workers

    def is_finished(self, folder: Path) -> bool:
        """Whether a folder has a result for this budget or a larger one."""
        publish(folder, _TEMPORARY)
        path = folder / RESULT_FILE
        if not path.exists():
            return False
        result, inputs = read_result(path), self._inputs
        finished: bool = (result.get("minutes") or result.get("trials") or 0) >= inputs.amount
        if not finished:
            log_info("continuing a finished run with a larger budget; its result stays until the new one is complete")
        return finished

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes; returns the fields of `CompressResult` but for the paths."""
        inputs = self._inputs
        # An earlier version's trials are refused before the teacher trains.
        for path in (folder / JOURNAL_FILE, *folder.glob(f"{FOLDS_FOLDER}/*/{JOURNAL_FILE}")):
            Journal(path, (Trial,))
        with RunClock(folder / TIME_FILE) as clock:
            # Before anything is written, and before the teacher trains: impossible limits, and a full disk.
            costs = read_costs(folder / COSTS_FILE) if (folder / COSTS_FILE).exists() else measured_costs(inputs)
            candidates = candidates_within(inputs, costs)
            if not (folder / OPTIONS_FILE).exists():
                check_minutes(inputs, clock.seconds)
            check_space(space_needed(inputs, costs, candidates, self._workers.parallel), folder)
            if not (folder / RESULT_FILE).exists():
                begin_run(folder, inputs.recorded)
            if inputs.measurements and not (folder / COSTS_FILE).exists():
                write_measured(read_measured(inputs.measurements), folder)
            write_costs(costs, folder / COSTS_FILE)
            clock.start_saving()
            teacher_ms = costs[inputs.recipe].predict(inputs.described.config, inputs.shares).latency_ms
            self._inputs = inputs = with_few_examples(inputs, teacher_ms, clock)

            def seconds_left() -> float:
                return math.inf if inputs.minutes is None else 60 * inputs.minutes - clock.seconds

            def spare_seconds() -> float:
                return seconds_left() - ending_seconds(inputs, teacher_ms, clock)

            try:
                folds = self._folds(folder, clock, candidates, seconds_left)
                teacher = trained_teacher(inputs, folder, seconds_left(), _recorded(clock, folder))
                without_teacher = clock.record(f"time without the teacher in {inputs.budget}", seconds_left)
                choice = Choice(inputs, folder, teacher_ms, spare_seconds)
                try:
                    choice.export_teacher(teacher, folder / TEACHER_BUNDLE, lambda: clock.timed(EXPORT))
                except GateFailed as failure:
                    raise TrainingFailed(f"the teacher's bundle fails the gate: {failure}") from failure
                with clock.timed(FINAL):
                    choice.answer_final_examples()
                prepare_importance(inputs, folder, teacher, candidates, _recorded(clock, folder))
                rungs = self._rungs(
                    inputs, folder, teacher, candidates, lambda: choice.teacher_outcome["score"], clock, spare_seconds
                )
                total = clock.record(f"trials in {inputs.budget}", spare_seconds)
                trained = clock.record(f"trials before {inputs.budget}", lambda: rungs.seconds)
                if short := short_time(inputs, without_teacher + trained, total + trained):
                    log_info(f"warning: {short}")
                try:
                    rungs.run(candidates, spare_seconds, total, inputs.trials)
                except KeyboardInterrupt as interrupt:
                    # Other signals and a second Ctrl-C end the run.
                    if type(interrupt) is not KeyboardInterrupt or not rungs.scored:
                        raise
                    log_info("interrupted: exporting the best candidate so far; interrupt again to end at once")
            finally:
                self._workers.close()
            config, complete = teacher_options(inputs, folder)
            importance = importance_options(inputs, _recorded(clock, folder))
            commands = CommandLines(inputs, folder, teacher=config, teacher_complete=complete, importance=importance)
            aside = folder / ASIDE_FOLDER
            result = choice.result(rungs, candidates, folds, commands, aside)
            result |= {"minutes": inputs.minutes, "trials": inputs.trials, "seconds": clock.seconds}
            of_candidates = sum(row["training_seconds"] for row in result["leaderboard"])
            result["training_seconds"] = training_seconds(inputs, folder) + of_candidates
            result["notes"] += [short] if short else []
            if folds and clock.recorded["budget of the folds"] != inputs.amount:
                result["notes"].append("the scores of the folds are those of a smaller budget")
            write_json(aside / LEADERBOARD_FILE, result["leaderboard"])
            write_text(aside / REPORT_FILE, page(result, inputs, aside / BUNDLE_FOLDER))
            write_json(aside / RESULT_FILE, result)
        publish(folder, _TEMPORARY)
        return result

    def _folds(
        self,
        folder: Path,
        clock: RunClock,
        candidates: Sequence[StudentCandidate],
        seconds_left: Callable[[], float],
    ) -> list[FoldScores]:
        """Trains teacher and candidates on each fold, and scores the best candidate on its final split."""
        scores = []
        if self._inputs.folds:
            clock.record("budget of the folds", lambda: self._inputs.amount)
        for number, splits in enumerate(self._inputs.folds):
            path = folder / FOLDS_FOLDER / f"fold-{number}"
            if not (path / FOLD_FILE).exists():
                log_info(f"fold {number + 1} of {len(self._inputs.folds)}")
                path.mkdir(parents=True, exist_ok=True)
                # The run on all examples takes as long as two folds, since it also exports and measures.
                parts = len(self._inputs.folds) - number + 2
                end = clock.record(f"fold {number}", lambda parts=parts: clock.seconds + seconds_left() / parts)  # type: ignore[misc]
                self._score_fold(path, splits, candidates, clock, lambda end=end: end - clock.seconds)  # type: ignore[misc]
                for name in (TEACHER_FOLDER, TRIALS_FOLDER, STARTS_FOLDER):
                    shutil.rmtree(path / name, ignore_errors=True)
            scores.append(read_fold(path / FOLD_FILE))
        return scores

    def _score_fold(
        self,
        path: Path,
        splits: ThreeSplits,
        candidates: Sequence[StudentCandidate],
        clock: RunClock,
        seconds_left: Callable[[], float],
    ) -> None:
        inputs = dataclasses.replace(self._inputs, splits=splits)
        teacher = trained_teacher(inputs, path, seconds_left(), _recorded(clock, path))
        prepare_importance(inputs, path, teacher, candidates, _recorded(clock, path))
        rungs = self._rungs(inputs, path, teacher, candidates, lambda: dev_score(inputs, teacher), clock, seconds_left)
        rungs.run(candidates, seconds_left, seconds_left(), inputs.trials)
        chosen = rungs.preferred(candidates) or rungs.ranked(candidates)
        score_fold(inputs, teacher, rungs.model(chosen[0]), path / FOLD_FILE)

    def _rungs(
        self,
        inputs: Inputs,
        folder: Path,
        teacher: Path,
        candidates: Sequence[StudentCandidate],
        teacher_score: Callable[[], float],
        clock: RunClock,
        seconds_left: Callable[[], float],
    ) -> Rungs:
        limits, record, points = inputs.constraints, _recorded(clock, folder), None

        def start(candidate: StudentCandidate, path: Path) -> Path:
            return student(inputs, folder, teacher, candidate, path, record)

        if limits.max_points_lost is not None:
            path = folder.absolute() / TRIALS_FOLDER / "untrained"
            untrained = untrained_losses(inputs, teacher, candidates, start, path, seconds_left(), record)
            points = PointsLimit(limits.least_score(teacher_score()), untrained, limits.max_points_lost / 100)
        return Rungs(
            folder,
            Journal(folder / JOURNAL_FILE, (Trial,)),
            TrialData(
                data=trial_data(inputs, teacher, record),
                teacher=str(teacher.absolute()),
                max_length=inputs.length,
                text=inputs.text,
                head_examples=inputs.head_examples,
            ),
            teacher=inputs.described.config,
            workers=self._workers,
            seed=inputs.seed,
            start=start,
            record=record,
            budget=inputs.budget,
            kept=kept_models(folder),
            limits=limits,
            points=points,
        )


def _recorded(clock: RunClock, folder: Path) -> Record:
    """Records numbers for a run or a fold."""
    return lambda name, value: clock.record(f"{folder.name}: {name}", value)
