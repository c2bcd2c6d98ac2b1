"""The metric that selects the best checkpoint, and the dev loss that breaks ties."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_distillation
import tiny_finetuning
from sklearn.metrics import f1_score, log_loss, roc_auc_score

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import compute
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.dev_loss import LossEvaluator
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.trials.jobs import read_result

pytestmark = pytest.mark.usefixtures("eager_module")
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-2, epochs=1, batch_size=16, max_length=23)


def data(**changes: Any) -> TaskData:
    fields: dict[str, Any] = {
        "task": tiny_finetuning.TASK,
        "train": tiny_finetuning.examples(50, seed=0),
        "dev": tiny_finetuning.examples(21, seed=1),
    }
    return TaskData(**{**fields, **changes})


def rare(count: int, positives: int, seed: int) -> Examples:
    """Sentences of which `positives` have class 1."""
    plain = tiny_finetuning.examples(8 * count, seed)
    assert plain.labels is not None
    chosen = [*np.flatnonzero(plain.labels == 0)[: count - positives], *np.flatnonzero(plain.labels == 1)[:positives]]
    return plain.select(np.sort(chosen))


def dev_lines(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if line["split"] == "dev"]


@pytest.mark.parametrize("classes", [2, 5])
def test_macro_f1_is_scikit_learns(classes: int) -> None:
    random = np.random.default_rng(3)
    labels, predictions = random.integers(0, classes, [2, 41]).astype(np.int32)
    expected = np.mean([f1_score(labels == index, predictions == index) for index in range(classes)])
    assert compute(["macro_f1"], labels, predictions)["macro_f1"] == pytest.approx(expected)


@pytest.mark.one_of_each("f1")
@pytest.mark.parametrize("metric", ["f1", "macro_f1"])
def test_rare_class_selects_by_f1(metric: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev = rare(50, positives=3, seed=1)
    assert dev.labels is not None
    # First never the rare class; then all three of it and four too many, so accuracy falls and F1 rises.
    answers = [np.zeros(50, np.int32), np.where(np.cumsum(dev.labels == 0) <= 4, 1, dev.labels).astype(np.int32)]
    results = {}
    for name in ("accuracy", metric):
        answer_iterator = iter([*answers, *answers])
        monkeypatch.setattr(
            TextEvaluator, "_predictions", lambda *_, answer_iterator=answer_iterator: next(answer_iterator)
        )
        # The answers come without logits, which the page of wrong texts reads.
        run = RunConfig(evaluation_steps=2, show_texts=False)
        result = finetune(start, data(dev=dev, main_metric=name), tmp_path / name, config=CONFIG, run=run)
        results[name] = result.best_step
        assert result.main_metric == name and len(dev_lines(tmp_path / name)) == 2
        assert json.loads((tmp_path / name / "run.json").read_text("utf-8"))["main_metric"] == name
    assert results == {"accuracy": 2, metric: 4}
    assert result.metrics["f1"] == pytest.approx(f1_score(dev.labels, answers[1]))
    assert result.metrics["f1"] > 0.5


def test_equal_metrics_keep_lower_loss(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.7, 0.5, 0.5, 0.6])
    monkeypatch.setattr(TextEvaluator, "metrics", lambda *_: {"accuracy": 0.5})
    monkeypatch.setattr(LossEvaluator, "loss", property(lambda _: next(losses)))
    result = finetune(start, data(), tmp_path / "run", config=CONFIG, run=RunConfig(evaluation_steps=1))
    assert result.best_step == 2
    assert [line["loss"] for line in dev_lines(tmp_path / "run")] == [0.7, 0.5, 0.5, 0.6]


def test_lower_loss_restarts_patience(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([0.7, 0.6, 0.5, 0.5])
    monkeypatch.setattr(TextEvaluator, "metrics", lambda *_: {"accuracy": 0.5})
    monkeypatch.setattr(LossEvaluator, "loss", property(lambda _: next(losses)))
    run = RunConfig(evaluation_steps=1, patience=1)
    result = finetune(start, data(), tmp_path / "run", config=dataclasses.replace(CONFIG, epochs=2), run=run)
    # Equal metrics with a lower loss are better ones; the fourth evaluation has neither.
    assert (result.best_step, result.steps) == (3, 4)


def test_logged_loss_is_the_cross_entropy(start: Path, tmp_path: Path) -> None:
    examples = data(task=TaskConfig(kind="classification", name="mood", labels=("low", "high")))
    finetune(start, examples, tmp_path / "run", config=CONFIG)
    model = pb.from_pretrained(tmp_path / "run" / "model")
    logits = model(model.tokenizer(examples.dev.texts, max_length=23))["logits"].numpy().astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    # Float32 sums of 21 values of order 1.
    assert dev_lines(tmp_path / "run")[-1]["loss"] == pytest.approx(
        log_loss(examples.dev.labels, probabilities), rel=1e-5
    )


@pytest.mark.parametrize(
    ("task", "main", "message"),
    [
        (("a", "b", "c"), "f1", "a metric for classification with 3 labels must be one of accuracy, macro_f1, "
         "matthews, auroc, f1:LABEL; received f1"),
        (("a", "b"), "macro-f1", "f1, macro_f1, matthews, auroc, f1:LABEL; received macro-f1 (did you mean 'macro_f1'"),
        (("a", "b"), "spearman", "received spearman"),
    ],
)  # fmt: skip
def test_unsuitable_metric_is_refused(
    task: tuple[str, ...], main: str, message: str, start: Path, tmp_path: Path
) -> None:
    task_data = data(task=TaskConfig(kind="classification", labels=task), main_metric=main)
    with pytest.raises(UserError) as error:
        finetune(start, task_data, tmp_path / "run", config=CONFIG)
    assert message in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize("metric", ["auroc", "f1:high"])
def test_ranking_and_one_class_select_as_scikit_learn_measures(metric: str, start: Path, tmp_path: Path) -> None:
    dev = rare(50, positives=9, seed=1)
    assert dev.labels is not None
    result = finetune(start, data(dev=dev, main_metric=metric), tmp_path / "run", config=CONFIG)
    answers = result.model.predict(dev.texts)
    if metric == "auroc":
        expected = roc_auc_score(dev.labels, [answer["probabilities"]["high"] for answer in answers])
    else:
        expected = f1_score(dev.labels, [answer["label"] == "high" for answer in answers], zero_division=0)
    # predict rounds to 6 decimals, which may tie two examples.
    assert result.metrics[metric] == pytest.approx(expected, abs=0.01)
    assert result.main_metric == metric and result.outcome is not None
    assert max(line[metric] for line in dev_lines(tmp_path / "run")) == result.metrics[metric]


@pytest.mark.nightly
def test_metric_flag_selects_everywhere(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    train = tiny_finetuning.write_table(tmp_path / "train.csv", tiny_finetuning.examples(40, seed=0))
    table = [f"--train-file={train}", f"--dev-file={train}", "--labels=low,high"]
    commands = {
        "finetune": ["finetune", f"--model={start}", "--epochs=1", "--max-length=16"],
        "distill": ["distill", "--method=tinybert", f"--teacher={teacher}", "--teacher-layers=1", "--max-length=16",
                    "--intermediate-epochs=1", "--prediction-epochs=1"],
    }  # fmt: skip
    for name, command in commands.items():
        assert cli.main([*command, *table, "--metric=macro_f1", f"--output={tmp_path / name}"]) == 0
        result = read_result(tmp_path / name / "result.json")
        assert result["main_metric"] == "macro_f1" and set(result["metrics"]) == {"accuracy", "f1", "macro_f1"}
        capsys.readouterr()
        assert cli.main([*command, *table, "--metric=micro_f1", f"--output={tmp_path / 'none'}"]) == 2
        assert (
            "must be one of accuracy, f1, macro_f1, matthews, auroc, f1:LABEL; received micro_f1"
            in capsys.readouterr().err
        )
    text = ["--text=" + str(tiny_distillation.write_text(tmp_path / "text.txt")), "--metric=f1"]
    assert cli.main([*commands["distill"][:4], *text, f"--output={tmp_path / 'none'}"]) == 2
    assert "--metric needs a task; received f1 without one" in capsys.readouterr().err
