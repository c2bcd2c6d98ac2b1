"""Predict trials' durations from those that have ended."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pocketbert.configs import EncoderConfig
from pocketbert.flops import encoder_flops
from pocketbert.trials.journal import Journal
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import passes, reads_teacher

# Seconds to set up a trial, until one has been timed.
_SETUP = 5.0


class Durations:
    """Predicts durations. A step's time is proportional to the networks' operations.

    Args:
      candidates: the trials' candidates.
      journal: the trials that have ended.
      teacher: the teacher's architecture.
      max_length: maximum sequence length in trials.
      soft_labels: whether soft labels replace the teacher's predictions.
    """

    def __init__(
        self,
        candidates: Sequence[StudentCandidate],
        journal: Journal[Trial],
        *,
        teacher: EncoderConfig,
        max_length: int,
        soft_labels: bool = False,
    ) -> None:
        self._journal, self._max_length, self._teacher = journal, max_length, teacher
        self._soft_labels = soft_labels
        self._work = {candidate.name: self._work_of(candidate) for candidate in candidates}

    def seconds(self, candidate: StudentCandidate, epochs: float) -> float:
        """Predicts a trial's seconds for some epochs."""
        return self._setup + epochs * self._epoch(candidate)

    @property
    def _first(self) -> list[Trial]:
        return [
            trial
            for trial in self._journal.records
            if trial.rung == 0 and trial.score is not None and trial.candidate in self._work
        ]

    @property
    def _setup(self) -> float:
        return statistics.median([trial.seconds - trial.training_seconds for trial in self._first] or [_SETUP])

    def _epoch(self, candidate: StudentCandidate) -> float:
        """Seconds for the steps in an epoch."""
        paces = [trial.training_seconds / (trial.epochs * self._work[trial.candidate]) for trial in self._first]
        return self._work[candidate.name] * statistics.median(paces) if paces else 0.0

    def _work_of(self, candidate: StudentCandidate) -> float:
        """One epoch's operations, in units of the student's forward pass per text; a training step takes three."""
        student = encoder_flops(candidate.structure.config(self._teacher), self._max_length)
        method = candidate.training.method
        runs = reads_teacher(method, soft_labels=self._soft_labels)
        teacher = encoder_flops(self._teacher, self._max_length) if runs else 0.0
        return passes(method) * (3 * student + teacher)
