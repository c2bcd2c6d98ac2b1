"""Rungs: many candidates train for a short time, and the best ones train further (successive halving)."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pocketbert.configs import EncoderConfig
from pocketbert.errors import TrainingFailed
from pocketbert.presets import encoder_flops
from pocketbert.progress import log_info
from pocketbert.training.grids.workers import Job, Workers
from pocketbert.training.run_folder import RESULT_FILE, read_result
from pocketbert_bench.compression.candidates import (
    StudentCandidate,
    TrialData,
    passes,
    train_trial,
    trained_model,
    trial_point,
)
from pocketbert_bench.compression.journal import Trial, TrialJournal

TRIALS_FOLDER = "trials"
# Steps of a first rung: fewer tell little about a candidate.
_STEPS, _MOST_EPOCHS, _BATCH = 120, 8, 32
# Share of the time for first rungs; the rest trains the best candidates further.
_FIRST_SHARE = 0.55
# The best third trains further, for twice the epochs.
_PROMOTED, _FACTOR = 3, 2


class Rungs:
    """Trials of candidates in rungs.

    Args:
      folder: folder of the run.
      journal: receives the trials.
      shared: what all trials share.
      teacher: architecture of the teacher.
      workers: where trials run.
      seed: random seed.
      start: writes the weights from which a candidate starts, and returns their model directory.
    """

    def __init__(
        self,
        folder: Path,
        journal: TrialJournal,
        shared: TrialData,
        *,
        teacher: EncoderConfig,
        workers: Workers,
        seed: int,
        start: Callable[[StudentCandidate], Path],
    ) -> None:
        self._root, self._journal, self._shared = folder.absolute() / TRIALS_FOLDER, journal, shared
        self._teacher, self._workers, self._seed, self._start = teacher, workers, seed, start
        steps = math.ceil(len(shared.data.train) / _BATCH)
        self.epochs = min(max(math.ceil(_STEPS / steps), 1), _MOST_EPOCHS)
        # Name of a candidate → its operations in one epoch.
        self._work: dict[str, float] = {}

    def run(self, candidates: Sequence[StudentCandidate], seconds_left: Callable[[], float], most: int | None) -> None:
        """Trains first rungs while there is time, then promotes.

        Args:
          candidates: candidates in order.
          seconds_left: time left for trials; it is asked again after each trial.
          most: number of first rungs instead of a time, or None.
        """
        total = seconds_left()
        self._seconds_left = seconds_left
        self._work |= {candidate.name: self._work_of(candidate) for candidate in candidates}
        waiting = list(candidates if most is None else candidates[:most])
        first: list[StudentCandidate] = []
        while waiting and (not first or most is not None or self._fits(waiting[0], 0, seconds_left(), total)):
            batch = [waiting.pop(0) for _ in range(min(self._workers.parallel, len(waiting)))]
            self._train(batch, 0)
            first += batch
        ranked = self.ranked(first)
        for candidate in ranked[: math.ceil(len(ranked) / _PROMOTED)]:
            if most is not None or self._seconds(candidate, 1) <= seconds_left():
                self._train([candidate], 1)

    def ranked(self, candidates: Sequence[StudentCandidate]) -> list[StudentCandidate]:
        """Candidates with a score, the best first; equal scores go to the faster one."""
        scored = [candidate for candidate in candidates if self.best_trial(candidate) is not None]
        if not scored:
            failures = [trial for trial in self._journal.trials if trial.failure]
            raise TrainingFailed(f"the training of every candidate failed; the first: {failures[0].failure}")
        return sorted(scored, key=lambda candidate: (-self.score(candidate), candidate.cost.latency_ms))

    def score(self, candidate: StudentCandidate) -> float:
        """Best score of a candidate over its rungs."""
        trial = self.best_trial(candidate)
        assert trial is not None and trial.score is not None
        return trial.score

    def best_trial(self, candidate: StudentCandidate) -> Trial | None:
        """The trial of a candidate with the best score; the earlier one if they are equal."""
        trials = [
            trial for trial in self._journal.trials if trial.candidate == candidate.name and trial.score is not None
        ]
        return max(trials, key=lambda trial: trial.score or 0.0, default=None)

    def model(self, candidate: StudentCandidate) -> Path:
        """Model directory of the best trial."""
        trial = self.best_trial(candidate)
        assert trial is not None
        return trained_model(self._folder(candidate, trial.rung))

    def _train(self, candidates: Sequence[StudentCandidate], rung: int) -> None:
        waiting = [candidate for candidate in candidates if self._journal.finished(candidate.name, rung) is None]
        epochs = self.epochs * (_FACTOR if rung else 1)
        jobs = {}
        for candidate in waiting:
            start = trained_model(self._folder(candidate, 0)) if rung else self._start(candidate)
            folder = self._folder(candidate, rung)
            folder.parent.mkdir(parents=True, exist_ok=True)
            jobs[folder] = candidate, Job(trial_point(candidate, start, epochs), self._seed, folder)
        left = self._seconds_left()
        deadline = None if left == math.inf else time.time() + left
        train = functools.partial(train_trial, dataclasses.replace(self._shared, deadline=deadline))
        for outcome in self._workers.outcomes(train, [job for _, job in jobs.values()]):
            candidate, job = jobs[outcome.job.folder]
            metrics: dict[str, float] = {}
            score = None
            if outcome.failure is None:
                result = read_result(job.folder / RESULT_FILE)
                metrics, score = result["metrics"], result["metrics"][result["main_metric"]]
            self._journal.add(
                Trial(
                    candidate=candidate.name,
                    rung=rung,
                    epochs=epochs + (self.epochs if rung else 0),
                    score=score,
                    metrics=metrics,
                    seconds=outcome.seconds,
                    failure=outcome.failure or "",
                )
            )
            shown = "failed" if score is None else f"{score:.4f}"
            log_info(f"{candidate.name}, {epochs} epochs: {shown} ({outcome.seconds:.0f} s)")

    def _folder(self, candidate: StudentCandidate, rung: int) -> Path:
        return self._root / candidate.name / f"rung-{rung}"

    def _fits(self, candidate: StudentCandidate, rung: int, left: float, total: float) -> bool:
        """Whether a first rung ends in its share of the time."""
        return self._seconds(candidate, rung) <= left - (1 - _FIRST_SHARE) * total

    def _seconds(self, candidate: StudentCandidate, rung: int) -> float:
        """Predicted duration of a trial: that of finished ones, in proportion to the operations of the networks."""
        rates = [
            trial.seconds / (trial.epochs * self._work[trial.candidate])
            for trial in self._journal.trials
            if trial.rung == 0 and trial.candidate in self._work
        ]
        epochs = self.epochs * (_FACTOR if rung else 1)
        return epochs * self._work_of(candidate) * statistics.median(rates) if rates else 0.0

    def _work_of(self, candidate: StudentCandidate) -> float:
        """Operations of one epoch, in those of a forward pass of the student per text; a training step takes three."""
        length = self._shared.max_length
        student = encoder_flops(candidate.structure.config(self._teacher), length)
        teacher = 0.0 if candidate.method == "finetune" else encoder_flops(self._teacher, length)
        return passes(candidate.method) * (3 * student + teacher)

    def remove(self, kept: Sequence[StudentCandidate]) -> None:
        """Removes the weights of all candidates but some."""
        names = {candidate.name for candidate in kept}
        for path in self._root.glob("*"):
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)
