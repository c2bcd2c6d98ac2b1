"""Rungs: many candidates train for a short time, and the best ones train further (successive halving)."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.presets import encoder_flops
from pocketbert.trials.jobs import RESULT_FILE, Job, read_result
from pocketbert.trials.journal import Journal
from pocketbert.trials.missing import Trials
from pocketbert.trials.scores import best, scores
from pocketbert.trials.workers import Workers
from pocketbert_bench.compression.candidates import (
    StudentCandidate,
    TrialData,
    passes,
    train_trial,
    trained_model,
    trial_point,
)
from pocketbert_bench.compression.journal import Trial

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
        journal: Journal[Trial],
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

    @property
    def scored(self) -> bool:
        """Whether a candidate has a score."""
        return bool(scores(self._journal.records))

    def run(
        self,
        candidates: Sequence[StudentCandidate],
        seconds_left: Callable[[], float],
        total: float,
        most: int | None,
    ) -> None:
        """Trains first rungs while there is time, then promotes the best third.

        Args:
          candidates: candidates in order.
          seconds_left: time left for trials; it is asked again after each trial.
          total: time of all trials.
          most: number of first rungs instead of a time, or None.
        """
        self._seconds_left = seconds_left
        self._trials = Trials(
            self._workers,
            done=len(self._journal.records),
            best=max(scores(self._journal.records), default=-math.inf),
            seconds_left=seconds_left,
        )
        self._candidates = candidates
        self._work |= {candidate.name: self._work_of(candidate) for candidate in candidates}
        chosen = list(candidates if most is None else candidates[:most])
        first = [candidate for candidate in chosen if self._finished(candidate, 0)]
        waiting = [candidate for candidate in chosen if candidate not in first]
        while waiting and (not first or most is not None or self._fits(waiting[0], total)):
            batch = [waiting.pop(0) for _ in range(min(self._workers.parallel, len(waiting)))]
            self._train(batch, 0)
            first += batch
        ranked = self.ranked(first)
        promoted = ranked[: math.ceil(len(ranked) / _PROMOTED)]
        while promoted:
            batch = [promoted.pop(0) for _ in range(min(self._workers.parallel, len(promoted)))]
            self._train([one for one in batch if most is not None or self._seconds(one, 1) <= seconds_left()], 1)

    def leaderboard(self, winner: StudentCandidate) -> list[dict[str, Any]]:
        """A row for each candidate that was trained, the best first, and those that failed."""
        rows = [self._row(candidate, chosen=candidate is winner) for candidate in self.ranked(self._started)]
        failed = [candidate for candidate in self._started if self.best_trial(candidate) is None]
        return rows + [self._row(candidate, chosen=False) for candidate in failed]

    def ranked(self, candidates: Sequence[StudentCandidate]) -> list[StudentCandidate]:
        """Candidates with a score, the best first; equal scores go to the faster one."""
        # Raises TrainingFailed if no trial has a score.
        best(self._journal.records)
        scored = [candidate for candidate in candidates if self.best_trial(candidate) is not None]
        return sorted(scored, key=lambda candidate: (-self.score(candidate), candidate.cost.latency_ms))

    def score(self, candidate: StudentCandidate) -> float:
        """Best score of a candidate over its rungs."""
        trial = self.best_trial(candidate)
        assert trial is not None and trial.score is not None
        return trial.score

    def standard_error(self, candidate: StudentCandidate) -> float:
        """Standard error of the best trial's score on the dev split."""
        low, high = read_result(self.model(candidate).parent / RESULT_FILE)["outcome"]["interval"]
        return float(high - low) / (2 * statistics.NormalDist().inv_cdf(0.975))

    def best_trial(self, candidate: StudentCandidate) -> Trial | None:
        """The trial of a candidate with the best score; the earlier one if they are equal."""
        trials = [trial for trial in self._journal.records if trial.candidate == candidate.name]
        return best(trials) if scores(trials) else None

    def model(self, candidate: StudentCandidate) -> Path:
        """Model directory of the best trial."""
        trial = self.best_trial(candidate)
        assert trial is not None
        return trained_model(self._folder(candidate, trial.rung))

    def _train(self, candidates: Sequence[StudentCandidate], rung: int) -> None:
        epochs = self.epochs * (_FACTOR if rung else 1)
        jobs = {}
        for candidate in candidates:
            if self._finished(candidate, rung) is None:
                start = trained_model(self._folder(candidate, 0)) if rung else self._start(candidate)
                folder = self._folder(candidate, rung)
                folder.parent.mkdir(parents=True, exist_ok=True)
                jobs[folder] = candidate, Job(trial_point(candidate, start, epochs), self._seed, folder)
        left = self._seconds_left()
        deadline = None if left == math.inf else time.time() + left
        train = functools.partial(train_trial, dataclasses.replace(self._shared, deadline=deadline))
        for outcome in self._trials.outcomes(train, [job for _, job in jobs.values()]):
            candidate, _ = jobs[outcome.job.folder]
            trained = epochs
            if not outcome.failure:
                # The deadline may have ended it early.
                steps = math.ceil(len(self._shared.data.train) / _BATCH) * passes(candidate.method)
                trained = min(math.ceil(outcome.result["steps"] / steps), epochs)
            first = self._finished(candidate, 0)
            self._journal.add(
                Trial(
                    candidate=candidate.name,
                    rung=rung,
                    epochs=trained + (first.epochs if first else 0),
                    score=outcome.score,
                    metrics=outcome.result.get("metrics", {}),
                    # Of all attempts, if an earlier one finished it.
                    seconds=outcome.seconds or outcome.result.get("seconds", 0.0),
                    failure=outcome.failure,
                )
            )

    def _finished(self, candidate: StudentCandidate, rung: int) -> Trial | None:
        trials = [trial for trial in self._journal.records if (trial.candidate, trial.rung) == (candidate.name, rung)]
        return trials[0] if trials else None

    def _folder(self, candidate: StudentCandidate, rung: int) -> Path:
        return self._root / candidate.name / f"rung-{rung}"

    def _fits(self, candidate: StudentCandidate, total: float) -> bool:
        """Whether a first rung ends in the share of the time for first rungs."""
        return self._seconds(candidate, 0) <= self._seconds_left() - (1 - _FIRST_SHARE) * total

    @property
    def _started(self) -> list[StudentCandidate]:
        names = {trial.candidate for trial in self._journal.records}
        return [candidate for candidate in self._candidates if candidate.name in names]

    def _row(self, candidate: StudentCandidate, *, chosen: bool) -> dict[str, Any]:
        trials = [trial for trial in self._journal.records if trial.candidate == candidate.name]
        best = self.best_trial(candidate) or trials[0]
        return {
            "structure": candidate.structure.name,
            "kind": candidate.kind,
            "method": candidate.method,
            "recipe": candidate.recipe,
            "latency_ms": candidate.cost.latency_ms,
            "size_mb": candidate.cost.size_mb,
            "score": best.score,
            "epochs": best.epochs,
            "seconds": sum(trial.seconds for trial in trials),
            "failure": best.failure,
            "chosen": chosen,
        }

    def _seconds(self, candidate: StudentCandidate, rung: int) -> float:
        """Predicted duration of a trial: that of finished ones, in proportion to the operations of the networks."""
        rates = [
            trial.seconds / (trial.epochs * self._work[trial.candidate])
            for trial in self._journal.records
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
