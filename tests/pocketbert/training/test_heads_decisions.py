"""Thresholds of several heads. Oracles: scikit-learn's metrics, and all thresholds one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_heads
from sklearn.metrics import f1_score

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.errors import UserError
from pocketbert.tasks.decisions import DecisionChoice
from pocketbert.tasks.registry import supervised_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD

pytestmark = pytest.mark.usefixtures("eager_module", "few_resamples")
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=3e-3, epochs=2, batch_size=16, max_length=23)
THRESHOLDS = RunConfig(seed=5, decision_thresholds=True, checkpoint_seconds=0.0)
REJECT = RunConfig(seed=5, reject=0.8, checkpoint_seconds=0.0)
KINDS = {**tiny_heads.KINDS, "topics": "multi_label"}
TOPICS = {"x": "film", "y": "plot"}


def table(count: int, seed: int) -> dict[str, list[Any]]:
    """Sentences of which a sixth are low; the topics are words in them."""
    columns = tiny_heads.table(4 * count, seed)
    places: dict[str, list[int]] = {"low": [], "high": []}
    for row, mood in enumerate(columns["mood"]):
        places[mood].append(row)
    chosen = sorted([*places["low"][: count // 6], *places["high"][: count - count // 6]])
    rows = {name: [values[row] for row in chosen] for name, values in columns.items()}
    topics = [[name for name, word in TOPICS.items() if word in text.split()] for text in rows["text"]]
    return {**rows, "topics": topics}


def data(main_metric: str = "", kinds: dict[str, str] = KINDS) -> pb.TaskData:
    return replace(pb.data.heads(table(90, 1), kinds, dev=table(47, 2)), main_metric=main_metric)


def stored(folder: Path) -> dict[str, Any]:
    (task,) = json.loads((folder / "model/config.json").read_text("utf-8"))["pocketbert"]["tasks"]
    return {part["name"]: part["decisions"] for part in task["tasks"]}


def test_each_head_has_its_best_thresholds(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = finetune(start, data("mood_f1"), tmp_path / "run", config=CONFIG, run=THRESHOLDS)
    line = "decision_thresholds=True has no meaning for the heads slots (token_classification); the others have"
    assert capsys.readouterr().err.count(line) == 1
    columns, chosen = table(47, 2), result.decisions["heads"]  # type: ignore[index]
    answers = pb.from_pretrained(tmp_path / "run/model").predict(columns["text"])
    gold, low = np.array(columns["mood"]), np.array([answer["mood"]["probabilities"]["low"] for answer in answers])
    # The metric is that of the answers, and no other threshold has a higher one.
    labels = [answer["mood"]["label"] for answer in answers]
    assert result.metrics["mood_f1"] == pytest.approx(f1_score(gold, labels, pos_label="low"))
    best = max(f1_score(gold == "low", low >= cut, zero_division=0) for cut in low)
    assert result.metrics["mood_f1"] == pytest.approx(best)
    assert chosen["mood"]["thresholds"]["low"] < 0.5
    # Topics have the thresholds of their own main metric.
    matrices = [
        [[name in (row if isinstance(row, list) else row["topics"]["labels"]) for name in TOPICS] for row in rows]
        for rows in (columns["topics"], answers)
    ]
    assert result.metrics["topics_micro_f1"] == pytest.approx(f1_score(*matrices, average="micro"))
    probabilities = np.array([[answer["topics"]["probabilities"][name] for name in TOPICS] for answer in answers])
    cuts = [(first, second) for first in probabilities[:, 0] for second in probabilities[::3, 1]]
    topics = np.array(matrices[0])

    def micro_f1(answered: np.ndarray) -> float:
        """As scikit-learn's, which takes a hundred times as long."""
        return float(2 * (topics & answered).sum() / (topics.sum() + answered.sum()))

    others = [micro_f1(probabilities >= cut) for cut in cuts]
    assert result.metrics["topics_micro_f1"] >= max(others) - 1e-9
    kept = stored(tmp_path / "run")
    assert kept["slots"] is None and chosen.keys() == {"mood", "topics"}
    for name, by_label in chosen.items():
        # Probabilities of several heads are not calibrated.
        assert kept[name] == {"thresholds": [*by_label["thresholds"].values()], "reject_below": None}
    page = (tmp_path / "run/report.html").read_text("utf-8")
    assert "Decision thresholds of mood" in page and f"{chosen['mood']['thresholds']['low']:.4f}" in page
    mean = (result.metrics["mood_accuracy"] + result.metrics["slots_f1"] + result.metrics["topics_micro_f1"]) / 3
    assert result.metrics["mean_of_heads"] == pytest.approx(mean)


