"""A student beside its teacher: who is right where they differ, what each costs, and what the page says of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import bench_subjects
import numpy as np
import pytest
from bench_subjects import measurement

from pocketbert_bench import accuracy, comparison, report, side_by_side
from pocketbert_bench.results import ResultFile
from pocketbert_bench.side_by_side import Disagreement, Pair, Prediction

NAMES = ("bad", "fair", "good")
TEACHER = [[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.9, 0.1, 0.0], [0.2, 0.5, 0.3]]
STUDENT = [[0.5, 0.4, 0.1], [0.2, 0.8, 0.0], [0.2, 0.2, 0.6], [0.1, 0.3, 0.6]]


def disagreement(text: str, teacher: float, student: float, label: str = "good") -> Disagreement:
    return Disagreement(
        text=text,
        label=label,
        teacher=Prediction(label="good", probability=teacher),
        student=Prediction(label="bad", probability=student),
    )


def pair(*disagreements: Disagreement, examples: int = 1234) -> Pair:
    return Pair(teacher="big", student="small", export="int8", examples=examples, disagreements=disagreements)


@pytest.fixture
def run() -> ResultFile:
    def score(model: str, value: float) -> accuracy.Accuracy:
        return accuracy.record(
            label="int8", model=model, recipe="dynamic_wi8", task="mood", split="dev", metric="accuracy",
            value=value, examples=1234,
        )  # fmt: skip

    fields = {"recipe": "dynamic_wi8"}
    return bench_subjects.result(
        # The teacher comes first because it was measured first; by name it would come last.
        measurement("int8", 32, 3.0, model="teacher", size_bytes=2_000_000, **fields),
        measurement("int8", 128, 8.0, model="teacher", size_bytes=2_000_000, **fields),
        measurement("int8", 32, 1.0, model="pupil", size_bytes=1_600_000, **fields),
        measurement("int8", 128, 5.0, model="pupil", size_bytes=1_600_000, **fields),
        measurement("float32", 128, 7.0, model="pupil", size_bytes=6_000_000),
        measurement("TFLite converter float32", 128, 12.0, model="teacher", peer=True, size_bytes=8_000_000),
        accuracies=(score("teacher", 0.84), score("pupil", 0.825)),
    )


def rows(run: ResultFile) -> list[comparison.Row]:
    return comparison.rows([run], {"pupil": "teacher"})


def test_disagreements_have_both_predictions() -> None:
    rows_apart = side_by_side.disagreements(
        ["a", "b", "c", "d"], np.array([0, 1, 2, 0]), names=NAMES, teacher=np.array(TEACHER), student=np.array(STUDENT)
    )
    assert [mistake.text for mistake in rows_apart] == ["b", "c", "d"]
    assert [mistake.label for mistake in rows_apart] == ["fair", "good", "bad"]
    assert rows_apart[0].teacher == Prediction(label="good", probability=0.7)
    assert rows_apart[0].student == Prediction(label="fair", probability=0.8)
    verdict = pair(*rows_apart, examples=4).verdict
    # b and c are the student's, nobody has d.
    assert "on 3 of 4 texts" in verdict and "teacher is right on 0, the student on 2, neither on 1." in verdict


def test_verdict_covers_agreement_and_two_labels() -> None:
    assert "agree on all 1,234 texts" in pair().verdict
    verdict = pair(disagreement("a", 0.9, 0.9), disagreement("b", 0.8, 0.8, label="bad")).verdict
    assert verdict.endswith("the teacher is right on 1, the student on 1.")


def test_confidence_is_the_lower_probability() -> None:
    both = pair(disagreement("a", 0.99, 0.51), disagreement("b", 0.7, 0.8), disagreement("c", 0.6, 0.99))
    assert [mistake.text for mistake in both.most_confident(2)] == ["b", "c"]
    assert len(both.most_confident(9)) == 3


def test_student_compares_with_teachers_plain_export(run: ResultFile) -> None:
    table_rows = rows(run)
    assert [(row.model, row.label) for row in table_rows] == [
        ("teacher", "TFLite converter float32"), ("teacher", "int8"), ("pupil", "float32"), ("pupil", "int8"),
    ]  # fmt: skip
    student = table_rows[-1]
    assert student.reference and student.reference.model == "teacher"
    assert student.smaller == 5.0 and student.faster and 1 / student.faster.value == pytest.approx(12 / 5)
    alone = comparison.rows([run])[-1]
    assert alone.reference and (alone.reference.model, alone.reference.label) == ("pupil", "float32")


def test_names_add_network_only_if_ambiguous(run: ResultFile) -> None:
    table_rows = rows(run)
    assert [comparison.name(row, table_rows) for row in table_rows] == [
        "TFLite converter float32", "teacher, int8", "float32", "pupil, int8",
    ]  # fmt: skip


def test_costs_compare_same_export_by_length(run: ResultFile) -> None:
    whole = Pair(teacher="teacher", student="pupil", export="int8", examples=5, disagreements=())
    costs = side_by_side.costs(rows(run), whole)
    assert costs and (costs.teacher.model, costs.student.model, costs.threads) == ("teacher", "pupil", 1)
    assert [(latency.length, latency.teacher_us, latency.student_us) for latency in costs.latencies] == [
        (32, pytest.approx(3000), pytest.approx(1000)), (128, pytest.approx(8000), pytest.approx(5000)),
    ]  # fmt: skip
    assert [1 / latency.ratio.value for latency in costs.latencies] == pytest.approx([3.0, 1.6])
    assert side_by_side.costs(rows(run)[:2], whole) is None


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize(("more", "learned", "change"), [(0, 0.825, "−1.50 points"), (1, 0.865, "+2.50 points")])
def test_page_shows_pair_and_confident_disagreements(
    run: ResultFile, tmp_path: Path, more: int, learned: float, change: str
) -> None:
    teacher, student = run.accuracies
    run = dataclasses.replace(run, accuracies=(teacher, dataclasses.replace(student, value=learned)))
    shown = report.SHOWN_DISAGREEMENTS
    texts = [f"<text {number}> & so" for number in range(shown + more)]
    differ = tuple(disagreement(text, 0.9 - index / 100, 0.95) for index, text in enumerate(texts))
    whole = Pair(teacher="teacher", student="pupil", export="int8", examples=1234, disagreements=differ)
    page = report.build_report([run], tmp_path / "report", pair=whole).read_text(encoding="utf-8")
    for expected in (
        whole.verdict, change, "1.25× smaller", "3.00× faster", "1.60× faster", "84.00 %", f"{100 * learned:.2f} %",
        "90.0 %", "95.0 %", '<span class="good">good</span>', '<span class="bad">bad</span>',
    ):  # fmt: skip
        assert expected in page, expected
    assert [f"&lt;text {number}&gt; &amp; so" in page for number in range(shown + more)] == [True] * shown + [
        False
    ] * more
    assert (f"the {shown} with the highest confidence" in page) is bool(more)
    # The headline compares the student with the teacher's export by TensorFlow's converter.
    assert "Export: pupil, int8. Baseline: teacher, TFLite converter float32." in page
    assert "1.6 MB; baseline 8.0 MB" in page
    assert "5.00×" in page and "2.40×" in page

    lines = report.table(run, whole).splitlines()
    assert next(line for line in lines if line.startswith("pupil, int8")).split()[-2:] == ["5.00×", "2.40×"]
    assert whole.verdict in lines


@pytest.mark.usefixtures("without_plots")
def test_unmeasured_pair_still_shows_disagreements(run: ResultFile, tmp_path: Path) -> None:
    unmeasured = pair(disagreement("odd one", 0.75, 0.75))
    page = report.build_report([run], tmp_path / "report", pair=unmeasured).read_text(encoding="utf-8")
    assert "odd one" in page and "Teacher and student</h2>" not in page


def test_page_without_pair_shows_exports_only(run: ResultFile, tmp_path: Path) -> None:
    page = report.build_report([run], tmp_path / "report").read_text(encoding="utf-8")
    assert "Disagreements</h2>" not in page
