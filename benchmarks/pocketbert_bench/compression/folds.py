"""Final scores from few examples: means over folds, each with its own trained teacher and candidates."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path

from pocketbert.files import write_json
from pocketbert.model import from_pretrained
from pocketbert.tasks.predictor import model_predictor
from pocketbert.tasks.scores import Baseline, Scores
from pocketbert.training.outcome_notes import simple_methods
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_export.verification.outcomes import ScoringData
from pocketbert_runtime.json_reading import from_json, read_json

FOLD_FILE = "scores.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldScores:
    """One fold's scores on its final split.

    Attributes:
      metric: the metric's name.
      examples: number of examples.
      student: the best candidate's score.
      teacher: the teacher's score.
      methods: simple methods, the constant answer among them, and their scores.
    """

    metric: str
    examples: int
    student: float
    teacher: float
    methods: dict[str, float]


def score_fold(inputs: Inputs, teacher: Path, student: Path, path: Path) -> None:
    """Scores float models on the final split in `inputs`, and writes a `FoldScores`."""
    final = inputs.splits.final
    assert final is not None
    examples = ScoringData.of_dev(final)
    of_student, of_teacher = (
        examples.score(model_predictor(from_pretrained(model), max_length=inputs.length))[0]
        for model in (student, teacher)
    )
    methods = simple_methods(final, of_student.main_metric)
    everything = dataclasses.replace(of_student, baselines=tuple(methods)).outcome()["baselines"]
    scores = FoldScores(
        metric=of_student.main_metric,
        examples=of_student.examples,
        student=of_student.score,
        teacher=of_teacher.score,
        methods={method["name"]: method["score"] for method in everything},
    )
    write_json(path, dataclasses.asdict(scores))


def dev_score(inputs: Inputs, teacher: Path) -> float:
    """Returns the float teacher's main metric on the dev split."""
    examples = ScoringData.of_dev(inputs.splits.data)
    return examples.score(model_predictor(from_pretrained(teacher), max_length=inputs.length))[0].score


def read_fold(path: Path) -> FoldScores:
    """Reads a finished fold's scores; raises a `UserError` if the file is damaged."""
    return from_json(FoldScores, read_json(path), str(path))


def pooled(folds: Sequence[FoldScores]) -> tuple[Scores, Loss]:
    """Averages scores and points lost over folds, with 95 % intervals from Student's t distribution."""
    metric = folds[0].metric
    student = statistics.fmean(fold.student for fold in folds)
    lost = [100 * (fold.teacher - fold.student) for fold in folds]
    names = [name for name in folds[0].methods if all(name in fold.methods for fold in folds)]
    scores = Scores(
        main_metric=metric,
        metrics={metric: student},
        baseline=None,
        examples=sum(fold.examples for fold in folds),
        interval=_within_scores(_interval([fold.student for fold in folds])),
        baselines=tuple(
            Baseline(name=name, score=statistics.fmean(fold.methods[name] for fold in folds)) for name in names
        ),
        teacher=statistics.fmean(fold.teacher for fold in folds),
    )
    return scores, Loss(statistics.fmean(lost), _interval(lost))


def _within_scores(interval: tuple[float, float]) -> tuple[float, float]:
    """Cuts an interval to the range of scores."""
    return max(interval[0], -1.0), min(interval[1], 1.0)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return mean - half, mean + half
