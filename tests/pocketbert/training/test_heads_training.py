"""Fine-tuning of several heads, from a table to predictions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tiny_finetuning
import tiny_heads

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task
from pocketbert.training.config import FinetuneConfig, FinetuneResult, RunConfig
from pocketbert.training.finetune import finetune

CONFIG = FinetuneConfig(learning_rate=6e-3, epochs=5, batch_size=16, max_length=21)
# A run whose first step can be compared: a head that continues, and no clipping, whose norm has other terms.
STEP = FinetuneConfig(learning_rate=1e-3, epochs=1, batch_size=16, max_length=21, clip_norm=0.0, calibrate=False)


@pytest.fixture(scope="module")
def trained(start: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    return finetune(start, tiny_heads.data(150), tmp_path_factory.mktemp("run") / "run", config=CONFIG)


def test_both_heads_learn(trained: FinetuneResult) -> None:
    assert trained.main_metric == "mean_of_heads"
    assert trained.metrics["mood_accuracy"] > 0.9 and trained.metrics["slots_f1"] > 0.9
    first, second = trained.model.predict(["the superb film", "a dull plot"])
    assert first["mood"]["label"] == "high" and second["mood"]["label"] == "low"
    assert [(span["text"], span["label"]) for span in first["slots"]["spans"]] == [("superb", "PRAISE")]
    assert [(span["text"], span["label"]) for span in second["slots"]["spans"]] == [("dull", "BLAME")]


def test_heads_start_as_they_would_alone(trained: FinetuneResult) -> None:
    folder = Path(trained.model_directory).parent
    started = json.loads((folder / "start.json").read_text("utf-8"))
    poolings = dict(part.split("=") for part in started["pooling"].split(","))
    assert poolings.keys() == tiny_heads.KINDS.keys() and poolings["slots"] == "first"
    mood = (trained.model.task or TaskConfig(kind="regression")).tasks[0]  # type: ignore[index]
    assert mood.pooling == (None if poolings["mood"] == "first" else "mean")
    names = [method["name"] for method in started["methods"]]
    assert any("(mood)" in name and "(slots)" in name for name in names)
    assert "a linear model on frozen features" in names


@pytest.mark.usefixtures("eager")
def test_heads_continue(trained: FinetuneResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = dataclasses.replace(CONFIG, epochs=1, learning_rate=1e-6)
    run = RunConfig(max_steps=1)
    more = finetune(trained.model_directory, tiny_heads.data(40), tmp_path / "run", config=config, run=run)
    assert more.metrics["mean_of_heads"] == pytest.approx(trained.metrics["mean_of_heads"], abs=0.05)
    assert "continuing with the model's head for several (mood (classification: high, low)" in capsys.readouterr().err


@pytest.mark.one_of_each("slots-balanced-slots=balanced")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("name", "weights_alone", "weights_in_both"), [("mood", "none", "none"), ("slots", "balanced", "slots=balanced")]
)
def test_head_alone_takes_the_first_step_of_one_task(
    name: str, weights_alone: str, weights_in_both: str, start: Path, tmp_path: Path
) -> None:
    other = next(head for head in tiny_heads.KINDS if head != name)
    data = tiny_heads.data(16, weights={other: 0.0})
    # No dropout: the heads draw from other states.
    encoder = tiny_finetuning.CONFIG.replace(hidden_dropout=0.0, attention_dropout=0.0, pooler="none")
    tasks = [dataclasses.replace(part, dropout=0.0) for part in data.task.tasks or ()]
    both = dataclasses.replace(data.task, tasks=tuple(tasks))
    part = next(task for task in tasks if task.name == name)
    tokenizer = pb.from_pretrained(start).tokenizer
    random, weights = np.random.default_rng(3), {}
    model = pb.from_preset(encoder, [both], tokenizer, seed=3)
    for path, variable in model.weights_by_path().items():
        variable.assign(random.normal(0, 0.1, variable.shape))
        weights[path] = variable.numpy()
    model.save_pretrained(tmp_path / "both")
    alone = pb.from_preset(encoder, [dataclasses.replace(part, weight=None)], tokenizer)
    for path, variable in alone.weights_by_path().items():
        variable.assign(weights[path.replace(f"heads.{part.kind}.", f"heads.several.parts.{name}.")])
    alone.save_pretrained(tmp_path / "alone")
    one = TaskData(
        task=dataclasses.replace(part, weight=None),
        train=data.train.parts[name],  # type: ignore[attr-defined]
        dev=data.dev.parts[name],  # type: ignore[attr-defined]
    )
    config = dataclasses.replace(STEP, class_weights=weights_in_both)
    finetune(tmp_path / "both", dataclasses.replace(data, task=both), tmp_path / "run", config=config)
    finetune(tmp_path / "alone", one, tmp_path / "one", config=dataclasses.replace(STEP, class_weights=weights_alone))
    stepped, expected = (read_directory(tmp_path / run / "model").tensors for run in ("run", "one"))
    for path, values in expected.items():
        received = stepped[path.replace(f"heads.{part.kind}.", f"heads.several.parts.{name}.")]
        # Adam divides a gradient by its size, so that rounding of one near 0 counts.
        np.testing.assert_allclose(received, values, atol=2e-6)
    moved = [path for path in expected if path in weights and not np.array_equal(expected[path], weights[path])]
    assert len(moved) > 10


@pytest.mark.nightly
def test_resumed_run_is_the_same(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert.training.trainer import Trainer

    config, run = dataclasses.replace(CONFIG, epochs=2), RunConfig(evaluation_steps=3, checkpoint_seconds=0)
    data = tiny_heads.data(60, weights={"slots": 2.0})
    whole = finetune(start, data, tmp_path / "whole", config=config, run=run)
    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(start, data, tmp_path / "run", config=config, run=run)
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    with pytest.raises(UserError, match="heads"):
        finetune(start, tiny_heads.data(60), tmp_path / "run", config=config, run=run)
    resumed = finetune(start, data, tmp_path / "run", config=config, run=run)
    assert resumed.metrics == whole.metrics
    for name in ("model/model.safetensors", "model/config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_one_head_has_no_weight(start: Path, tmp_path: Path) -> None:
    data = tiny_heads.data(20)
    part = dataclasses.replace((data.task.tasks or ())[0], weight=2.0)
    one = TaskData(task=part, train=data.train.parts["mood"], dev=data.dev.parts["mood"])  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="weight is for one of several heads; received 2"):
        finetune(start, one, tmp_path / "run", config=CONFIG)


def test_options_for_one_head_are_refused(start: Path, tmp_path: Path) -> None:
    data = tiny_heads.data(20)
    for config, run, reason in ((CONFIG, RunConfig(truncation="tail"), "a head has a tag for each word"),):
        with pytest.raises(UserError, match=reason):
            finetune(start, data, tmp_path / "run", config=config, run=run)


def test_heads_of_other_data_are_refused(trained: FinetuneResult) -> None:
    task = get_task(tiny_heads.task())
    other = pb.data.heads(
        {"text": ["a b", "c d"], "mood": ["x", "y"], "spans": ["O B-A", "O O"]},
        {"mood": "classification", "spans": "token_classification"},
        dev={"text": ["a b"], "mood": ["x"], "spans": ["O B-A"]},
    )
    with pytest.raises(UserError, match=r"must be those of the heads mood \(classification: high, low\), slots"):
        task.check_data(other.dev)  # type: ignore[attr-defined]


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_heads_from_the_command_line(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, count in (("train", 60), ("dev", 20)):
        columns = tiny_heads.table(count, count)
        rows = zip(columns["text"], columns["mood"], columns["slots"], strict=True)
        lines = [json.dumps({"text": text, "mood": mood, "tags": tags}) for text, mood, tags in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [f"--train-file={tmp_path / 'train.jsonl'}", f"--dev-file={tmp_path / 'dev.jsonl'}"]
    heads = ["--heads=mood:classification,slots:token_classification", "--label-column=slots=tags"]
    flags = ["--epochs=1", "--max-length=21", "--head-start=random", f"--output={tmp_path / 'run'}"]
    arguments = ["finetune", f"--model={start}", *files, *heads, "--head-weights=slots=2", *flags]
    assert cli.main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["main_metric"] == "mean_of_heads"
    run = json.loads((tmp_path / "run/run.json").read_text("utf-8"))
    assert [head["weight"] for head in run["heads"]] == [None, 2.0]
    for flag, reason in (
        ("--heads=mood", "HEAD:KIND for each head once"),
        ("--head-weights=slots=x", "HEAD=NUMBER for each head once"),
        ("--labels=a,b", "--heads reads a table with a column for each head; received it with --labels"),
        ("--pair-column=b", "several heads read single texts"),
    ):
        assert cli.main([*arguments, f"--output={tmp_path / 'other'}", flag]) == 2
        assert reason in capsys.readouterr().err
