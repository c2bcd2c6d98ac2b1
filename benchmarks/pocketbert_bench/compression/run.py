"""`compress`: train many small networks cut out of one teacher, and export the best one within the limits."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import describe_directory, read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.final_split import ThreeSplits, three_splits
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.files import write_json, write_text
from pocketbert.model import from_pretrained
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.pruning.importance import Importance, measure_importance, read_importance
from pocketbert.tasks.registry import supervised_kinds, supervised_task
from pocketbert.training.grids.workers import InTurn, Workers
from pocketbert.training.plan import open_data
from pocketbert.training.run_folder import (
    MODEL_FOLDER,
    REPORT_FILE,
    begin_run,
    clear_run,
    run_once,
)
from pocketbert.training.state import digest_directory
from pocketbert_bench.compression.candidates import StudentCandidate, TrialData, by_kind, methods_for
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.costs import CostModel, fit_or_read
from pocketbert_bench.compression.journal import TrialJournal
from pocketbert_bench.compression.outcome import BudgetClock, CompressResult, Measured, measure, paired_loss
from pocketbert_bench.compression.report import page
from pocketbert_bench.compression.rungs import TRIALS_FOLDER, Rungs
from pocketbert_bench.compression.structures import structures, write_student
from pocketbert_bench.compression.teacher import (
    EPOCHS_FILE,
    TEACHER_FOLDER,
    head_of,
    rounded_up,
    trained_teacher,
    usual_length,
)
from pocketbert_bench.network_latency import Setting
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.exporter import export
from pocketbert_export.verification.outcomes import ScoringData

TEACHER_BUNDLE, BUNDLE_FOLDER = "teacher_bundle", "bundle"
STUDENTS_FOLDER, IMPORTANCE_FILE = "students", "importance.safetensors"
COSTS_FILE, JOURNAL_FILE, TIME_FILE, LEADERBOARD_FILE = "costs.json", "journal.jsonl", "time.json", "leaderboard.json"
COMPRESSION_FILES = (
    TEACHER_BUNDLE,
    BUNDLE_FOLDER,
    STUDENTS_FOLDER,
    IMPORTANCE_FILE,
    COSTS_FILE,
    JOURNAL_FILE,
    TIME_FILE,
    LEADERBOARD_FILE,
    EPOCHS_FILE,
    TRIALS_FOLDER,
    TEACHER_FOLDER,
)
_RANK = 128
# Exports that may miss a limit before the run gives up: predictions of latency are off by a few percent.
_MOST_EXPORTS = 4
_IMPORTANCE_EXAMPLES = 1000
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
      model: a fine-tuned model directory (the teacher), an encoder to fine-tune first, or None for all-MiniLM-L6-v2.
      data: the task and its labelled examples.
      output: folder of the run: `bundle/`, `model/`, `report.html`, `leaderboard.json`, `result.json`.
      constraints: the limits.
      minutes: time from start to the finished bundle, without interruptions; exactly one of `minutes` and `trials`.
      trials: number of candidates to train instead of a time, which repeats the same trials.
      final: data whose dev split gives the final scores; None draws 15 % of the training examples.
      recipe: recipe of the bundle.
      seed: random seed.
      workers: where candidates train; None for one after another in this process.
      overwrite: discard a finished run in the output folder, or a run with other options.

    Returns:
      The bundle with its scores.

    Raises:
      UserError: no candidate can meet the limits, there are too few examples, or `output` contains another run.
      TrainingFailed: the teacher or all candidates diverged.
    """
    if (minutes is None) == (trials is None):
        raise UserError("compress needs either minutes or trials; received both or neither; pass one")
    if data.task.kind not in supervised_kinds():
        raise UserError(f"compress: the task must be {', '.join(supervised_kinds())}; received {data.task.kind}")
    directory = Path(model) if model is not None else minilm()
    check_inputs(output, (directory, data.train.source, data.dev.source))
    splits = three_splits(data, final=final, seed=seed)
    run = _Compression(
        directory,
        splits,
        constraints=constraints,
        minutes=minutes,
        trials=trials,
        recipe=recipe,
        seed=seed,
        workers=workers or InTurn(),
    )
    folder, result = run_once(output, run.recorded, run.run, overwrite=overwrite, files=COMPRESSION_FILES)
    return CompressResult(
        bundle_directory=str(folder / BUNDLE_FOLDER),
        model_directory=str(folder / MODEL_FOLDER),
        report=str(folder / REPORT_FILE),
        **result,
    )


