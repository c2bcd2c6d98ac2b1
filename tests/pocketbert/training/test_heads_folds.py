"""Cross-validation of several heads: `kfold`. Oracles: scikit-learn's metrics and folds, and seqeval."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_heads
from seqeval.metrics import f1_score as span_f1
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold

import pocketbert as pb
from pocketbert import cli
from pocketbert.data.final_split import folds_of
from pocketbert.errors import UserError
from pocketbert.training.config import CrossValidatedResult, FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune

pytestmark = pytest.mark.usefixtures("eager_module", "few_resamples")
CONFIG = FinetuneConfig(learning_rate=1e-2, epochs=2, batch_size=8, max_length=23)
RUN = RunConfig(seed=5, evaluation_steps=3)
FLAGS = ["--learning-rate=1e-2", "--epochs=2", "--batch-size=8", "--max-length=23", "--evaluation-steps=3"]
HEADS = "--heads=mood:classification,slots:token_classification"


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    """61 sentences, of which the first five come again."""
    table = tiny_heads.table(61, 5)
    return {name: [*values, *values[:5]] for name, values in table.items()}


@pytest.fixture(scope="module")
def train_file(columns: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "train.jsonl"
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(start: Path, train_file: Path, tmp_path_factory: pytest.TempPathFactory) -> CrossValidatedResult:
    data = pb.data.heads(train_file, tiny_heads.KINDS)
    result = finetune(start, data, tmp_path_factory.mktemp("runs") / "run", config=CONFIG, run=RUN, kfold=3)
    assert isinstance(result, CrossValidatedResult)
    return result


def predictions_of(result: CrossValidatedResult) -> list[dict[str, Any]]:
    path = Path(result.model_directory).parent / "predictions.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tags_of(line: dict[str, Any], name: str) -> list[str]:
    """Tags of the words of a line, from its spans."""
    spans = {span["start"]: span for span in line["slots"][name]}
    tags, place, end, label = [], 0, 0, ""
    for word in line["text"].split():
        if place in spans:
            end, label = spans[place]["end"], spans[place]["label"]
        tags.append(f"B-{label}" if place in spans else f"I-{label}" if place < end else "O")
        place += len(word) + 1
    return tags


def scores_of(lines: list[dict[str, Any]]) -> tuple[float, float]:
    """scikit-learn's accuracy and seqeval's F1 of the lines with a label."""
    moods = [(line["mood"]["true_label"], line["mood"]["label"]) for line in lines if "true_label" in line["mood"]]
    tagged = [line for line in lines if "true_spans" in line["slots"]]
    tags = [[tags_of(line, name) for line in tagged] for name in ("true_spans", "spans")]
    return float(accuracy_score(*zip(*moods, strict=True))), float(span_f1(*tags))


def test_each_text_is_predicted_once(finished: CrossValidatedResult, columns: dict[str, list[Any]]) -> None:
    lines = predictions_of(finished)
    assert [line["text"] for line in lines] == columns["text"]
    assert [line["mood"]["true_label"] for line in lines] == columns["mood"]
    assert [tags_of(line, "true_spans") for line in lines] == columns["slots"]
    assert all(line["mood"]["label"] == max(p, key=p.get) for line in lines if (p := line["mood"]["probabilities"]))
    folds_by_text: dict[str, set[int]] = {}
    for line in lines:
        folds_by_text.setdefault(line["text"], set()).add(line["fold"])
    assert set.union(*folds_by_text.values()) == {1, 2, 3}
    assert len(folds_by_text) < len(lines) and all(len(folds) == 1 for folds in folds_by_text.values())


def test_metrics_are_scikit_learns_and_seqevals(finished: CrossValidatedResult) -> None:
    lines = predictions_of(finished)
    by_fold = np.array([scores_of([line for line in lines if line["fold"] == fold]) for fold in (1, 2, 3)])
    received = finished.cross_validation
    for name, values in zip(("mood_accuracy", "slots_f1"), by_fold.T, strict=True):
        assert finished.metrics[name] == pytest.approx(values.mean())
        assert [fold["metrics"][name] for fold in received["folds"]] == pytest.approx(values)
    assert by_fold.std(axis=0).min() > 0
    assert finished.metrics["mean_of_heads"] == pytest.approx(by_fold.mean())
    pooled = scores_of(lines)
    assert (received["pooled"]["mood_accuracy"], received["pooled"]["slots_f1"]) == pytest.approx(pooled)
    assert finished.outcome is not None
    low, high = finished.outcome["interval"]
    assert low < by_fold.mean() < high
    assert finished.outcome["folds"] == pytest.approx(by_fold.mean(axis=1))


def test_classes_keep_their_shares() -> None:
    random = np.random.default_rng(3)
    moods, topics = random.choice(3, 89, p=[0.6, 0.3, 0.1]), random.integers(0, 2, 89)
    table = {
        "text": [f"text {number}" for number in range(89)],
        "mood": [str(mood) for mood in moods],
        "slots": ["B-X O" if topic else "O O" for topic in topics],
    }
    folds = folds_of(pb.data.heads(table, tiny_heads.KINDS), 4)
    parts: list[Any] = [fold.final.dev.parts["mood"] for fold in folds if fold.final]  # type: ignore[attr-defined]
    counts = np.array([np.bincount(part.classes, minlength=3) for part in parts])
    expected = [np.bincount(moods[test]) for _, test in StratifiedKFold(4).split(moods, moods)]
    # Each class has as many examples as in another fold, or one more.
    assert (np.sort(counts, axis=0) == np.sort(expected, axis=0)).all()
    assert sum(map(len, parts)) == 89


@pytest.mark.nightly
def test_interrupted_run_resumes_exactly(
    finished: CrossValidatedResult,
    start: Path,
    train_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command ends as the call in Python, although it was interrupted in the second fold."""
    from pocketbert.training.trainer import Trainer

    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 11:
            raise KeyboardInterrupt

    command = ["finetune", f"--model={start}", f"--train-file={train_file}", HEADS, *FLAGS, "--seeds=5"]
    command += ["--checkpoint-seconds=0", f"--output={tmp_path / 'run'}"]
    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    assert cli.main([*command, "--kfold=3"]) != 0
    assert (tmp_path / "run/folds/fold-1.safetensors").exists()
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    capsys.readouterr()
    assert cli.main([*command, "--kfold=4"]) == 2
    assert "other options: kfold=3, received 4" in capsys.readouterr().err
    assert cli.main([*command, "--kfold=3"]) == 0
    folder = Path(finished.model_directory).parent
    for name in ("model/model.safetensors", "model/config.json", "predictions.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes(), name
    assert "kfold = 3\n" in (tmp_path / "run/run.toml").read_text("utf-8")


@pytest.mark.nightly
def test_texts_with_labels_for_some_heads(start: Path, tmp_path: Path) -> None:
    table = tiny_heads.table(83, 6)
    table["mood"] = [mood if row % 3 else "" for row, mood in enumerate(table["mood"])]
    table["slots"] = [tags if row % 3 != 1 else "" for row, tags in enumerate(table["slots"])]
    data = pb.data.heads(table, tiny_heads.KINDS)
    result = finetune(start, data, tmp_path / "run", config=CONFIG, kfold=2)
    assert isinstance(result, CrossValidatedResult)
    lines = predictions_of(result)
    assert [line["text"] for line in lines] == table["text"]
    assert [line["mood"].get("true_label", "") for line in lines] == table["mood"]
    assert [tags_of(line, "true_spans") if "true_spans" in line["slots"] else "" for line in lines] == table["slots"]
    # Each text has an answer of each head.
    assert all("label" in line["mood"] and "spans" in line["slots"] for line in lines)
    by_fold = np.array([scores_of([line for line in lines if line["fold"] == fold]) for fold in (1, 2)])
    assert result.metrics["mood_accuracy"] == pytest.approx(by_fold[:, 0].mean())
    assert result.metrics["slots_f1"] == pytest.approx(by_fold[:, 1].mean())
    labelled = [[sum(bool(table[name][row]) for row, line in enumerate(lines) if line["fold"] == fold)
                 for fold in (1, 2)] for name in ("mood", "slots")]  # fmt: skip
    assert all(abs(first - second) <= 1 for first, second in labelled)


@pytest.mark.nightly
def test_thresholds_of_a_fold_come_from_the_others(start: Path, tmp_path: Path) -> None:
    table = tiny_heads.table(90, 6)
    # A text without a mood in each fold.
    table["mood"] = ["" if row % 11 == 0 else mood for row, mood in enumerate(table["mood"])]
    data = dataclasses.replace(pb.data.heads(table, tiny_heads.KINDS), main_metric="mood_f1")
    run = dataclasses.replace(RUN, decision_thresholds=True)
    result = finetune(start, data, tmp_path / "run", config=CONFIG, run=run, kfold=3)
    assert isinstance(result, CrossValidatedResult)
    every = predictions_of(result)
    lines = [line for line in every if "true_label" in line["mood"]]
    gold, answered = (np.array([line["mood"][key] == "low" for line in lines]) for key in ("true_label", "label"))
    low = np.array([line["mood"]["probabilities"]["low"] for line in lines])
    of_fold = np.array([line["fold"] for line in lines])

    def best(rows: np.ndarray) -> float:
        return max(float(f1_score(gold[rows], low[rows] >= cut)) for cut in low[rows])

    cuts = []
    for fold in result.cross_validation["folds"]:
        cuts.append(fold["decisions"]["heads"]["mood"]["thresholds"]["low"])
        inside = of_fold == fold["fold"]
        assert f1_score(gold[~inside], low[~inside] > cuts[-1]) == pytest.approx(best(~inside))
        assert (answered[inside] == (low[inside] > cuts[-1])).all()
        assert fold["metrics"]["mood_f1"] == pytest.approx(f1_score(gold[inside], answered[inside]))
    assert len(set(cuts)) > 1 and len(lines) < len(every)
    pooled = result.cross_validation["pooled"]
    assert pooled["mood_f1"] == pytest.approx(f1_score(gold, answered))
    assert pooled["mean_of_heads"] == pytest.approx(np.mean(scores_of(every)))
    # All predictions together choose what the model gets.
    assert result.decisions is not None and result.model.task is not None
    thresholds = result.decisions["heads"]["mood"]["thresholds"]
    assert f1_score(gold, low > thresholds["low"]) == pytest.approx(best(np.ones(len(gold), bool)))
    mood, slots = result.model.task.tasks or ()
    assert mood.decisions is not None and mood.decisions.thresholds == pytest.approx([*thresholds.values()])
    assert slots.decisions is None
    page = (tmp_path / "run/report.html").read_text("utf-8")
    assert "Decision thresholds of mood" in page and "Chosen out of fold" in page


def test_what_folds_cannot_score_is_refused(start: Path, tmp_path: Path) -> None:
    table = tiny_heads.table(31, 6)
    rare = {**table, "mood": ["rare" if row in (3, 8) else "common" for row in range(31)]}
    with pytest.raises(UserError, match="3 folds need at least 3 different texts of each label; received 2 of 'rare'"):
        finetune(start, pb.data.heads(rare, tiny_heads.KINDS), tmp_path / "run", config=CONFIG, kfold=3)
    few = {**table, "slots": [tags if row < 4 else "" for row, tags in enumerate(table["slots"])]}
    with pytest.raises(UserError, match="5 folds need texts with labels for each head .* too few for slots"):
        finetune(start, pb.data.heads(few, tiny_heads.KINDS), tmp_path / "run", config=CONFIG, kfold=5)
    assert not (tmp_path / "run").exists()
