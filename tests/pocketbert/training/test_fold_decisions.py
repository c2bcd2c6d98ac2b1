"""`kfold` with `decision_thresholds` and `reject`: chosen out of fold, and scored without a look at the fold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
from scipy.special import expit, softmax
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.tasks.decisions import DecisionChoice
from pocketbert.training import folds
from pocketbert.training.config import CrossValidatedResult, FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.out_of_fold import OutOfFold, ScoredFold

pytestmark = pytest.mark.usefixtures("eager_module", "few_resamples")
COUNT, FOLDS = 53, 3
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=3e-2, epochs=1, batch_size=8, max_length=23)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    words = [*tiny_finetuning.SPECIAL, "text", *map(str, range(10))]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    return pb.WordPieceTokenizer(path)


def scored(
    tokenizer: Any, task: TaskConfig, labels: np.ndarray, logits: np.ndarray, choice: DecisionChoice, metrics: list[str]
) -> tuple[OutOfFold, list[np.ndarray]]:
    """Outputs of three folds, and the examples of each."""
    names = [str(number) for number in range(COUNT)]
    whole = Examples([f"text {name}" for name in names], None, labels, names, "here")
    fold_of = np.random.default_rng(8).permutation(COUNT) % FOLDS
    indices = [np.flatnonzero(fold_of == fold) for fold in range(FOLDS)]
    data = TaskData(task=task, train=whole, dev=whole, metrics=metrics, main_metric=metrics[0])
    parts = [
        ScoredFold(
            data=dataclasses.replace(data, train=whole.select(np.flatnonzero(fold_of != fold)), dev=whole.select(rows)),
            indices=rows,
            outputs={"logits": logits[rows]},
        )
        for fold, rows in enumerate(indices)
    ]
    return OutOfFold(parts, data, tokenizer, 16, choice), indices


def best_cut(scores: np.ndarray, gold: np.ndarray, metric: Callable[..., float]) -> float:
    """The threshold with the best metric: 0, or in the middle between two scores; the nearest to 0 of several."""
    ordered = np.concatenate([[scores.min() - 2], np.unique(scores), [scores.max() + 2]])
    middles = (ordered[1:] + ordered[:-1]) / 2
    cuts = np.where((ordered[:-1] < 0) & (ordered[1:] > 0), 0.0, middles)
    values = np.array([metric(gold, scores > cut) for cut in cuts])
    best = cuts[values >= values.max() - 1e-12]
    return float(best[np.abs(best).argmin()])


def f1(gold: np.ndarray, answers: np.ndarray) -> float:
    """As scikit-learn's, which takes a hundred times as long."""
    right, positive = np.count_nonzero(gold & answers), np.count_nonzero(gold) + np.count_nonzero(answers)
    return 2 * right / positive if positive else 0.0


def macro_f1(gold: np.ndarray, answers: np.ndarray) -> float:
    return float(f1_score(gold, answers, average="macro", zero_division=0))