class _Compression:
    """A compression with checked input; the arguments are those of `compress`."""

    def __init__(
        self,
        directory: Path,
        splits: ThreeSplits,
        *,
        constraints: Constraints,
        minutes: float | None,
        trials: int | None,
        recipe: str,
        seed: int,
        workers: Workers,
    ) -> None:
        self._directory, self._splits, self._constraints = directory, splits, constraints
        self._minutes, self._trials, self._recipe, self._seed = minutes, trials, recipe, seed
        self._workers = workers
        opened = open_data(splits.data)
        self._main_metric = opened.main_metric
        self.recorded: dict[str, Any] = {
            "objective": "compression",
            "constraints": dataclasses.asdict(constraints),
            "minutes": minutes,
            "trials": trials,
            "recipe": recipe,
            "seed": seed,
            "model_sha256": digest_directory(directory),
            "final_sha256": splits.final.dev.identity,
            **opened.recorded(),
        }

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes; returns the fields of `CompressResult` but for the paths."""
        begin_run(folder, self.recorded)
        self._clock = BudgetClock(folder / TIME_FILE)
        data = self._splits.data
        described = describe_directory(self._directory)
        length = self._constraints.length or usual_length(self._directory, data)
        # Before the teacher trains: limits that nothing can meet are refused at once.
        costs = self._costs(folder, described.config, head_of(described, data), length)
        candidates = self._candidates(folder, described.config, costs)
        teacher = trained_teacher(
            self._directory,
            data,
            folder,
            seed=self._seed,
            seconds=None if self._minutes is None else self._seconds_left(),
        )
        self._clock.save()
        began = time.monotonic()
        lengths = sorted({rounded_up(length / 2), length})
        teacher_bundle = self._export(teacher, folder / TEACHER_BUNDLE, lengths)
        ending = _ENDING * (time.monotonic() - began)
        self._clock.save()
        journal = TrialJournal(folder / JOURNAL_FILE)
        rungs = Rungs(
            folder,
            journal,
            TrialData(data=data, teacher=str(teacher.absolute()), max_length=length),
            teacher=described.config,
            workers=self._workers,
            seed=self._seed,
            start=lambda candidate: self._student(folder, teacher, candidate),
        )
        try:
            rungs.run(candidates, lambda: self._seconds_left() - ending, self._trials)
        except KeyboardInterrupt as interrupt:
            # Other signals and a second Ctrl-C end the run.
            if type(interrupt) is not KeyboardInterrupt or not journal.scored:
                raise
            log_info("interrupted: exporting the best candidate so far; interrupt again to end at once")
        ranked = rungs.ranked(candidates)
        winner, measured = self._first_within(folder, rungs, ranked, teacher_bundle, lengths, length)
        result = self._result(folder, rungs, ranked, winner, measured, teacher_bundle, length)
        write_json(folder / LEADERBOARD_FILE, result["leaderboard"])
        write_text(folder / REPORT_FILE, page(result, self._constraints, self._recipe))
        shutil.rmtree(folder / STUDENTS_FOLDER, ignore_errors=True)
        rungs.remove(ranked[:1])
        return result

    def _seconds_left(self) -> float:
        return math.inf if self._minutes is None else 60 * self._minutes - self._clock.seconds

    def _costs(self, folder: Path, teacher: EncoderConfig, task: TaskConfig, length: int) -> CostModel:
        setting = Setting(task=task, recipe=self._recipe, length=length)
        rank = _RANK if self._constraints.max_mb is not None and teacher.hidden_size > _RANK else None
        model = fit_or_read(teacher, setting, folder / COSTS_FILE, rank=rank, threads=self._constraints.threads)
        self._clock.save()
        return model

    def _candidates(self, folder: Path, teacher: EncoderConfig, costs: CostModel) -> list[StudentCandidate]:
        """Candidates within the limits, in the order of trials.

        Raises:
          UserError: none is within the limits; the message names the nearest.
        """
        everything = [
            StudentCandidate(
                kind=kind,
                structure=structure,
                method=method,
                all_heads=structure.heads == teacher.num_attention_heads,
                cost=costs.predict(structure.config(teacher)),
            )
            for kind, structure in structures(teacher, small_embedding=self._constraints.max_mb is not None)
            for method in methods_for(self._splits.data)
        ]
        limits = self._constraints
        within = [
            candidate
            for candidate in everything
            if limits.violation(candidate.cost.latency_ms, candidate.cost.size_mb) == 0
        ]
        if not within:
            nearest = min(everything, key=lambda each: limits.violation(each.cost.latency_ms, each.cost.size_mb))
            clear_run(folder, COMPRESSION_FILES)
            raise UserError(
                f"no network within the limits can be cut out of this teacher; the nearest, {nearest.structure.name}, "
                f"has about {nearest.cost.latency_ms:.2g} ms and {nearest.cost.size_mb:.3g} MB; raise the limit, or "
                "use a smaller encoder as the model"
            )
        log_info(f"{len(within)} of {len(everything)} candidates are within the limits by their predicted costs")
        return by_kind(within) if limits.stated else within

    def _student(self, folder: Path, teacher: Path, candidate: StudentCandidate) -> Path:
        """Writes the initial weights of a candidate, once."""
        path = folder / STUDENTS_FOLDER / candidate.structure.name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            write_student(read_directory(teacher), self._importance(folder, teacher), candidate.structure, path)
        return path.absolute()

    def _importance(self, folder: Path, teacher: Path) -> Importance | None:
        """Importance of the teacher's heads and neurons on some training examples."""
        path = folder / IMPORTANCE_FILE
        if path.exists():
            return read_importance(path)
        model, train = from_pretrained(teacher), self._splits.data.train
        chosen = train.select(range(min(len(train), _IMPORTANCE_EXAMPLES)))
        assert model.task is not None
        encoded = supervised_task(model.task).encode(chosen, model.tokenizer, 128)
        return measure_importance(model, encoded, path, batch_size=32, seed=self._seed)

    def _export(self, model: Path, output: Path, lengths: Sequence[int]) -> Bundle:
        if output.exists():
            return Bundle.open(output)
        return export(
            model,
            output,
            recipe=self._recipe,
            lengths=lengths,
            examples=self._splits.data,
            scored=self._splits.final.dev,
        )

    def _first_within(
        self,
        folder: Path,
        rungs: Rungs,
        ranked: Sequence[StudentCandidate],
        teacher: Bundle,
        lengths: Sequence[int],
        length: int,
    ) -> tuple[StudentCandidate, Measured]:
        """Exports and measures candidates, the best first, until one is within the limits.

        Raises:
          UserError: none of the first ones is.
        """
        misses = []
        for candidate in ranked[:_MOST_EXPORTS]:
            path = folder / BUNDLE_FOLDER
            bundle = self._export(rungs.model(candidate), path, lengths)
            measured = measure(bundle, teacher, length, self._constraints.threads)
            if self._constraints.violation(measured.latency_ms[2], measured.size_mb) == 0:
                shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
                shutil.copytree(rungs.model(candidate), folder / MODEL_FOLDER)
                return candidate, measured
            misses.append(f"{candidate.name} {measured.latency_ms[2]:.3g} ms, {measured.size_mb:.3g} MB")
            log_info(f"{misses[-1]}: beyond the limit by measurement")
            shutil.rmtree(path)
        raise UserError(f"no trained candidate met the limits by measurement: {'; '.join(misses)}; raise the limit")

    def _result(
        self,
        folder: Path,
        rungs: Rungs,
        ranked: Sequence[StudentCandidate],
        winner: StudentCandidate,
        measured: Measured,
        teacher: Bundle,
        length: int,
    ) -> dict[str, Any]:
        final = self._splits.final
        examples = ScoringData(
            data=final.dev, metrics=tuple(final.metrics) or None, main_metric=final.main_metric or None
        )
        bundle = Bundle.open(folder / BUNDLE_FOLDER)
        longest = {"max_length": max(bundle.lengths)}
        scores, _ = examples.score(bundle.predictor(**longest))
        of_teacher, _ = examples.score(teacher.predictor(**longest))
        loss = paired_loss(teacher, bundle, final)
        sentence = (
            f"{measured.latency_ms[0]:.2f} ms at {length} tokens, {measured.size_mb:.1f} MB, {scores.main_metric} "
            f"{100 * scores.score:.1f} on {scores.examples} examples that no choice has read, "
            f"{loss.points:.1f} points below your model, "
            f"{measured.teacher_ms / measured.latency_ms[0]:.1f} times faster"
        )
        leaderboard = []
        for candidate in ranked:
            trial = rungs.best_trial(candidate)
            assert trial is not None
            leaderboard.append(
                {
                    "structure": candidate.structure.name,
                    "kind": candidate.kind,
                    "method": candidate.method,
                    "recipe": self._recipe,
                    "latency_ms": candidate.cost.latency_ms,
                    "size_mb": candidate.cost.size_mb,
                    "score": trial.score,
                    "epochs": trial.epochs,
                    "seconds": trial.seconds,
                    "chosen": candidate is winner,
                }
            )
        self._clock.save()
        return {
            "main_metric": scores.main_metric,
            "metrics": dict(scores.metrics),
            "interval": list(scores.interval or (scores.score, scores.score)),
            "teacher_score": of_teacher.score,
            "points_lost": [loss.points, *loss.interval],
            "latency_ms": list(measured.latency_ms),
            "teacher_latency_ms": measured.teacher_ms,
            "size_mb": measured.size_mb,
            "length": length,
            "sentence": sentence,
            "leaderboard": leaderboard,
            "seconds": self._clock.seconds,
        }
