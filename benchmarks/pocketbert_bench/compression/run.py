"""`compress`: train small networks cut out of one teacher, and export the best one within the limits."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.examples import evenly
from pocketbert.data.task_data import TaskData
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_json, write_text
from pocketbert.model import from_pretrained
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.pruning.importance import Importance, measure_importance
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.run_folder import MODEL_FOLDER, REPORT_FILE, begin_run, run_once
from pocketbert.trials.clock import RunClock
from pocketbert.trials.journal import Journal
from pocketbert.trials.scores import scores
from pocketbert.trials.workers import InTurn, Workers
from pocketbert_bench.compression.candidates import StudentCandidate, TrialData, by_kind, methods_for
from pocketbert_bench.compression.choice import BUNDLE_FOLDER, EXPORTS_FOLDER, Choice
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.costs import CostModel, fit_to_measurements, read_costs, write_costs
from pocketbert_bench.compression.inputs import Inputs, check
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.outcome import CompressResult
from pocketbert_bench.compression.report import page
from pocketbert_bench.compression.rungs import TRIALS_FOLDER, Rungs
from pocketbert_bench.compression.structures import SMALL_RANK, cuts_widths, structures, write_student
from pocketbert_bench.compression.teacher import EPOCHS_FILE, PACE_FOLDER, TEACHER_FOLDER, trained_teacher
from pocketbert_export.verification.verify import GateFailed

TEACHER_BUNDLE, STUDENTS_FOLDER, IMPORTANCE_FILE = "teacher_bundle", "students", "importance.safetensors"
COSTS_FILE, JOURNAL_FILE, TIME_FILE, LEADERBOARD_FILE = "costs.json", "journal.jsonl", "time.json", "leaderboard.json"
COMPRESSION_FILES = (
    TEACHER_BUNDLE,
    BUNDLE_FOLDER,
    EXPORTS_FOLDER,
    STUDENTS_FOLDER,
    IMPORTANCE_FILE,
    COSTS_FILE,
    JOURNAL_FILE,
    TIME_FILE,
    LEADERBOARD_FILE,
    EPOCHS_FILE,
    PACE_FOLDER,
    TRIALS_FOLDER,
    TEACHER_FOLDER,
)
_IMPORTANCE_EXAMPLES, _IMPORTANCE_LENGTH = 1000, 128
# Predicted latencies must leave this share of the limit: the upper end of the measured interval counts.
_MARGIN = 0.08
# Without limits, candidates have at most this share of the teacher's latency.
_UNLIMITED_SHARE = 0.6
# Export, gate, measurement and page, in exports of the teacher.
_ENDING = 2.5


def compress(
    model: str | os.PathLike[str] | None,
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    constraints: Constraints = Constraints(),  # noqa: B008
    minutes: float | None = None,
    trials: int | None = None,
    final: TaskData | None = None,
    recipe: str = "dynamic_wi8",
    seed: int = 0,
    workers: Workers | None = None,
    overwrite: bool = False,
) -> CompressResult:
    """Finds the best verified bundle of your data within limits.

    It fine-tunes a teacher unless `model` is one, cuts smaller networks out of it, trains those whose predicted
    latency and size are within the limits, first shortly and then the best ones longer, and exports the winner. The
    dev split chooses; the final split gives the scores of the result.

    Call it again with the same arguments to resume an interrupted run.

    Example:
      ```python
      result = pb.compress(None, data, "runs/small", constraints=pb.Constraints(max_latency_ms=3), minutes=60)
      ```

    Args:
      model: a model fine-tuned on the task (the teacher), an encoder to fine-tune first, or None for all-MiniLM-L6-v2.
      data: the task and its labelled examples.
      output: folder of the run: `bundle/`, `model/`, `report.html`, `leaderboard.json`, `result.json`.
      constraints: the limits.
      minutes: time from start to the finished bundle, without interruptions; exactly one of `minutes` and `trials`.
      trials: number of candidates to train instead of a time.
      final: data whose dev split gives the final scores; None draws 15 % of the training examples.
      recipe: recipe of the bundle, without calibration.
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
        final=final,
        recipe=recipe,
        seed=seed,
    )
    check_inputs(output, (inputs.directory, data.train.source, data.dev.source))
    compression = _Compression(inputs, workers or InTurn())
    folder, result = run_once(output, inputs.recorded, compression.run, overwrite=overwrite, files=COMPRESSION_FILES)
    # The result is there: nothing reads these any more.
    for name in (STUDENTS_FOLDER, EXPORTS_FOLDER, TRIALS_FOLDER):
        shutil.rmtree(folder / name, ignore_errors=True)
    return CompressResult(
        bundle_directory=str(folder / BUNDLE_FOLDER),
        model_directory=str(folder / MODEL_FOLDER),
        report=str(folder / REPORT_FILE),
        **result,
    )