@pytest.mark.parametrize(("name", "metric"), [("f1", f1), ("macro_f1", macro_f1), ("accuracy", accuracy_score)])
def test_thresholds_of_a_fold_come_from_the_others(name: str, metric: Callable[..., float], tokenizer: Any) -> None:
    random = np.random.default_rng(4)
    labels = (random.random(COUNT) < 0.3).astype(np.int32)
    difference = 2 * labels - 2.3 + random.normal(size=COUNT)
    logits = np.stack([np.zeros(COUNT), difference], axis=1).astype(np.float32)
    scores = logits[:, 1].astype(np.float64)
    names = [name, *({"accuracy", "f1"} - {name})]
    choice = DecisionChoice(metric=name)
    of_folds, indices = scored(tokenizer, tiny_finetuning.TASK, labels, logits, choice, names)

    others = [np.setdiff1d(np.arange(COUNT), rows) for rows in indices]
    cuts = [best_cut(scores[rows], labels[rows], metric) for rows in others]
    answers = np.zeros(COUNT, np.int32)
    for rows, cut in zip(indices, cuts, strict=True):
        answers[rows] = scores[rows] > cut
    expected = [metric(labels[rows], answers[rows]) for rows in indices]
    summary, outcome = of_folds.summary(), of_folds.scores()
    assert [fold["metrics"][name] for fold in summary["folds"]] == pytest.approx(expected)
    assert outcome.metrics[name] == summary["metrics"][name]["mean"] == pytest.approx(np.mean(expected))
    assert outcome.folds == pytest.approx(expected)
    chosen = [fold["decisions"]["thresholds"]["high"] for fold in summary["folds"]]
    assert chosen == pytest.approx(expit(cuts)) and len(set(chosen)) > 1
    assert summary["pooled"][name] == pytest.approx(metric(labels, answers))
    assert outcome.classes is not None
    assert outcome.classes["confusion_matrix"] == confusion_matrix(labels, answers).tolist()
    lines = [json.loads(line) for line in of_folds.predictions().splitlines()]
    assert [line["label"] for line in lines] == [tiny_finetuning.TASK.labels[answer] for answer in answers]
    wrong = [f"text {number}" for number in np.flatnonzero(answers != labels)]
    mistakes = of_folds.mistakes()
    assert len(wrong) <= 20 and sorted(mistake.text for mistake in mistakes) == sorted(wrong)
    certainty = [mistake.probability or 0.0 for mistake in mistakes]
    assert certainty == sorted(certainty, reverse=True)

    # All outputs together choose what the model gets.
    cut = best_cut(scores, labels, metric)
    assert outcome.decisions == {"thresholds": pytest.approx({"low": 1 - expit(cut), "high": expit(cut)})}
    assert of_folds.decisions is not None and of_folds.decisions.decisions is not None
    assert of_folds.decisions.decisions.thresholds == pytest.approx((1 - expit(cut), expit(cut)))
    low, high = outcome.interval or (0.0, 0.0)
    assert low < np.mean(expected) < high


def test_each_label_has_its_threshold_from_the_others(tokenizer: Any) -> None:
    random = np.random.default_rng(6)
    labels = (random.random([COUNT, 3]) < [0.5, 0.3, 0.2]).astype(np.int32)
    logits = (2 * labels - [1.0, 2.5, 0.2] + random.normal(size=[COUNT, 3])).astype(np.float32)
    task = TaskConfig(kind="multi_label", labels=("a", "b", "c"))
    of_folds, indices = scored(tokenizer, task, labels, logits, DecisionChoice(metric="macro_f1"), ["macro_f1"])

    def cuts_of(rows: np.ndarray) -> list[float]:
        return [best_cut(logits[rows, label].astype(np.float64), labels[rows, label], f1) for label in range(3)]

    others = [np.setdiff1d(np.arange(COUNT), rows) for rows in indices]
    answers = [logits[rows] > cuts_of(rest) for rows, rest in zip(indices, others, strict=True)]
    expected = [macro_f1(labels[rows], part) for rows, part in zip(indices, answers, strict=True)]
    summary, outcome = of_folds.summary(), of_folds.scores()
    assert [fold["metrics"]["macro_f1"] for fold in summary["folds"]] == pytest.approx(expected)
    assert outcome.metrics["macro_f1"] == pytest.approx(np.mean(expected))
    rows = np.concatenate(indices)
    assert summary["pooled"]["macro_f1"] == pytest.approx(macro_f1(labels[rows], np.concatenate(answers)))
    assert outcome.decisions is not None
    assert [*outcome.decisions["thresholds"].values()] == pytest.approx(expit(cuts_of(np.arange(COUNT))))
    # The thresholds for all of them would look better.
    assert np.mean(expected) < macro_f1(labels, logits > cuts_of(np.arange(COUNT)))


def test_rejected_answers_come_from_the_others(tokenizer: Any) -> None:
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, COUNT).astype(np.int32)
    logits = (1.5 * np.eye(3)[labels] + random.normal(size=[COUNT, 3])).astype(np.float32)
    task = TaskConfig(kind="classification", labels=("a", "b", "c"))
    keep = 0.8
    of_folds, indices = scored(tokenizer, task, labels, logits, DecisionChoice(keep=keep), ["accuracy"])
    top = softmax(logits.astype(np.float64), axis=1).max(axis=1)
    right = logits.argmax(axis=1) == labels

    def threshold(rows: np.ndarray) -> float:
        """The middle between the last of the right answers to keep and the next lower probability."""
        ordered = np.sort(top[rows][right[rows]])[::-1]
        least = ordered[int(np.ceil(keep * len(ordered))) - 1]
        return float((least + top[rows][top[rows] < least].max()) / 2)

    summary, outcome = of_folds.summary(), of_folds.scores()
    answered = np.zeros(COUNT, bool)
    for rows, fold in zip(indices, summary["folds"], strict=True):
        answered[rows] = top[rows] >= threshold(np.setdiff1d(np.arange(COUNT), rows))
        assert fold["decisions"]["coverage"] == pytest.approx(answered[rows].mean())
        assert fold["decisions"]["kept"] == pytest.approx(right[rows][answered[rows]].sum() / right[rows].sum())
        # Metrics count the most probable class.
        assert fold["metrics"]["accuracy"] == pytest.approx(right[rows].mean())
    lines = [json.loads(line) for line in of_folds.predictions().splitlines()]
    assert [line["label"] is not None for line in lines] == answered.tolist() and 0 < answered.sum() < COUNT
    assert outcome.decisions is not None
    assert outcome.decisions["reject_below"] == pytest.approx(threshold(np.arange(COUNT)))
    assert outcome.decisions["coverage"][0]["kept"] >= keep


