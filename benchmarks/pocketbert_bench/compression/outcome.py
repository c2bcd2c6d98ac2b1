"""The result of a compression."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_runtime.json_reading import read_json

LEADERBOARD_FILE = "leaderboard.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressResult:
    """A finished compression's result.

    Attributes:
      bundle_directory: the verified bundle.
      model_directory: its float model.
      report: the page.
      main_metric: the scores' metric.
      metrics: the bundle's metrics on the final split.
      interval: the main metric's 95 % interval.
      teacher_score: main metric on the final split for the teacher's bundle.
      teacher_dev_score: the same on the dev split, to compare with the leaderboard.
      points_lost: points lost against the teacher's bundle on the final split, and both ends of the paired 95 %
        interval.
      parts: `pocketbert_bench.paired_scores.PartLoss` fields for each class with at least 30 final examples, the
        largest loss first; none with folds.
      latency_ms: measured median latency, and both ends of its 95 % interval.
      teacher_latency_ms: median latency of the teacher's bundle in the same run.
      size_mb: size of model.tflite, in MB of 10⁶ bytes.
      memory_mb: peak resident memory, in MB of 10⁶ bytes; 0 if the device does not report it.
      lengths: tokens in the measured texts.
      shares: each length's share in the latency, a mean over the texts.
      sentence: the answer in one sentence.
      outcome: score on the final split with its interval, baselines and verdict, as in
        `pocketbert.tasks.scores.Scores.outcome`.
      notes: remarks on the choice, the measurement and the outcome.
      leaderboard: one row for each trained candidate, the best first.
      minutes: the budget, or None.
      trials: the budget, or None.
      seconds: duration of all attempts.
      training_seconds: seconds in steps and evaluations for teacher and candidates, without folds.
    """

    bundle_directory: str
    model_directory: str
    report: str
    main_metric: str
    metrics: dict[str, float]
    interval: Sequence[float]
    teacher_score: float
    teacher_dev_score: float
    points_lost: Sequence[float]
    latency_ms: Sequence[float]
    teacher_latency_ms: float
    size_mb: float
    memory_mb: float
    lengths: Sequence[int]
    shares: Sequence[float]
    sentence: str
    outcome: dict[str, Any]
    notes: Sequence[str]
    leaderboard: list[dict[str, Any]]
    minutes: float | None
    trials: int | None
    seconds: float
    training_seconds: float
    # Absent in results from earlier commits.
    parts: Sequence[dict[str, Any]] = ()

    @property
    def bundle(self) -> Bundle:
        """The bundle, opened."""
        return Bundle.open(Path(self.bundle_directory))


def winner_of(like: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Returns a finished run's winner and its recipe, or a name as it is and None; a `UserError` for other folders."""
    run = Path(like)
    if "," in str(like) and not run.exists():
        return str(like), None
    path = run / LEADERBOARD_FILE
    rows = read_json(path) if path.is_file() else []
    winners = [(row["name"], row["recipe"]) for row in rows if isinstance(row, dict) and row.get("chosen")]
    if len(winners) != 1:
        raise UserError(
            f"{argument('like', str(run))} must be a finished run of pocketbert compress; it has no {LEADERBOARD_FILE} "
            "with a winner"
        )
    return winners[0]
