"""Warnings about weak results: each bad case has the one that explains it, and a good run none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pocketbert.data.data_warnings import DataWarning
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert.tasks.scores import Scores
from pocketbert.tasks.simple_methods import overlaps, pair_methods, word_method
from pocketbert.training.outcome_notes import falling_notes, flat_notes, teacher_notes, with_notes
from pocketbert.training.stage_log import MetricsLog

RANDOM = np.random.default_rng(5)


def _scores(score: float, teacher: float | None = None) -> Scores:
    return Scores(
        main_metric="accuracy",
        metrics={"accuracy": score},
        baseline={"answer": "always 'a'", "metrics": {"accuracy": 0.5}},
        examples=101,
        interval=(score - 0.098, score + 0.098),
        teacher=teacher,
    )


def test_random_labels_are_not_learned() -> None:
    evaluator = SimpleNamespace(top_probability=0.52)
    scores = with_notes(_scores(0.52), (), flat_notes(evaluator, ("a", "b")), (), ())
    (warning,) = scores.warnings
    assert warning.startswith("not learned from this many examples")


def test_flat_teacher_is_named() -> None:
    notes = flat_notes(SimpleNamespace(top_probability=0.3), ("a", "b", "c", "d", "e"), "the teacher's")
    # Also for a student that has learned nothing.
    assert with_notes(_scores(0.52), (), (), (), (), notes[0]).warnings == notes
    (warning,) = with_notes(_scores(0.8), (), notes, (), ()).warnings
    assert warning.startswith("the teacher's probabilities are flat: the best of 5 classes has 0.30")
    assert flat_notes(SimpleNamespace(top_probability=0.36), ("a", "b", "c", "d", "e")) == []


def test_weak_student_is_compared_with_its_teacher() -> None:
    # Two standard errors are 0.1.
    assert teacher_notes(_scores(0.8, 0.89), 0.89) == []
    (warning,) = teacher_notes(_scores(0.7, 0.94), 0.94)
    assert "far below its teacher: accuracy 0.7000 against 0.9400" in warning and "pb.TeacherLayers(…)" in warning
    # The teacher has learned from the examples. The student is no better than chance.
    weak = with_notes(_scores(0.5, 0.94), (), ("flat",), (), (), warning)
    assert weak.verdict == "below the baseline" and weak.warnings == [warning]


def test_foreign_texts_explain_a_weak_score() -> None:
    foreign = DataWarning("the tokenizer needs 2.10 tokens per word", "many_tokens", 210)
    scores = with_notes(_scores(0.52), (), ("flat",), (foreign,), ())
    assert scores.warnings == ["the tokenizer needs 2.10 tokens per word"] and scores.verdict == "not learned"


def test_shared_texts_are_named_without_the_path() -> None:
    shared = DataWarning("here/dev.csv: 3 of 40 dev texts are among the training texts", "train_in_dev", 3)
    scores = with_notes(_scores(0.9), (), (), (shared,), ("here/train.csv", "here/dev.csv"))
    assert scores.warnings == ["3 of 40 dev texts are among the training texts"] and scores.verdict == "good"


@pytest.mark.parametrize(
    ("losses", "falls"),
    [([0.9, 0.5, 0.48], True), ([0.9, 0.5, 0.49], False), ([0.4, 0.5, 0.45], False), ([0.4], False)],
)
def test_falling_loss_needs_three_percent(tmp_path: Path, losses: list[float], falls: bool) -> None:
    lines = [{"step": 1, "split": "train", "loss": 0.1}]
    lines += [{"step": step, "split": "dev", "loss": loss} for step, loss in enumerate(losses)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert bool(falling_notes(tmp_path, "")) == falls


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[", "this must be JSON"),
        ("[1]", "it must be an object"),
        ('{"step": 1}', "split must be a string"),
        ('{"step": "1", "split": "dev"}', "step must be a whole number"),
        ('{"step": 1e9, "split": "dev"}', "step must be a whole number"),
        (f'{{"step": {1 << 63}, "split": "dev"}}', "step must be a whole number"),
        ('{"step": 2, "split": "dev", "loss": []}', "numbers.loss must be a number"),
    ],
)
def test_damaged_log_is_one_line(line: str, message: str, tmp_path: Path) -> None:
    good = '{"step": 1, "split": "dev", "loss": 1}\n'
    (tmp_path / "metrics.jsonl").write_text(good + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=rf"metrics\.jsonl is damaged at line 2; pass overwrite=True .*: .*{message}"):
        falling_notes(tmp_path, "")
    with pytest.raises(UserError, match=r"metrics\.jsonl is damaged at line 2"):
        MetricsLog(tmp_path, (tmp_path / "metrics.jsonl").stat().st_size)
    # The run wrote the damaged line after its last checkpoint.
    with MetricsLog(tmp_path, len(good)):
        assert (tmp_path / "metrics.jsonl").read_text(encoding="utf-8") == good


def _examples(texts: list[str], labels: np.ndarray, pairs: list[str] | None = None) -> Examples:
    return Examples(texts, pairs, labels, [str(row) for row in range(len(texts))], "made for the test")


def test_words_tell_classes() -> None:
    labels = np.arange(60, dtype=np.int32) % 2
    texts = [f"filler{row % 7} {'good' if label else 'bad'}" for row, label in enumerate(labels)]
    data = _examples(texts, labels)
    (method,) = word_method("classes", data, data, lambda predictions: float((predictions == labels).mean()))
    assert (method.name, method.score) == ("logistic regression on words", 1.0)
    assert method.remedy == "use more examples, or logistic regression on words, which needs no network"


def test_words_tell_scores() -> None:
    scores = np.arange(60, dtype=np.float32) % 2
    data = _examples([f"filler{row % 7} {'good' if score else 'bad'}" for row, score in enumerate(scores)], scores)
    (method,) = word_method("scores", data, data, lambda values: float(np.corrcoef(values, scores)[0, 1]))
    assert method.name == "ridge regression on words" and method.score > 0.99
    assert method.remedy == "use more examples, or ridge regression on words, which needs no network"


def test_cosine_ranks_pairs_without_training() -> None:
    vectors = {f"text {row}": RANDOM.normal(size=5) for row in range(80)}
    texts, others = [f"text {row}" for row in range(40)], [f"text {row}" for row in range(40, 80)]
    cosines = [
        vectors[one] @ vectors[other] / np.linalg.norm(vectors[one]) / np.linalg.norm(vectors[other])
        for one, other in zip(texts, others, strict=True)
    ]
    data = _examples(texts, np.array(cosines, np.float32), others)

    def units(label_kind: object) -> np.ndarray:
        rows = np.array([vectors[text] for text in label_kind])  # type: ignore[attr-defined]
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    methods = pair_methods("scores", data, data, lambda scores: float(np.corrcoef(scores, cosines)[0, 1]), units)
    by_name = {method.name: method for method in methods}
    assert by_name["the cosine of separate vectors"].score == pytest.approx(1, abs=1e-6)
    assert "pb.data.pairs(…)" in by_name["the cosine of separate vectors"].remedy


def test_overlaps_count_words_by_hand() -> None:
    pairs = _examples(["a b c", "x"], np.zeros(2, np.int32), ["B d", "x"])
    # One of four different words; one of three, one of two; |3 − 2| / 5.
    np.testing.assert_allclose(overlaps(pairs), [[0.25, 1 / 3, 0.5, 0.2, 0], [1, 1, 1, 0, 1]])
