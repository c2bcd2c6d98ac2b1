"""Compare a student with its teacher: the same export's costs, and texts with different predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert_bench import comparison
from pocketbert_bench.comparison import Row
from pocketbert_bench.results import Ratio

# Recipe → short name in sentences; other exports keep theirs.
_SHORT_NAMES = {"dynamic_wi8": "int8"}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A network's output for a text.

    Attributes:
      label: most likely label.
      probability: its probability.
    """

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A text with different labels from teacher and student.

    Attributes:
      text: the text.
      label: the correct label.
      teacher: the teacher's prediction.
      student: the student's prediction.
    """

    text: str
    label: str
    teacher: Prediction
    student: Prediction


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A student and its teacher.

    Attributes:
      teacher: the teacher's name in the results.
      student: the student's name in the results.
      export: label of both compared exports.
      examples: number of labelled texts predicted by both exports.
      disagreements: texts with different predictions.
    """

    teacher: str
    student: str
    export: str
    examples: int
    disagreements: tuple[Disagreement, ...]

    @property
    def verdict(self) -> str:
        """Number of disagreements and who is right, in a sentence."""
        differ, export = len(self.disagreements), _SHORT_NAMES.get(self.export, self.export)
        if not differ:
            return f"{export} teacher and student agree on all {self.examples:,} texts."
        teacher = sum(disagreement.teacher.label == disagreement.label for disagreement in self.disagreements)
        student = sum(disagreement.student.label == disagreement.label for disagreement in self.disagreements)
        # With more than two labels both may be wrong.
        neither = differ - teacher - student
        return (
            f"{export} teacher and student disagree on {differ:,} of {self.examples:,} texts: "
            f"the teacher is right on {teacher:,}, the student on {student:,}"
            + (f", neither on {neither:,}." if neither else ".")
        )

    def most_confident(self, count: int) -> list[Disagreement]:
        """Returns the disagreements with the highest confidence: the lower of both probabilities."""

        def confidence(disagreement: Disagreement) -> float:
            return min(disagreement.teacher.probability, disagreement.student.probability)

        return sorted(self.disagreements, key=confidence, reverse=True)[:count]


@dataclass(frozen=True, kw_only=True)
class LatencyPair:
    """Both networks' latency at one length.

    Attributes:
      length: sequence length in tokens.
      teacher_us: the teacher's median.
      student_us: the student's median.
      ratio: student ÷ teacher, paired by round.
    """

    length: int
    teacher_us: float
    student_us: float
    ratio: Ratio


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Teacher and student in the same export.

    Attributes:
      teacher: the teacher's row.
      student: the student's row.
      threads: smallest measured number of threads, used for the latencies.
      latencies: ascending by length.
    """

    teacher: Row
    student: Row
    threads: int
    latencies: tuple[LatencyPair, ...]


def disagreements(
    texts: Sequence[str],
    labels: np.ndarray,
    *,
    names: Sequence[str],
    teacher: np.ndarray,
    student: np.ndarray,
) -> tuple[Disagreement, ...]:
    """Returns texts with different labels from teacher and student, in order.

    Args:
      texts: the predicted texts.
      labels: index of each text's correct label, `[texts]`.
      names: the labels' names.
      teacher: the teacher's probabilities, `[texts, labels]`.
      student: the student's probabilities, `[texts, labels]`.
    """

    def prediction(probabilities: np.ndarray) -> Prediction:
        best = int(probabilities.argmax())
        return Prediction(label=names[best], probability=float(probabilities[best]))

    differ = np.flatnonzero(teacher.argmax(axis=1) != student.argmax(axis=1)).tolist()
    return tuple(
        Disagreement(
            text=texts[index],
            label=names[int(labels[index])],
            teacher=prediction(teacher[index]),
            student=prediction(student[index]),
        )
        for index in differ
    )


def costs(report_rows: Sequence[Row], pair: Pair) -> Costs | None:
    """Returns a pair's rows with their comparison; None if one was not measured."""
    rows = {row.model: row for row in report_rows if row.label == pair.export and row.latencies}
    if pair.teacher not in rows or pair.student not in rows:
        return None
    teacher, student = rows[pair.teacher], rows[pair.student]
    threads = comparison.threads([teacher])[0]
    latencies = []
    for length in comparison.lengths([teacher]):
        ratio = comparison.faster(student, teacher, (length, threads))
        teacher_us, student_us = teacher.latency_us(length, threads), student.latency_us(length, threads)
        if ratio and teacher_us and student_us:
            latencies.append(LatencyPair(length=length, teacher_us=teacher_us, student_us=student_us, ratio=ratio))
    return Costs(teacher=teacher, student=student, threads=threads, latencies=tuple(latencies))
