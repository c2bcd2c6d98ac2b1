"""The search for the fastest network within `--max-points-lost`, guided by losses without training."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pocketbert.data.examples import evenly_of_classes
from pocketbert.model import from_pretrained
from pocketbert.progress import log_info
from pocketbert.tasks.predictor import model_predictor
from pocketbert.trials.clock import Record
from pocketbert.trials.scores import front
from pocketbert_bench.compression.candidates import StudentCandidate
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.journal import Trial
from pocketbert_bench.compression.structures import Structure
from pocketbert_export.verification.outcomes import ScoringData

# Scores without training take this part of the time for trials, and read so many dev examples.
_SHARE, _EXAMPLES = 0.15, 500
# The search begins where training must win back half of the loss, and networks up to two thirds learn predictions.
_FIRST_LOSS, _NEAR_LOSS = 2.0, 3.0
_PREDICTIONS = "predictions"
# Stands for a loss if the time for it is over.
_UNKNOWN = 1e9


class PointsLimit:
    """Chooses candidates on the way to the fastest one with the necessary score.

    Args:
      least: the necessary dev score.
      untrained: structure's name → dev score that it loses without training. The usual order stays if it is empty.
      most: the most that a candidate may lose.
    """

    def __init__(self, least: float, untrained: Mapping[str, float], most: float) -> None:
        self.least, self._untrained, self._most = least, untrained, most

    def next(
        self, waiting: Sequence[StudentCandidate], trials: Mapping[StudentCandidate, Trial]
    ) -> StudentCandidate | None:
        """Returns the candidate to train next; None if the losses without training do not tell.

        Until a candidate has the necessary score, slower ones follow, then faster ones. Each is in the middle of those
        that no other network beats in both latency and loss without training. Those that lose little learn the
        teacher's predictions: near the teacher, this loss is near its minimum, and changes little.

        Args:
          waiting: candidates that have not trained, in order.
          trials: candidate → trial of those that have.
        """

        def learns_predictions(candidate: StudentCandidate) -> bool:
            near = self._untrained.get(candidate.structure.name, math.inf) <= _NEAR_LOSS * self._most
            return near and candidate.training.method == _PREDICTIONS

        first_of = dict[str, StudentCandidate]()
        for candidate in sorted(waiting, key=learns_predictions, reverse=True):
            if candidate.structure.name in self._untrained:
                first_of.setdefault(candidate.structure.name, candidate)
        known = [
            *(candidate for candidate in trials if candidate.structure.name in self._untrained),
            *first_of.values(),
        ]
        best = front(known, _latency, lambda candidate: -self._untrained[candidate.structure.name])
        path = [candidate for candidate in best if candidate not in trials]
        if not path:
            return None
        if not trials:
            near = (one for one in path if self._untrained[one.structure.name] <= _FIRST_LOSS * self._most)
            return next(near, path[-1])
        fastest = self._fastest_within(trials)
        if fastest is None:
            slowest = max(map(_latency, trials))
            between = [candidate for candidate in path if _latency(candidate) > slowest]
        else:
            too_fast = max((one for one in map(_latency, trials) if one < fastest), default=0.0)
            between = [candidate for candidate in path if too_fast < _latency(candidate) < fastest]
        return between[len(between) // 2] if between else None

    def within_reach(
        self, waiting: Sequence[StudentCandidate], trials: Mapping[StudentCandidate, Trial]
    ) -> list[StudentCandidate]:
        """Leaves out candidates that are too weak or too slow.

        The former are parts of networks that are below the necessary score by more than a standard error; the latter
        are slower than a candidate with the necessary score.
        """
        fastest = self._fastest_within(trials)
        left = [candidate for candidate in waiting if fastest is None or _latency(candidate) <= fastest]
        if len(left) < len(waiting):
            log_info(f"{len(waiting) - len(left)} slower candidates are left out: a faster one has the necessary score")
        for larger, trial in trials.items():
            others = [one for one in left if not one.is_part_of(larger)] if trial.is_below(self.least) else left
            if parts := len(left) - len(others):
                log_info(f"{parts} smaller candidates are left out: the score of {larger.name} is too low")
            left = others
        return left

    def by_claim(self, trials: Mapping[StudentCandidate, Trial]) -> list[StudentCandidate]:
        """Sorts candidates by their claim to more training.

        Once one has the necessary score, faster ones lead that more training may lift to it, then itself; otherwise,
        those nearest to the score.
        """
        fastest = self._fastest_within(trials) or 0.0

        def claim(candidate: StudentCandidate) -> tuple[bool, float]:
            trial = trials[candidate]
            assert trial.score is not None
            near = 0 < trial.standard_error and not trial.is_below(self.least) and _latency(candidate) <= fastest
            return not near, _latency(candidate) if near else abs(trial.score - self.least)

        return sorted(trials, key=claim)

    def _fastest_within(self, trials: Mapping[StudentCandidate, Trial]) -> float | None:
        """Least latency with the necessary score; None if no candidate has it."""
        scores = {candidate: trial.score for candidate, trial in trials.items() if trial.score is not None}
        return min((_latency(candidate) for candidate, score in scores.items() if score >= self.least), default=None)


def untrained_losses(
    inputs: Inputs,
    teacher: Path,
    candidates: Sequence[StudentCandidate],
    write: Callable[[StudentCandidate, Path], Path],
    folder: Path,
    seconds: float,
    record: Record,
) -> dict[str, float]:
    """Finds for each width how many of the teacher's first layers must stay if a network is not to lose much.

    Args:
      inputs: the compression's input.
      teacher: the teacher's model directory.
      candidates: the candidates.
      write: writes a candidate's initial weights to a folder.
      folder: folder for one network at a time; it is removed.
      seconds: time for all trials; a part of it is for this.
      record: returns a named number from an earlier attempt, or records a new one.
    Returns:
      Structure's name → dev score that it loses against the teacher without training.
    """
    dev, most = inputs.splits.data.dev, (inputs.constraints.max_points_lost or 0) / 100
    if len(dev) > _EXAMPLES:
        dev = dev.select(evenly_of_classes(dev, _EXAMPLES))
    examples = ScoringData.of_dev(dataclasses.replace(inputs.splits.data, dev=dev))

    def score(model: Path) -> float:
        return examples.score(model_predictor(from_pretrained(model), max_length=inputs.length))[0].score

    best = record("score of the float teacher on some dev examples", lambda: score(teacher))
    end, durations, losses = time.monotonic() + _SHARE * seconds, [0.0], dict[str, float]()

    def measured(candidate: StudentCandidate) -> float:
        began = time.monotonic()
        # Batches take less time than single texts.
        if began + max(*durations, candidate.cost.latency_ms / 1000 * len(dev)) > end:
            return _UNKNOWN
        # A killed attempt may have left another network there.
        shutil.rmtree(folder, ignore_errors=True)
        loss = best - score(write(candidate, folder))
        shutil.rmtree(folder)
        durations.append(time.monotonic() - began)
        return loss

    def is_near(candidate: StudentCandidate) -> bool:
        name = candidate.structure.name
        # With a larger budget later, there is time for those that are unknown now.
        label = f"score that {name} loses without training, in {inputs.budget}"
        loss = record(label, lambda: measured(candidate))
        if loss < _UNKNOWN:
            losses[name] = loss
        return loss <= _FIRST_LOSS * most

    for networks in _widths(candidates):
        near, far = 0, len(networks)
        while is_near(networks[near]) and far - near > 1:
            middle = (near + far) // 2
            near, far = (middle, far) if is_near(networks[middle]) else (near, middle)
    if losses:
        log_info(f"the search begins near the limit, by the losses of {len(losses)} networks without training")
    return losses


def _widths(candidates: Sequence[StudentCandidate]) -> list[list[StudentCandidate]]:
    """Networks with the teacher's first layers, for each width; the slowest is first."""
    widths = dict[tuple[int, int], dict[str, StudentCandidate]]()
    for candidate in sorted(candidates, key=_latency, reverse=True):
        structure = candidate.structure
        # A new head or a factored embedding must train first.
        if not isinstance(structure, Structure) or structure.first_token or structure.embedding_rank is not None:
            continue
        if structure.layers == tuple(range(1, structure.depth + 1)):
            networks = widths.setdefault((structure.heads, structure.intermediate_size), {})
            networks.setdefault(structure.name, candidate)
    return [list(networks.values()) for networks in widths.values()]


def _latency(candidate: StudentCandidate) -> float:
    return candidate.cost.latency_ms
