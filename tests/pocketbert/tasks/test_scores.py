"""Scores and baselines, compared with scikit-learn and hand counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_questions
from scipy.stats import binomtest, bootstrap
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, classification_report, f1_score

from pocketbert.commands import runs
from pocketbert.configs import TaskConfig
from pocketbert.data.readers.questions import QuestionFile
from pocketbert.tasks.answer_scores import squad_1_score
from pocketbert.tasks.class_names import positive_class
from pocketbert.tasks.metrics import class_results, compute
from pocketbert.tasks.question_answering import constant_rule
from pocketbert.tasks.registry import text_task
from pocketbert.tasks.scores import Baseline, Scores

NAMES = ("low", "middle", "high", "unseen")
RANDOM = np.random.default_rng(3)
LABELS = RANDOM.choice(3, 61, p=[0.2, 0.5, 0.3]).astype(np.int32)
PREDICTIONS = np.where(RANDOM.random(61) < 0.7, LABELS, RANDOM.integers(0, 3, 61)).astype(np.int32)
TASK = TaskConfig(kind="classification", labels=NAMES)


def test_class_results_match_scikit_learn() -> None:
    results = class_results(NAMES, LABELS, PREDICTIONS)
    report = classification_report(
        LABELS, PREDICTIONS, labels=range(4), target_names=NAMES, output_dict=True, zero_division=0
    )
    for name in NAMES:
        assert results["by_label"][name] == {
            key.replace("-score", ""): pytest.approx(value) for key, value in report[name].items()
        }
    # The class that does not occur has no part in it.
    assert results["macro_f1"] == pytest.approx(f1_score(LABELS, PREDICTIONS, average="macro"))
    assert results["macro_f1"] > report["macro avg"]["f1-score"] + 0.05
    matrix = [[int(np.sum((LABELS == row) & (PREDICTIONS == column))) for column in range(4)] for row in range(4)]
    assert results["confusion_matrix"] == matrix
    assert matrix[0][1] != matrix[1][0]


def test_baseline_is_the_most_frequent_label() -> None:
    dummy = DummyClassifier(strategy="most_frequent").fit(LABELS[:, np.newaxis], LABELS)
    constant = dummy.predict(LABELS[:, np.newaxis])
    scores = text_task(TASK).score(LABELS, PREDICTIONS, ("accuracy", "matthews"), "accuracy")
    assert scores.baseline == {
        "answer": "always 'middle'",
        "metrics": {"accuracy": pytest.approx(accuracy_score(LABELS, constant)), "matthews": 0.0},
    }
    assert scores.warnings == []
    assert scores.sentence.startswith(f"accuracy {accuracy_score(LABELS, PREDICTIONS):.4f}; the baseline, always 'mid")


@pytest.mark.parametrize(
    # 'middle' is the most frequent label; the other is far rarer.
    ("answer", "start"),
    [(1, "not learned from this many examples"), (0, "the model does not beat the baseline")],
)
def test_classifier_below_baseline_warns(answer: int, start: str) -> None:
    scores = text_task(TASK).score(LABELS, np.full(61, answer, np.int32), ("accuracy",), "accuracy")
    (warning,) = scores.to_json()["warnings"]
    assert warning.startswith(f"{start}: accuracy 0.")
    assert "always 'middle'" in warning


@pytest.mark.parametrize(("right", "examples"), [(0, 7), (43, 61), (61, 61)])
def test_accuracy_has_wilsons_interval(right: int, examples: int) -> None:
    predictions = np.repeat([1, 0], [right, examples - right]).astype(np.int32)
    interval = text_task(TASK).interval("accuracy", np.ones(examples, np.int32), predictions)
    expected = binomtest(right, examples).proportion_ci(0.95, method="wilson")
    # scipy does not round the quantile of the normal distribution to seven digits.
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_f1_has_a_bootstrap_interval() -> None:
    truth, predictions = RANDOM.integers(0, 2, (2, 211)).astype(np.int32)
    low, high = text_task(TaskConfig(kind="classification", labels=("no", "yes"))).interval("f1", truth, predictions)

    def statistic(truth: np.ndarray, predictions: np.ndarray) -> float:
        # scikit-learn's function takes a thousand times as long.
        return 2 * np.sum(truth & predictions) / np.sum(truth + predictions)

    assert statistic(truth, predictions) == pytest.approx(f1_score(truth, predictions))
    expected = bootstrap(
        (truth, predictions), statistic, paired=True, vectorized=False, method="percentile", n_resamples=999, rng=3
    ).confidence_interval
    # A percentile of 200 resamples has a standard error of 0.2 standard deviations at 2.5 %: three of them.
    tolerance = 0.6 * (expected.high - expected.low) / (2 * 1.96)
    assert (low, high) == pytest.approx(tuple(expected), abs=tolerance)


def _scores(score: float, methods: list[float], constant: float = 0.5, *, pairs: bool = False) -> Scores:
    return Scores(
        main_metric="accuracy",
        metrics={"accuracy": score},
        baseline={"answer": "always 'a'", "metrics": {"accuracy": constant}},
        examples=97,
        # One standard error of 0.05.
        interval=(score - 0.05 * 1.959964, score + 0.05 * 1.959964),
        baselines=tuple(Baseline(name=f"method {index}", score=value) for index, value in enumerate(methods)),
        pairs=pairs,
    )


@pytest.mark.parametrize(
    ("score", "methods", "verdict"),
    [
        (0.75, [], "good"),
        (0.75, [0.79, 0.6], "good"),
        (0.75, [0.6, 0.81], "below the baseline"),
        (0.59, [0.52], "not learned"),
        # The method has learned.
        (0.51, [0.63], "below the baseline"),
        (0.61, [0.52], "good"),
        # More wrong than chance: another order of labels.
        (0.39, [0.52], "below the baseline"),
        (0.41, [0.52], "not learned"),
    ],
)
def test_verdict_compares_with_simple_methods(score: float, methods: list[float], verdict: str) -> None:
    scores = _scores(score, methods)
    assert scores.verdict == verdict == scores.outcome()["verdict"]
    assert len(scores.warnings) == (verdict != "good")
    assert scores.headline.startswith({"good": "accuracy"}.get(verdict, verdict))
    assert "on 97 examples (95 % interval" in scores.headline


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (0.83, "good"),
        (0.81, "no better than the baseline"),
        (0.75, "no better than the baseline"),
        (0.71, "below the baseline"),
    ],
)
def test_pairs_must_be_above_a_simple_method(score: float, verdict: str) -> None:
    scores = _scores(score, [0.6, 0.77], pairs=True)
    assert scores.verdict == verdict
    assert scores.headline.startswith({"good": "accuracy"}.get(verdict, verdict))
    assert len(scores.warnings) == (verdict != "good")
    assert verdict == "good" or "method 1 has 0.7700" in scores.warnings[0]


def test_best_method_is_named_with_its_remedy() -> None:
    (warning,) = _scores(0.7, [0.8, 0.9, 0.85]).warnings
    assert "method 1 has 0.9000; use more examples" in warning


def test_baseline_of_scores_correlates_with_nothing() -> None:
    labels = RANDOM.normal(size=17).astype(np.float32)
    task = TaskConfig(kind="regression")
    scores = text_task(task).score(labels, 2 * labels + 1, ("pearson", "spearman"), "spearman")
    assert scores.baseline == {"answer": "always the mean", "metrics": {"pearson": 0.0, "spearman": 0.0}}
    assert scores.warnings == [] and scores.classes is None and scores.positive_label is None
    assert text_task(task).score(labels, -labels, ("spearman",), "spearman").warnings


def test_unanswered_questions_warn(tmp_path: Path) -> None:
    questions = QuestionFile(tiny_questions.write_questions(tmp_path / "q.json", 60, 3, impossible=0.35))
    share = questions.num_impossible / 60
    assert 0 < share < 1
    baseline = constant_rule(questions)
    # By the definition of both: an empty answer is right where there is none.
    expected = {"exact_match": share, "f1": share, "has_answer_f1": 0.0, "no_answer_f1": 1.0}
    assert {name: baseline["metrics"][name] for name in expected} == pytest.approx(expected)
    same = Scores(main_metric="f1", metrics=baseline["metrics"], baseline=baseline)
    assert "does not beat the baseline: f1" in same.warnings[0] and "always no answer" in same.warnings[0]
    better = Scores(main_metric="f1", metrics={"f1": share + 0.01}, baseline=baseline)
    assert better.warnings == []


def test_questions_with_answers_compare_with_a_rule(tmp_path: Path) -> None:
    questions = QuestionFile(tiny_questions.write_questions(tmp_path / "q.json", 9, 3))
    baseline = constant_rule(questions)
    rows = list(questions)
    rules = {
        "always the first sentence": lambda context: context.split(". ")[0],
        "always the first five words": lambda context: " ".join(context.split()[:5]),
        "always the whole paragraph": lambda context: context,
    }
    expected = {
        name: np.mean([squad_1_score(rule(row.context), row.answers)[1] for row in rows])
        for name, rule in rules.items()
    }
    assert baseline["metrics"]["f1"] == pytest.approx(max(expected.values()))
    assert baseline["answer"] == max(expected, key=lambda name: expected[name])


def test_scores_without_a_baseline_must_exceed_zero() -> None:
    fields = Scores(main_metric="f1", metrics={"f1": 0.1}, baseline=None).to_json()
    assert fields.pop("outcome")["verdict"] == "good"
    assert fields == {"metrics": {"f1": 0.1}, "baseline": None, "warnings": []}
    assert "does not beat 0: f1 0.0000" in Scores(main_metric="f1", metrics={"f1": 0.0}, baseline=None).warnings[0]


POSITIVE = pytest.mark.parametrize(
    ("name", "labels", "positive"),
    [
        ("mrpc", ("equivalent", "not_equivalent"), "equivalent"),
        ("mrpc", ("not_equivalent", "equivalent"), "equivalent"),
        # RTE's class 1.
        ("rte", ("not_entailment", "entailment"), "not_entailment"),
        # Another task's labels under the name.
        ("mrpc", ("yes", "no"), "no"),
        ("", ("yes", "no"), "no"),
    ],
)


@POSITIVE
def test_positive_class(name: str, labels: tuple[str, str], positive: str) -> None:
    assert labels[positive_class(TaskConfig(kind="classification", name=name, labels=labels))] == positive


@pytest.mark.one_of_each("mrpc-labels0-equivalent", "rte-labels2-not_entailment")
@POSITIVE
def test_f1_is_that_of_the_positive_class(name: str, labels: tuple[str, str], positive: str) -> None:
    task = TaskConfig(kind="classification", name=name, labels=labels)
    truth, predictions = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    scores = text_task(task).score(truth, predictions, ("accuracy", "f1"), "f1")
    expected = f1_score(
        [labels[index] for index in truth], [labels[index] for index in predictions], pos_label=positive
    )
    assert (scores.positive_label, scores.metrics["f1"]) == (positive, pytest.approx(expected))
    assert f"for {positive!r}" in scores.sentence


def test_seeds_table_has_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    spread = {"mean": 0.75, "standard_deviation": 0.05}
    baseline = {"answer": "always 'middle'", "metrics": {"accuracy": 0.625}}
    finished = [
        {"seed": seed, "metrics": {"accuracy": value}, "baseline": baseline} for seed, value in ((3, 0.7), (5, 0.8))
    ]
    runs._print_table({"metrics": {"accuracy": spread}, "runs": finished})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["3", "0.7000"],
        ["5", "0.8000"],
        ["baseline", "0.6250"],
        ["mean", "0.7500"],
        ["±", "sample"],
    ]
    assert lines[3].endswith("always 'middle'")


def test_positive_label_selects_f1() -> None:
    truth, predictions = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    # Class 0: one right of two said and of two there are. Class 1: two of three.
    assert compute(["f1"], truth, predictions, positive=0)["f1"] == pytest.approx(1 / 2)
    assert compute(["f1"], truth, predictions)["f1"] == pytest.approx(2 / 3)


def test_constant_predictions_have_an_uncertain_correlation() -> None:
    truth = RANDOM.integers(0, 2, 100).astype(np.int32)
    task = text_task(TaskConfig(kind="classification", labels=("no", "yes")))
    # The standard error of a correlation of 0 is 1 / sqrt(100).
    assert task.interval("matthews", truth, np.zeros(100, np.int32)) == pytest.approx((-0.196, 0.196), abs=1e-3)
