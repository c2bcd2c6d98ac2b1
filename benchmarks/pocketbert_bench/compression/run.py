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
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_json, write_text
from pocketbert.notation import argument
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.training.run_folder import MODEL_FOLDER, REPORT_FILE, begin_run, run_once
from pocketbert.trials.clock import Record, RunClock
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert.trials.journal import Journal
from pocketbert.trials.workers import InTurn, Workers
from pocketbert_bench.compression.candidates import StudentCandidate, TrialData, in_order, methods_for
from pocketbert_bench.compression.choice import EXPORTS_FOLDER, MEASUREMENTS_FOLDER, Choice
from pocketbert_bench.compression.command_lines import SPLITS_FOLDER, CommandLines
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.costs import CostModel, fitted_model, read_costs, write_costs
from pocketbert_bench.compression.folds import FOLD_FILE, FoldScores, dev_score, read_fold, score_fold
from pocketbert_bench.compression.inputs import Inputs, check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.measurements import COSTS_FILE, MEASURED_FILE, read_measured, write_measured
from pocketbert_bench.compression.outcome import CompressResult
from pocketbert_bench.compression.published import (
    ASIDE_FOLDER,
    BUNDLE_FOLDER,
    LEADERBOARD_FILE,
    MODELS_FOLDER,
    kept_models,
    publish,
)
from pocketbert_bench.compression.report import page
from pocketbert_bench.compression.rungs import TRIALS_FOLDER, Rungs
from pocketbert_bench.compression.space import check_space, space_needed
from pocketbert_bench.compression.structures import structures
from pocketbert_bench.compression.students import IMPORTANCE_FILE, STUDENTS_FOLDER, importance_options, student
from pocketbert_bench.compression.teacher import (
    PACE_FOLDER,
    TEACHER_FOLDER,
    teacher_options,
    trained_teacher,
    training_pace,
)
from pocketbert_export.verification.verify import GateFailed

