"""Rungs: many candidates train for a short time, and the promising ones train further (successive halving)."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.progress import log_info
from pocketbert.training.run_folder import MODEL_FOLDER
from pocketbert.trials.clock import Record
from pocketbert.trials.jobs import Job
from pocketbert.trials.journal import Journal
from pocketbert.trials.missing import Trials
from pocketbert.trials.scores import best, front, scores
from pocketbert.trials.workers import Workers
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.constraints import Constraints
from pocketbert_bench.compression.durations import Durations
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.methods import TrialData, passes, train_trial, trial_point
from pocketbert_bench.compression.points_limit import PointsLimit
from pocketbert_bench.compression.sources import has_soft_labels
from pocketbert_bench.compression.trial_examples import BATCH, planned_epochs, trial_steps

TRIALS_FOLDER = "trials"
# A first rung's steps: fewer tell little about a candidate.
_STEPS, _MOST_EPOCHS, _UNLIMITED = 120, 8, 10**6
# If the time is for fewer steps of the first candidate, it trains alone: such rungs cannot compare candidates.
_FEWEST_STEPS = 15
# Each rung trains so many times the first one's epochs, from the weights of the rung before.
_FACTORS = (1, 2, 4)
# First and second rungs end after these parts of the time.
_FIRST_SHARE, _SECOND_SHARE = 0.5, 0.75
# So many first candidates share the first rungs' time equally if they would take longer.
_KINDS = 3
# The best third trains further.
PROMOTED = 3
# So many candidates keep their weights.
KEPT = 24


class Rungs:
    """Trains candidates in rungs.

    Args:
      folder: the run's folder.
      journal: receives the trials.
      shared: data and options for all trials.
      teacher: the teacher's architecture.
      workers: run the trials.
      seed: random seed.
      start: writes a candidate's initial weights to a folder, unless another folder has them; returns the folder.
      record: returns a named number from an earlier attempt, or records a new one.
      budget: the run's budget, as it appears in names of recorded numbers.
      kept: candidate → model directory, from a finished run with a smaller budget and the same journal; the other
        candidates' weights are gone.
      limits: the limits.
      points: the limit on the points lost, or None.
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
        start: Callable[[StudentCandidate, Path], Path],
        record: Record,
        budget: str,
        kept: Mapping[str, Path],
        limits: Constraints,
        points: PointsLimit | None,
    ) -> None:
        self._root, self._journal, self._shared, self._kept = folder.absolute() / TRIALS_FOLDER, journal, shared, kept
        self._teacher, self._workers, self._seed, self._start = teacher, workers, seed, start
        self._record, self._limits, self._points, self._budget = record, limits, points, budget
        self._steps = math.ceil(len(shared.data.train) / BATCH)
        self._refused: set[tuple[str, int]] = set()

    def refuse(self, candidate: StudentCandidate) -> float:
        """Leaves out a candidate's best trial, and returns its score; an earlier one may be the best then."""
        score = self.score(candidate)
        self._refused.add((candidate.name, self.best_rung(candidate)))
        return score

    @property
    def scored(self) -> bool:
        """Whether a candidate has a score."""
        return bool(scores(self._journal.records))

    @property
    def seconds(self) -> float:
        """Seconds of all trials."""
        return sum(trial.seconds for trial in self._journal.records)

    def run(
        self,
        candidates: Sequence[StudentCandidate],
        seconds_left: Callable[[], float],
        total: float,
        most: int | None,
    ) -> None:
        """Trains first rungs, then the best third for longer, and the best one for the rest of the time.

        Args:
          candidates: candidates in order.
          seconds_left: returns the time left for trials; called again after each trial.
          total: seconds for all trials.
          most: number of first rungs instead of a time, or None.
        """
        self._candidates, self._seconds_left, self._most = candidates, seconds_left, most
        self._trials = Trials(
            self._workers,
            done=len(self._journal.records),
            best=max(scores(self._journal.records), default=-math.inf),
            seconds_left=seconds_left,
        )
        self._durations = Durations(
            candidates,
            self._journal,
            teacher=self._teacher,
            max_length=self._shared.max_length,
            soft_labels=has_soft_labels(self._shared.data),
        )
        usual = min(max(math.ceil(_STEPS / self._steps), 1), _MOST_EPOCHS)
        alone, share = len(candidates) == 1, _FIRST_SHARE / _KINDS
        if alone:  # It trains at once, with one schedule of the learning rate.
            usual, share = usual * _FACTORS[-1] if most else _UNLIMITED, 1.0
        self._epochs = self._record("epochs", lambda: self._planned_epochs(usual, share * total))
        if self._epochs < 1:
            log_info(f"the time is short: candidates first train on {100 * self._epochs:.2g} % of the examples")
        first = self._first_rungs(candidates, total)
        self._drop_weights(first)
        promoted = self._promising(first, 1)[: math.ceil(len(first) / PROMOTED)]
        # A single one continues in the last rung.
        end = (1 - _SECOND_SHARE) * total
        for batch in self._batches(promoted if len(promoted) > 1 else []):
            doubled = self._epochs * _FACTORS[1]
            planned = doubled if doubled < 1 else math.floor(doubled)
            fits = [one for one in batch if most or self._durations.seconds(one, planned) <= seconds_left() - end]
            self._train({candidate: (1, planned) for candidate in fits}, end)
        for batch in self._batches(self._promising(first, 2)[: int(not alone) if most else None]):
            last = {candidate: (self._last_rung(candidate), self._last_epochs(candidate)) for candidate in batch}
            self._train({candidate: (rung, epochs) for candidate, (rung, epochs) in last.items() if epochs}, 0.0)

    def _first_rungs(self, candidates: Sequence[StudentCandidate], total: float) -> list[StudentCandidate]:
        """Trains first rungs; returns all candidates with one."""
        named = {candidate.name: candidate for candidate in candidates}
        tried = [named[one.candidate] for one in self._journal.records if not one.rung and one.candidate in named]
        waiting = [candidate for candidate in candidates if candidate not in tried]
        kinds, most = min(_KINDS, len(candidates)), self._most or len(candidates)
        end = 0.0 if kinds == 1 else (1 - _FIRST_SHARE) * total
        while len(tried) < most and (waiting := self._within_reach(waiting, tried)):
            left = self._seconds_left() - end
            self._drop_weights(tried)
            batch: list[StudentCandidate] = []
            while waiting and len(batch) < min(self._workers.parallel, most - len(tried)):
                batch.append(self._next(waiting, [*tried, *batch]))
                waiting.remove(batch[-1])
            few = self.scored and self._of(tried[0])[0].epochs * self._steps < min(_FEWEST_STEPS, self._steps)
            late = left <= 0 or few or (len(tried) >= kinds and self._durations.seconds(batch[0], self._epochs) > left)
            if tried and late and not self._most:
                if len(tried) == 1:
                    log_info(f"the time is too short to compare candidates: only {tried[0].name} trains")
                break
            # Equal parts for the candidates that must be tried.
            parts = max(math.ceil((kinds - len(tried)) / self._workers.parallel), 1)
            end_of_batch = self._seconds_left() - max(left, 0) / parts
            self._train(dict.fromkeys(batch, (0, self._epochs)), end_of_batch)
            tried += batch
        return tried

    def _within_reach(self, waiting: list[StudentCandidate], tried: list[StudentCandidate]) -> list[StudentCandidate]:
        return self._points.within_reach(waiting, self._best_trials(tried, 1)) if self._points else waiting

    def _drop_weights(self, tried: Sequence[StudentCandidate]) -> None:
        """Deletes initial weights, and those of candidates neither on the front nor due for further training."""
        for candidate in tried:
            shutil.rmtree(self._initial(candidate), ignore_errors=True)
        ordered = self._promising(tried, 1) if self.scored else []
        best = front(ordered, lambda candidate: candidate.cost.latency_ms, lambda one: self.score(one, 1))
        for candidate in [*best, *(one for one in ordered if one not in best)][KEPT:]:
            shutil.rmtree(self._folder(candidate, 0) / MODEL_FOLDER, ignore_errors=True)

    def _next(self, waiting: Sequence[StudentCandidate], tried: Sequence[StudentCandidate]) -> StudentCandidate:
        """The next candidate: after a few, the best structure with another method alternates with a new structure."""
        if self._points:
            old = {candidate.structure for candidate in tried}
            new = [candidate for candidate in waiting if candidate.structure not in old]
            if on_path := self._points.next(new, self._best_trials(tried, 1)):
                return on_path
        structures = [candidate.structure for candidate in self.ranked(tried, 1)] if self.scored else []
        others = [candidate for candidate in waiting if candidate.structure in structures]
        if len(tried) < _KINDS or (len(tried) - _KINDS) % 2 or not others:
            return waiting[0]
        return min(others, key=lambda candidate: structures.index(candidate.structure))

    def _batches(self, candidates: Sequence[StudentCandidate]) -> Iterator[Sequence[StudentCandidate]]:
        size = self._workers.parallel
        return (candidates[start : start + size] for start in range(0, len(candidates), size))

    def _promising(self, candidates: Sequence[StudentCandidate], rungs: int) -> list[StudentCandidate]:
        """Sorts candidates with a score by their claim to more training, judged by their first rungs.

        Without any limit, those on the front lead.
        """
        ranked = [candidate for candidate in self.ranked(candidates, rungs) if self.has_weights(candidate)]
        if self._points:
            return self._points.by_claim(self._best_trials(ranked, rungs))
        if not self._limits.limits_costs:
            best = front(ranked, lambda candidate: candidate.cost.latency_ms, lambda one: self.score(one, rungs))
            return [*reversed(best), *(candidate for candidate in ranked if candidate not in best)]
        return ranked

    def preferred(self, candidates: Sequence[StudentCandidate]) -> list[StudentCandidate]:
        """Returns candidates within the limits by their dev scores, the preferred ones first.

        The best ones; with a limit on the points lost, the fastest within it; without any limit, the fastest within one
        standard error of the best.
        """
        ranked = [candidate for candidate in self.ranked(candidates) if self.has_weights(candidate)]
        if self._points:
            least = self._points.least
        elif self._limits.limits_costs or not ranked:
            return ranked
        else:
            first = self._best_trials(ranked[:1], math.inf)[ranked[0]]
            least = self.score(ranked[0]) - first.standard_error
        near = (candidate for candidate in ranked if self.score(candidate) >= least)
        return sorted(near, key=lambda candidate: candidate.cost.latency_ms)

    def leaderboard(self, winner: StudentCandidate) -> list[tuple[StudentCandidate, dict[str, Any]]]:
        """Returns each trained candidate and its row, the best first, and those that failed."""
        failed = [candidate for candidate in self._started if self.best_trial(candidate) is None]
        return [
            (candidate, self._row(candidate, chosen=candidate is winner))
            for candidate in [*self.ranked(self._started), *failed]
        ]

    def training(self, candidate: StudentCandidate) -> list[tuple[Trial, float]]:
        """Returns the trials behind the best weights, one after another, and each trial's epochs."""
        trials, last = self._of(candidate), self.best_trial(candidate)
        chain: list[tuple[Trial, float]] = []
        while last is not None:
            earlier = trials[: trials.index(last)]
            before = max((trial.epochs for trial in earlier), default=0)
            # Differences between parts are rounded: whole epochs stay whole.
            chain.insert(0, (last, round(last.epochs - before, 6)))
            last = best(earlier) if scores(earlier) else None
        return chain

    def ranked(self, candidates: Sequence[StudentCandidate], rungs: float = math.inf) -> list[StudentCandidate]:
        """Sorts candidates with a score, the best first; equal scores go to the lower loss, then to the faster one.

        Args:
          candidates: the candidates.
          rungs: number of first rungs to count.
        """
        # Raises TrainingFailed if no trial has a score.
        best(self._journal.records)
        ranks = {candidate: trial.rank for candidate, trial in self._best_trials(candidates, rungs).items()}
        return sorted(ranks, key=lambda candidate: (ranks[candidate], candidate.cost.latency_ms))

    def score(self, candidate: StudentCandidate, rungs: float = math.inf) -> float:
        """Returns a candidate's best score over its first rungs."""
        trial = self.best_trial(candidate, rungs)
        assert trial is not None and trial.score is not None
        return trial.score

    def best_trial(self, candidate: StudentCandidate, rungs: float = math.inf) -> Trial | None:
        """Returns a candidate's trial with the best rank in its first rungs; the earlier one if they are equal."""
        trials = [trial for trial in self._of(candidate) if trial.rung < rungs]
        trials = [trial for trial in trials if (trial.candidate, trial.rung) not in self._refused]
        return best(trials) if scores(trials) else None

    def _best_trials(self, candidates: Sequence[StudentCandidate], rungs: float) -> dict[StudentCandidate, Trial]:
        """Best trials in the first rungs, of candidates with a score."""
        trials = {candidate: self.best_trial(candidate, rungs) for candidate in candidates}
        return {candidate: trial for candidate, trial in trials.items() if trial is not None}

    def best_rung(self, candidate: StudentCandidate) -> int:
        """Returns the best trial's rung."""
        return self._best_trials([candidate], math.inf)[candidate].rung

    def model(self, candidate: StudentCandidate) -> Path:
        """Returns the best trial's model directory."""
        model = self._folder(candidate, self.best_rung(candidate)) / MODEL_FOLDER
        return model if model.exists() else self._kept.get(candidate.name, model)

    def has_weights(self, candidate: StudentCandidate) -> bool:
        """Whether the best trial still has its weights."""
        return self.best_trial(candidate) is not None and self.model(candidate).exists()

    def _train(self, planned: Mapping[StudentCandidate, tuple[int, float]], end: float) -> None:
        """Trains candidates, each for its rung and epochs unless finished, until `end` seconds are left."""
        jobs = {}
        for candidate, (rung, count) in planned.items():
            if self._finished(candidate, rung) is None:
                start = self.model(candidate) if rung else self._start(candidate, self._initial(candidate))
                folder = self._folder(candidate, rung)
                folder.parent.mkdir(parents=True, exist_ok=True)
                # Later rungs continue the head of the first one.
                first_token = candidate.structure.first_token and not rung
                point = trial_point(candidate.training, start, count, first_token=first_token)
                jobs[folder] = candidate, Job(point, self._seed, folder)
        left = self._seconds_left() - end
        deadline = None if self._most else time.time() + left
        train = functools.partial(train_trial, dataclasses.replace(self._shared, deadline=deadline))
        for outcome in self._trials.outcomes(train, [job for _, job in jobs.values()]):
            candidate, _ = jobs[outcome.job.folder]
            rung, epochs = planned[candidate]
            before = max((trial.epochs for trial in self._of(candidate)), default=0)
            steps = self._steps_of(candidate, epochs)
            trial = Trial.of(outcome, candidate=candidate.name, rung=rung, epochs=epochs, steps=steps, before=before)
            self._journal.add(trial)

    def _steps_of(self, candidate: StudentCandidate, epochs: float) -> float:
        """Steps in some epochs, or in a part of one."""
        training = candidate.training
        return passes(training.method) * trial_steps(self._shared.data, epochs, unlabelled=training.unlabelled)

    def _of(self, candidate: StudentCandidate) -> list[Trial]:
        return [trial for trial in self._journal.records if trial.candidate == candidate.name]

    def _finished(self, candidate: StudentCandidate, rung: int) -> Trial | None:
        return next((trial for trial in self._of(candidate) if trial.rung == rung), None)

    def _initial(self, candidate: StudentCandidate) -> Path:
        """Model directory with a candidate's weights before the first rung."""
        return self._root / candidate.name / "start"

    def _folder(self, candidate: StudentCandidate, rung: int) -> Path:
        return self._root / candidate.name / f"rung-{rung}"

    @property
    def _started(self) -> list[StudentCandidate]:
        return [candidate for candidate in self._candidates if self._of(candidate)]

    def _row(self, candidate: StudentCandidate, *, chosen: bool) -> dict[str, Any]:
        trials = self._of(candidate)
        best, last, rungs = self.best_trial(candidate) or trials[0], trials[-1], max(trial.rung for trial in trials) + 1
        stopped = "others were more promising" if rungs < len(_FACTORS) else "it had all of its time"
        if (candidate.name, last.rung) in self._refused:
            stopped = "its file differs from the model"
        elif not last.complete:
            stopped = "its time was over"
        return {
            "name": candidate.name,
            "structure": candidate.structure.name,
            "kind": candidate.kind,
            "method": candidate.training.description,
            "learning_rate_factor": candidate.training.rate,
            "recipe": candidate.recipe,
            "trimmed_vocabulary": candidate.trimmed,
            "lengths": list(candidate.lengths),
            "latency_ms": candidate.cost.latency_ms,
            "size_mb": candidate.cost.size_mb,
            "score": best.score,
            "dev_loss": best.loss,
            "rungs": rungs,
            "epochs": last.epochs,
            "seconds": sum(trial.seconds for trial in trials),
            "training_seconds": sum(trial.training_seconds for trial in trials),
            "failure": best.failure,
            "stopped": last.failure or stopped,
            "chosen": chosen,
        }

    def _planned_epochs(self, usual: int, seconds: float) -> float:
        """A trial's epochs in some time; without a limit, the usual ones."""
        return usual if self._most else planned_epochs(usual, len(self._shared.data.train), seconds)

    def _last_epochs(self, candidate: StudentCandidate) -> float:
        """The last rung's epochs; 0 if there is less time than for the first one."""
        usual = _UNLIMITED if len(self._candidates) == 1 else math.ceil(self._epochs) * _FACTORS[2]
        least = self._durations.seconds(candidate, self._of(candidate)[0].epochs)

        def planned() -> float:
            left = self._seconds_left()
            return self._planned_epochs(usual, left) if self._most or least <= left else 0

        return self._record(f"epochs of {candidate.name} in {self._budget}", planned)

    def _last_rung(self, candidate: StudentCandidate) -> int:
        """Number of the last rung; in a larger time, a candidate continues after its latest one."""
        last = len(_FACTORS) - 1
        if self._most:
            return last
        following = 1 + max(trial.rung for trial in self._of(candidate))
        return round(self._record(f"rung of {candidate.name} in {self._budget}", lambda: max(last, following)))
