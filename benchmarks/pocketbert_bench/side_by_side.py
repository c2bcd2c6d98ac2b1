"""A student beside its teacher: what the same export of each costs, and the texts on which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pocketbert_bench import comparison
from pocketbert_bench.comparison import Row
from pocketbert_bench.results import Ratio


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Output of a network for a text.

    Attributes:
      label: the likeliest label.
      probability: of that label.
    """

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A text to which teacher and student give different answers.

    Attributes:
      text: what was asked.
      label: what is right.
      teacher: the teacher's answer.
      student: the student's answer.
    """

    text: str
    label: str
    teacher: Prediction
    student: Prediction


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A student and the teacher that it was distilled from.

    Attributes:
      teacher: the teacher's name in the results.
      student: the student's name in the results.
      export: the label of the exports to set side by side, one of each.
      examples: how many labelled texts both exports answered.
      disagreements: those of the texts on which they differ.
    """

    teacher: str
    student: str
    export: str
    examples: int
    disagreements: tuple[Disagreement, ...]

    @property
    def verdict(self) -> str:
        """On how many texts they differ and who is right there, in a sentence."""
        differ = len(self.disagreements)
        if not differ:
            return f"As {self.export}, teacher and student give the same answer to each of {self.examples:,} texts."
        teacher = sum(each.teacher.label == each.label for each in self.disagreements)
        student = sum(each.student.label == each.label for each in self.disagreements)
        # With more than two labels both may be wrong.
        neither = differ - teacher - student
        return (
            f"As {self.export}, teacher and student give different answers to {differ:,} of {self.examples:,} texts: "
            f"the teacher is right on {teacher:,} of them, the student on {student:,}"
            + (f", neither on {neither:,}." if neither else ".")
        )

    def surest(self, count: int) -> list[Disagreement]:
        """The disagreements in which the less certain of the two is most certain."""

        def certainty(each: Disagreement) -> float:
            return min(each.teacher.probability, each.student.probability)

        return sorted(self.disagreements, key=certainty, reverse=True)[:count]


@dataclass(frozen=True, kw_only=True)
class LatencyPair:
    """Both networks' latency at one length.

    Attributes:
      length: tokens.
      teacher_us: median.
      student_us: median.
      ratio: the student's over the teacher's, paired by round.
    """

    length: int
    teacher_us: float
    student_us: float
    ratio: Ratio


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The same export of teacher and student.

    Attributes:
      teacher: the teacher's row.
      student: the student's row.
      threads: of the latencies, the fewest that were measured.
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
    """The texts to which teacher and student give different answers, in the order of the texts.

    Args:
      texts: what both were asked.
      labels: index of each text's right label, `[texts]`.
      names: the labels.
      teacher: the teacher's probabilities, `[texts, labels]`.
      student: the student's probabilities, `[texts, labels]`.
    """

    def answer(probabilities: np.ndarray) -> Prediction:
        best = int(probabilities.argmax())
        return Prediction(label=names[best], probability=float(probabilities[best]))

    differ = np.flatnonzero(teacher.argmax(axis=1) != student.argmax(axis=1)).tolist()
    return tuple(
        Disagreement(
            text=texts[index],
            label=names[int(labels[index])],
            teacher=answer(teacher[index]),
            student=answer(student[index]),
        )
        for index in differ
    )


def costs(found: Sequence[Row], pair: Pair) -> Costs | None:
    """The rows of a pair with their comparison; None where one of the two was not measured."""
    rows = {row.model: row for row in found if row.label == pair.export and row.latencies}
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