TEACHER_BUNDLE, FOLDS_FOLDER = "teacher_bundle", "folds"
JOURNAL_FILE, TIME_FILE = "journal.jsonl", "time.json"
COMPRESSION_FILES = (
    TEACHER_BUNDLE,
    BUNDLE_FOLDER,
    EXPORTS_FOLDER,
    MEASUREMENTS_FOLDER,
    FOLDS_FOLDER,
    STUDENTS_FOLDER,
    SPLITS_FOLDER,
    IMPORTANCE_FILE,
    COSTS_FILE,
    MEASURED_FILE,
    JOURNAL_FILE,
    TIME_FILE,
    LEADERBOARD_FILE,
    PACE_FOLDER,
    TRIALS_FOLDER,
    TEACHER_FOLDER,
    MODELS_FOLDER,
    ASIDE_FOLDER,
)
# Nothing reads them after the result.
_TEMPORARY = (STUDENTS_FOLDER, EXPORTS_FOLDER, MEASUREMENTS_FOLDER, TRIALS_FOLDER)
# Predicted latencies must leave this share of the limit: the upper end of the measured interval counts.
_MARGIN = 0.08
# Without a limit of the latency, candidates are spread below these shares of the teacher's.
_SHARES = (0.75, 0.5, 0.35, 0.22, 0.14)
# Export, gate, measurement and page, in exports of the teacher, which is slower and comes first.
_ENDING = 1.3


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
    stop_below_baseline: bool = False,
    seed: int = 0,
    workers: Workers | None = None,
    overwrite: bool = False,
) -> CompressResult:
    """Finds the best verified bundle of your data within limits.

    It fine-tunes a teacher unless `model` is one, cuts smaller networks out of it, trains those whose predicted
    latency and size are within the limits, first shortly and then the best ones longer, and exports the winner. The
    dev split chooses; the final split gives the scores of the result. With folds, the choice is repeated on each of
    them, and the scores are means over their final splits; then a model is chosen from all examples.

    Call it again with the same arguments to resume an interrupted run. With more `minutes` or `trials`, a finished run
    continues from its candidates, and its result is replaced at the end; with fewer, you get its result.

    Example:
      ```python
      result = pb.compress(None, data, "runs/small", constraints=pb.Constraints(max_latency_ms=3), minutes=60)
      ```

    Args:
      model: a model fine-tuned on the task (the teacher), an encoder to fine-tune first, or None for all-MiniLM-L6-v2.
      data: the task and its labelled examples.
      output: folder of the run: `bundle/`, `model/`, `models/`, `report.html`, `leaderboard.json`, `result.json`.
      constraints: the limits.
      minutes: time from start to the finished bundle, without interruptions; exactly one of `minutes` and `trials`.
      trials: number of candidates to train instead of a time.
      measurements: folder of a finished run with the same networks, whose measured costs this one takes. With `trials`,
        the same options give the same winner then.
      kfold: number of folds that give the final score; None for five below 500 examples, otherwise one final split
        with 15 % of the examples, or the test split of `data`.
      recipe: recipe of the bundle, without calibration; None for dynamic_wi8, and with a limit of the size also for
        dynamic_wi4.
      stop_below_baseline: stop if a simple method is better than the teacher, instead of warning.
      seed: random seed.
      workers: where candidates train; None for one after another in this process.
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
        stop_below_baseline=stop_below_baseline,
        seed=seed,
    )
    sources = [split.source for split in (data.train, data.dev, data.test) if split is not None]
    check_inputs(output, (inputs.directory, *sources))
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


def candidates_within(inputs: Inputs) -> list[StudentCandidate]:
    """Candidates that `compress` would train, in the order of trials, with predicted costs.

    Raises:
      UserError: no candidate can meet the limits.
    """
    return _candidates(inputs, _costs(inputs))


class _Compression:
    """A compression with checked input."""

    def __init__(self, inputs: Inputs, workers: Workers) -> None:
        self._inputs, self._workers = inputs, workers

    def is_finished(self, folder: Path) -> bool:
        """Whether a folder has a result of this budget or of a larger one."""
        publish(folder, _TEMPORARY)
        path = folder / RESULT_FILE
        if not path.exists():
            return False
        result, inputs = read_result(path), self._inputs
        # One of them is None.
        finished: bool = (result.get("minutes") or result.get("trials") or 0) >= inputs.amount
        if not finished:
            log_info("continuing a finished run with a larger budget; its result stays until the new one is complete")
        return finished

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes; returns the fields of `CompressResult` but for the paths."""
        inputs = self._inputs
        with RunClock(folder / TIME_FILE) as clock:
            # Before anything is written, and before the teacher trains: limits that nothing can meet, and a full disk.
            costs = read_costs(folder / COSTS_FILE) if (folder / COSTS_FILE).exists() else _costs(inputs)
            candidates = _candidates(inputs, costs)
            check_space(space_needed(inputs, costs, candidates, self._workers.parallel), folder)
            if not (folder / RESULT_FILE).exists():
                begin_run(folder, inputs.recorded)
            if inputs.measurements and not (folder / COSTS_FILE).exists():
                write_measured(read_measured(inputs.measurements), folder)
            write_costs(costs, folder / COSTS_FILE)
            clock.start_saving()

            def seconds_left() -> float:
                return math.inf if inputs.minutes is None else 60 * inputs.minutes - clock.seconds

            try:
                folds = self._folds(folder, clock, candidates, seconds_left)
                teacher = trained_teacher(inputs, folder, seconds_left(), _recorded(clock, folder))
                choice = Choice(inputs, folder)
                with clock.timed("ending", _ENDING):
                    try:
                        choice.export_teacher(teacher, folder / TEACHER_BUNDLE)
                    except GateFailed as failure:
                        raise TrainingFailed(f"the teacher's bundle fails the gate: {failure}") from failure
                ending = clock.recorded["ending"]
                rungs = self._rungs(inputs, folder, teacher, lambda: choice.teacher_outcome["score"], clock)
                total = clock.record(f"trials in {inputs.budget}", lambda: seconds_left() - ending)
                try:
                    rungs.run(candidates, lambda: seconds_left() - ending, total, inputs.trials)
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
            result = choice.result(rungs, candidates, folds, seconds_left, commands, aside)
            result |= {"minutes": inputs.minutes, "trials": inputs.trials, "seconds": clock.seconds}
            if folds and clock.recorded["budget of the folds"] != inputs.amount:
                result["notes"].append("the scores of the folds are those of a smaller budget")
            write_json(aside / LEADERBOARD_FILE, result["leaderboard"])
            write_text(aside / REPORT_FILE, page(result, inputs.constraints, inputs.where))
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
                for name in (TEACHER_FOLDER, STUDENTS_FOLDER, TRIALS_FOLDER):
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
        rungs = self._rungs(inputs, path, teacher, lambda: dev_score(inputs, teacher), clock)
        rungs.run(candidates, seconds_left, seconds_left(), inputs.trials)
        chosen = rungs.preferred(candidates) or rungs.ranked(candidates)
        score_fold(inputs, teacher, rungs.model(chosen[0]), path / FOLD_FILE)

    def _rungs(
        self, inputs: Inputs, folder: Path, teacher: Path, teacher_score: Callable[[], float], clock: RunClock
    ) -> Rungs:
        limits = inputs.constraints
        return Rungs(
            folder,
            Journal(folder / JOURNAL_FILE, (Trial,)),
            TrialData(data=inputs.splits.data, teacher=str(teacher.absolute()), max_length=inputs.length),
            teacher=inputs.described.config,
            workers=self._workers,
            seed=inputs.seed,
            start=lambda candidate: student(inputs, folder, teacher, candidate, _recorded(clock, folder)),
            record=_recorded(clock, folder),
            budget=inputs.budget,
            kept=kept_models(folder),
            limits=limits,
            least_score=None if limits.max_points_lost is None else limits.least_score(teacher_score()),
            teacher_pace=training_pace(teacher),
        )