def rare_texts() -> TaskData:
    """101 sentences, of which a sixth have class 1, and a split that is drawn."""
    plain = tiny_finetuning.examples(400, seed=3)
    assert plain.labels is not None
    chosen = [*np.flatnonzero(plain.labels == 0)[:84], *np.flatnonzero(plain.labels == 1)[:17]]
    rows = plain.select(np.sort(chosen))
    names = [tiny_finetuning.TASK.labels[label] for label in np.asarray(rows.labels)]
    data = pb.data.table({"text": rows.texts, "label": names}, label_names=tiny_finetuning.TASK.labels)
    return dataclasses.replace(data, main_metric="f1")


@pytest.mark.nightly
def test_model_on_all_examples_has_the_thresholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, data = tiny_finetuning.write_model(tmp_path / "tiny"), rare_texts()
    run = RunConfig(seed=5, evaluation_steps=2, decision_thresholds=True)

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(folds, "write_text", full)
        with pytest.raises(OSError, match="the disk is full"):
            finetune(start, data, tmp_path / "run", config=CONFIG, run=run, kfold=2)
    files = [tmp_path / "run" / "model" / name for name in ("config.json", "model.safetensors")]
    before = [file.read_bytes() for file in files]
    with pytest.raises(UserError, match="an unfinished run with other options: decision_thresholds=True, received"):
        finetune(start, data, tmp_path / "run", config=CONFIG, run=RunConfig(seed=5, evaluation_steps=2), kfold=2)
    result = finetune(start, data, tmp_path / "run", config=CONFIG, run=run, kfold=2)
    assert isinstance(result, CrossValidatedResult) and [file.read_bytes() for file in files] == before
    assert result.decisions is not None and result.model.task is not None and result.model.task.decisions is not None
    by_label = result.decisions["thresholds"]
    assert result.model.task.decisions.thresholds == pytest.approx([*by_label.values()])

    lines = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text("utf-8").splitlines()]
    truth, high = (np.array([line[name] == "high" for line in lines]) for name in ("true_label", "label"))
    scores = np.array([np.log(line["probabilities"]["high"] / line["probabilities"]["low"]) for line in lines])
    of_fold = np.array([line["fold"] for line in lines])
    expected = [f1(truth[of_fold == fold], high[of_fold == fold]) for fold in (1, 2)]
    assert result.metrics["f1"] == pytest.approx(np.mean(expected))
    # Six digits of a probability.
    assert by_label["high"] == pytest.approx(expit(best_cut(scores, truth, f1)), rel=1e-3)
    for fold, other in zip(result.cross_validation["folds"], (2, 1), strict=True):
        cut = best_cut(scores[of_fold == other], truth[of_fold == other], f1)
        assert fold["decisions"]["thresholds"]["high"] == pytest.approx(expit(cut), rel=1e-3)
    assert "its thresholds were chosen out of fold" in result.cross_validation["note"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Decision thresholds" in page and "Chosen out of fold, on the predictions for all examples" in page
    record = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert record["decision_thresholds"] and record["kfold"] == 2 and "reject" not in record


def test_thresholds_of_three_classes_are_refused(tmp_path: Path) -> None:
    start = tiny_finetuning.write_model(tmp_path / "tiny")
    data = pb.data.table({"text": [f"film {number}" for number in range(30)], "label": [*"abc"] * 10})
    with pytest.raises(UserError, match="two classes or several labels; received 3 classes"):
        finetune(start, data, tmp_path / "run", config=CONFIG, run=RunConfig(decision_thresholds=True), kfold=2)
    assert not (tmp_path / "run").exists()
