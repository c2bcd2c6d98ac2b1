"""Result of a compression."""

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
    """Result of a finished compression.

    Attributes:
      bundle_directory: the verified bundle.
      model_directory: its float model.
      report: the page.
      main_metric: metric of the scores.
      metrics: metrics of the bundle on the final split.
      interval: 95 % interval of the main metric.
      teacher_score: main metric of the teacher's bundle on the final split.
      teacher_dev_score: the same on the dev split, to compare with the leaderboard.
      points_lost: points lost against the teacher's bundle on the final split, with the ends of the paired 95 %
        interval.
      parts: for each class with at least 30 final examples the fields of `pocketbert_bench.paired_scores.PartLoss`,
        the largest loss first; none with folds.
      latency_ms: measured median latency, with the ends of its 95 % interval.
      teacher_latency_ms: median latency of the teacher's bundle in the same run.
      size_mb: size of model.tflite, in MB of 10⁶ bytes.
      memory_mb: peak of resident memory, in MB of 10⁶ bytes; 0 if the device does not report it.
      lengths: tokens of the measured texts.
      shares: share of each length in the latency, which is a mean over the texts.
      sentence: the answer in one sentence.
      outcome: score on the final split with its interval, baselines and verdict, as
        `pocketbert.tasks.scores.Scores.outcome` gives it.
      notes: remarks on the choice, the measurement and the outcome.
      leaderboard: one row for each candidate that was trained, the best first.
      minutes: the budget, or None.
      trials: the budget, or None.
      seconds: duration of all attempts.
      training_seconds: seconds of it in steps and evaluations of teacher and candidates, without those of folds.
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
    # Absent in results of earlier commits.
    parts: Sequence[dict[str, Any]] = ()

    @property
    def bundle(self) -> Bundle:
        """The bundle, opened."""
        return Bundle.open(Path(self.bundle_directory))


def winner_of(like: str | os.PathLike[str]) -> tuple[str, str | None]:
    """Name and recipe of the winner of a finished run; or a name as it is, without a recipe.

    Raises:
      UserError: it is a folder without a finished run of `compress`.
    """
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