def _recorded(clock: RunClock, folder: Path) -> Record:
    """Records numbers of a run or a fold."""
    return lambda name, value: clock.record(f"{folder.name}: {name}", value)


def _costs(inputs: Inputs) -> dict[str, CostModel]:
    """The model of each recipe; the second one is not measured if the teacher's file is small enough with the first."""
    teacher, limits, costs = inputs.described.config, inputs.constraints, dict[str, CostModel]()
    earlier = {} if inputs.measurements is None else read_costs(inputs.measurements / COSTS_FILE)
    for setting in inputs.settings:
        if (
            costs
            and limits.max_mb is not None
            and costs[inputs.recipe].predict(teacher, inputs.shares).size_mb <= limits.max_mb
        ):
            break
        costs[setting.recipe] = earlier.get(setting.recipe) or fitted_model(
            teacher, setting, small_embedding=inputs.small_embedding, device=inputs.device
        )
        if limits.max_memory_mb is not None and not any(costs[setting.recipe].memory):
            raise UserError(
                f"{argument('max_memory_mb')} needs a device that reports the memory of its processes; "
                f"{inputs.device.name or 'this machine'} does not; leave the limit out"
            )
    return costs


def _candidates(inputs: Inputs, costs: Mapping[str, CostModel]) -> list[StudentCandidate]:
    """Candidates within the limits, in the order of trials.

    Each has the first embedding and recipe that are within them. A factored embedding comes last, since it changes the
    weights before training.

    Raises:
      UserError: none is within the limits; the message names the nearest.
    """
    teacher, limits = inputs.described.config, inputs.constraints
    nearest: dict[tuple[object, ...], tuple[float, StudentCandidate]] = {}
    for kind, structure in structures(teacher, small_embedding=inputs.small_embedding):
        for method in methods_for(inputs.splits.data):
            for recipe, model in costs.items():
                candidate = StudentCandidate(
                    kind=kind,
                    structure=structure,
                    method=method,
                    all_heads=structure.heads == teacher.num_attention_heads,
                    recipe=recipe,
                    cost=model.predict(structure.config(teacher), inputs.shares),
                )
                excess = limits.excess(candidate.cost, _MARGIN)
                shape = structure.layers, structure.heads, structure.intermediate_size, method
                if shape not in nearest or excess < nearest[shape][0]:
                    nearest[shape] = excess, candidate
    within = [candidate for excess, candidate in nearest.values() if excess == 0]
    if not within:
        _, candidate = min(nearest.values(), key=lambda pair: pair[0])
        memory = "" if limits.max_memory_mb is None else f" and {candidate.cost.memory_mb:.3g} MB of memory"
        raise UserError(
            f"no network within the limits can be cut out of this teacher; the nearest, {candidate.structure.name}, "
            f"has about {candidate.cost.latency_ms:.2g} ms {inputs.where}, {candidate.cost.size_mb:.3g} MB{memory} as "
            f"{candidate.recipe}; raise the limit, or use a smaller encoder as the model"
        )
    log_info(f"{len(within)} of {len(nearest)} candidates are within the limits by their predicted costs")
    shares = (math.inf,) if limits.max_latency_ms is not None else _SHARES
    slowest = costs[inputs.recipe].predict(teacher, inputs.shares).latency_ms
    # All kinds may be slower than a share of a teacher with one layer.
    return in_order(within, [share * slowest for share in shares]) or in_order(within, [math.inf])