@pytest.mark.nightly
def test_rejection_keeps_right_answers(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = finetune(start, data(), tmp_path / "run", config=CONFIG, run=REJECT)
    assert "reject=0.8 has no meaning for the heads slots (token_class" in (error := capsys.readouterr().err)
    assert "topics (multi_label); the others have thresholds" in error
    columns = table(47, 2)
    answers = [answer["mood"] for answer in pb.from_pretrained(tmp_path / "run/model").predict(columns["text"])]
    best = np.array([max(answer["probabilities"], key=answer["probabilities"].get) for answer in answers])
    answered = np.array([answer["label"] is not None for answer in answers])
    assert 0 < answered.sum() < len(answered)
    assert all(answer["label"] in (None, label) for answer, label in zip(answers, best, strict=True))
    # At least 80 % of the right answers stay, and one fewer would not be enough.
    right = best == np.array(columns["mood"])
    assert right[answered].sum() / right.sum() >= 0.8 > (right[answered].sum() - 1) / right.sum()
    # Metrics count the most probable class.
    assert result.metrics["mood_accuracy"] == pytest.approx(right.mean())
    ((name, chosen),) = result.decisions["heads"].items()  # type: ignore[index]
    assert name == "mood" and chosen["coverage"][0]["coverage"] == answered.mean()
    assert stored(tmp_path / "run")["mood"] == {"thresholds": None, "reject_below": chosen["reject_below"]}
    assert "Coverage and accuracy of mood" in (tmp_path / "run/report.html").read_text("utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize("run", [THRESHOLDS, REJECT], ids=["cuts", "reject"])
def test_resumed_run_is_the_same(run: RunConfig, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert.training.trainer import Trainer

    examples, run = data(), replace(run, evaluation_steps=3)
    whole = finetune(start, examples, tmp_path / "whole", config=CONFIG, run=run)
    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(start, examples, tmp_path / "run", config=CONFIG, run=run)
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    with pytest.raises(UserError, match="reject|decision_thresholds"):
        finetune(
            start, examples, tmp_path / "run", config=CONFIG, run=replace(run, decision_thresholds=False, reject=0.5)
        )
    resumed = finetune(start, examples, tmp_path / "run", config=CONFIG, run=run)
    assert (resumed.metrics, resumed.decisions) == (whole.metrics, whole.decisions)
    for name in ("model/model.safetensors", "model/config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.nightly
def test_thresholds_do_not_continue(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finetune(start, data(), tmp_path / "first", config=CONFIG, run=replace(THRESHOLDS, max_steps=2))
    capsys.readouterr()
    finetune(tmp_path / "first/model", data(), tmp_path / "second", config=CONFIG, run=RunConfig(max_steps=2))
    assert "the thresholds of its answers do not continue" in capsys.readouterr().err
    assert set(stored(tmp_path / "second").values()) == {None}


def test_heads_without_thresholds_are_refused(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three = TaskConfig(kind="classification", name="mood", labels=("a", "b", "c"))
    stars = TaskConfig(kind="regression", name="stars")
    task = supervised_task(TaskConfig(kind="several", tasks=(three, stars)))
    assert task.choice_problems(DecisionChoice(metric="mean_of_heads")) == [
        "head mood: decision_thresholds is for two classes or several labels; received 3 classes; leave it out",
        "head stars: decision_thresholds is for one of several classes or several labels; received it for regression; "
        "leave it out",
    ]
    assert task.choice_problems(DecisionChoice(keep=0.9)) == []
    rows = [{"text": f"a {number}", "stars": number, "slots": "O O"} for number in range(9)] + [
        {"text": "a film", "stars": 1, "slots": "O B-X"}
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    flags = ["--heads=stars:regression,slots:token_classification", "--reject=0.9", "--max-length=21"]
    flags.append(f"--output={tmp_path / 'run'}")
    assert cli.main(["finetune", f"--model={start}", f"--train-file={path}", *flags]) == 2
    assert "head stars: reject is for one of several classes" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