class _Compression:
    """A compression with checked input."""

    def __init__(self, inputs: Inputs, workers: Workers) -> None:
        self._inputs, self._workers = inputs, workers

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes; returns the fields of `CompressResult` but for the paths."""
        inputs = self._inputs
        with RunClock(folder / TIME_FILE) as clock:
            # Before anything is written, and before the teacher trains: limits that nothing can meet.
            costs = self._costs(folder / COSTS_FILE)
            candidates = self._candidates(costs)
            begin_run(folder, inputs.recorded)
            write_costs(costs, folder / COSTS_FILE)
            clock.start_saving()

            def seconds_left() -> float:
                return math.inf if inputs.minutes is None else 60 * inputs.minutes - clock.seconds

            teacher = trained_teacher(inputs, folder, seconds_left())
            choice = Choice(inputs, folder, costs)
            with clock.timed("ending", _ENDING):
                try:
                    choice.export_teacher(teacher, folder / TEACHER_BUNDLE)
                except GateFailed as failure:
                    raise TrainingFailed(f"the teacher's bundle fails the gate: {failure}") from failure
            ending = clock.recorded["ending"]
            journal = Journal(folder / JOURNAL_FILE, (Trial,))
            rungs = Rungs(
                folder,
                journal,
                TrialData(data=inputs.splits.data, teacher=str(teacher.absolute()), max_length=inputs.length),
                teacher=inputs.described.config,
                workers=self._workers,
                seed=inputs.seed,
                start=lambda candidate: self._student(folder, teacher, candidate),
            )
            total = clock.record("trials", lambda: seconds_left() - ending)
            try:
                rungs.run(candidates, lambda: seconds_left() - ending, total, inputs.trials)
            except KeyboardInterrupt as interrupt:
                # Other signals and a second Ctrl-C end the run.
                if type(interrupt) is not KeyboardInterrupt or not scores(journal.records):
                    raise
                log_info("interrupted: exporting the best candidate so far; interrupt again to end at once")
            finally:
                self._workers.close()
            result = choice.result(rungs, rungs.ranked(candidates)) | {"seconds": clock.seconds}
            write_json(folder / LEADERBOARD_FILE, result["leaderboard"])
            write_text(folder / REPORT_FILE, page(result, inputs.constraints, inputs.setting.recipe))
            return result

    def _costs(self, path: Path) -> CostModel:
        inputs = self._inputs
        if path.exists():
            return read_costs(path)
        small = inputs.constraints.max_mb is not None and inputs.described.config.hidden_size > SMALL_RANK
        return fit_to_measurements(
            inputs.described.config, inputs.setting, small_embedding=small, threads=inputs.constraints.threads
        )

    def _candidates(self, costs: CostModel) -> list[StudentCandidate]:
        """Candidates within the limits, in the order of trials.

        Raises:
          UserError: none is within the limits; the message names the nearest.
        """
        teacher, limits = self._inputs.described.config, self._inputs.constraints
        everything = [
            StudentCandidate(
                kind=kind,
                structure=structure,
                method=method,
                all_heads=structure.heads == teacher.num_attention_heads,
                cost=costs.predict(structure.config(teacher)),
            )
            for kind, structure in structures(teacher, small_embedding=limits.max_mb is not None)
            for method in methods_for(self._inputs.splits.data)
        ]
        if not limits.stated:
            most = _UNLIMITED_SHARE * costs.predict(teacher).latency_ms
            limits = dataclasses.replace(limits, max_latency_ms=most)
        excess = {id(candidate): limits.excess(candidate.cost, _MARGIN) for candidate in everything}
        within = [candidate for candidate in everything if excess[id(candidate)] == 0]
        if not within:
            nearest = min(everything, key=lambda candidate: excess[id(candidate)])
            raise UserError(
                f"no network within the limits can be cut out of this teacher; the nearest, {nearest.structure.name}, "
                f"has about {nearest.cost.latency_ms:.2g} ms and {nearest.cost.size_mb:.3g} MB; raise the limit, or "
                "use a smaller encoder as the model"
            )
        log_info(f"{len(within)} of {len(everything)} candidates are within the limits by their predicted costs")
        return by_kind(within)

    def _student(self, folder: Path, teacher: Path, candidate: StudentCandidate) -> Path:
        """Writes the initial weights of a candidate, once."""
        path = folder / STUDENTS_FOLDER / candidate.structure.name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            whole = not cuts_widths(candidate.structure, self._inputs.described.config)
            importance = None if whole else self._importance(folder, teacher)
            write_student(read_directory(teacher), importance, candidate.structure, path)
        return path.absolute()

    def _importance(self, folder: Path, teacher: Path) -> Importance:
        """Importance of the teacher's heads and neurons on some training examples."""
        model, train = from_pretrained(teacher), self._inputs.splits.data.train
        assert model.task is not None
        rows = train.select(evenly(len(train), _IMPORTANCE_EXAMPLES))
        length = min(_IMPORTANCE_LENGTH, model.config.max_position_embeddings)
        encoded = supervised_task(model.task).encode(rows, model.tokenizer, length)
        return measure_importance(model, encoded, folder / IMPORTANCE_FILE, batch_size=32, seed=self._inputs.seed)
