"""Fine-tuning of several heads on texts that have labels for some of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_finetuning
import tiny_heads

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.directory import read_directory
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune

CONFIG = FinetuneConfig(learning_rate=6e-3, epochs=5, batch_size=16, max_length=21)


def tables(count: int, seed: int, shared: int = 7) -> dict[str, list[dict[str, Any]]]:
    """A table of moods and one of tags, each of `count` texts; some texts are in both."""
    columns = tiny_heads.table(2 * count - shared, seed)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    parts = {"mood": rows[:count], "slots": rows[count - shared :]}
    return {name: [{"text": row["text"], name: row[name]} for row in part] for name, part in parts.items()}


def data(count: int = 90, **options: Any) -> TaskData:
    return pb.data.heads(tables(count, 1), tiny_heads.KINDS, dev=tables(19, 2), **options)


@pytest.mark.nightly
def test_each_head_learns_from_its_own_table(start: Path, tmp_path: Path) -> None:
    examples = data()
    result = finetune(start, examples, tmp_path / "run", config=CONFIG)
    assert result.metrics["mood_accuracy"] > 0.9 and result.metrics["slots_f1"] > 0.9
    (answer,) = result.model.predict(["the superb film"])
    assert answer["mood"]["label"] == "high"
    assert [(span["text"], span["label"]) for span in answer["slots"]["spans"]] == [("superb", "PRAISE")]
    assert len(examples.train) == 2 * 90 - 7 and len(examples.train.parts["mood"]) == 90  # type: ignore[attr-defined]


@pytest.mark.usefixtures("eager")
def test_batches_without_its_labels_leave_a_head(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = tiny_heads.table(19, 4)
    columns["slots"] = [tags if row > 15 else "" for row, tags in enumerate(columns["slots"])]
    examples = pb.data.heads(columns, tiny_heads.KINDS, dev=tiny_heads.table(9, 5))
    tokenizer = pb.from_pretrained(start).tokenizer
    model = pb.from_preset(tiny_finetuning.CONFIG.replace(pooler="none"), examples.task, tokenizer, seed=3)
    random = np.random.default_rng(6)
    for variable in model.weights_by_path().values():
        variable.assign(random.normal(0, 0.1, variable.shape))
    model.save_pretrained(tmp_path / "both")
    # Texts with moods alone, in each step of the epoch.
    batches = [np.arange(first, first + 5) for first in (0, 5, 10, 11)]
    monkeypatch.setattr("pocketbert.training.stage_batches.plan_batches", lambda *_, **__: batches)
    config = dataclasses.replace(CONFIG, epochs=1, batch_size=5, weight_decay=0.0, calibrate=False)
    finetune(tmp_path / "both", examples, tmp_path / "run", config=config)
    before, after = (read_directory(tmp_path / name).tensors for name in ("both", "run/model"))
    of_head = {path for path in before if ".parts.slots." in path}
    assert len(of_head) == 2
    for path in before:
        assert np.array_equal(before[path], after[path]) == (path in of_head), path


@pytest.mark.nightly
def test_resumed_run_is_the_same(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pocketbert.training.trainer import Trainer

    config, run = dataclasses.replace(CONFIG, epochs=2), RunConfig(evaluation_steps=3, checkpoint_seconds=0)
    examples = data(37)
    whole = finetune(start, examples, tmp_path / "whole", config=config, run=run)
    written, checkpoints = Trainer._write_checkpoint, iter(range(99))

    def interrupted(self: Trainer) -> None:
        written(self)
        if next(checkpoints) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_write_checkpoint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finetune(start, examples, tmp_path / "run", config=config, run=run)
    monkeypatch.setattr(Trainer, "_write_checkpoint", written)
    other = pb.data.heads(tables(37, 1, 3), tiny_heads.KINDS, dev=tables(19, 2))
    with pytest.raises(UserError, match="train_sha256"):
        finetune(start, other, tmp_path / "run", config=config, run=run)
    resumed = finetune(start, examples, tmp_path / "run", config=config, run=run)
    assert resumed.metrics == whole.metrics
    for name in ("model/model.safetensors", "model/config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.usefixtures("eager")
def test_dev_split_of_several_tables_is_drawn(start: Path, tmp_path: Path) -> None:
    examples = pb.data.heads(tables(40, 3), tiny_heads.KINDS)
    assert {name: len(part) for name, part in examples.dev.parts.items()}.keys() == tiny_heads.KINDS.keys()  # type: ignore[attr-defined]
    assert min(len(part) for part in examples.dev.parts.values()) >= 4  # type: ignore[attr-defined]
    result = finetune(start, examples, tmp_path / "run", config=dataclasses.replace(CONFIG, epochs=1))
    assert 0 <= result.metrics["mean_of_heads"] <= 1


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
def test_files_of_heads_from_the_command_line(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {}
    for split, count in (("train", 40), ("dev", 11)):
        for name, rows in tables(count, count).items():
            path = tmp_path / f"{split}-{name}.jsonl"
            renamed = [{"text": row["text"], "tags" if name == "slots" else name: row[name]} for row in rows]
            path.write_text("".join(json.dumps(row) + "\n" for row in renamed), encoding="utf-8")
            files[split, name] = path
    values = {
        split: ",".join(f"{name}={files[split, name]}" for name in tiny_heads.KINDS) for split in ("train", "dev")
    }
    heads = ["--heads=mood:classification,slots:token_classification", "--label-column=slots=tags"]
    flags = ["--epochs=1", "--max-length=21", "--head-start=random"]
    options = [f"--train-file={values['train']}", f"--dev-file={values['dev']}", *heads, *flags]
    arguments = ["finetune", f"--model={start}", *options]
    assert cli.main([*arguments, f"--output={tmp_path / 'run'}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["main_metric"] == "mean_of_heads"
    # The same from the run's own file, and from Python.
    toml = tmp_path / "run/run.toml"
    assert cli.main(["finetune", f"--config={toml}", f"--output={tmp_path / 'again'}"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["metrics"] == result["metrics"]
    paths = {split: {name: files[split, name] for name in tiny_heads.KINDS} for split in ("train", "dev")}
    read = pb.data.heads(paths["train"], tiny_heads.KINDS, dev=paths["dev"], labels={"slots": "tags"})
    recorded = json.loads((tmp_path / "run/run.json").read_text("utf-8"))
    assert recorded["train_sha256"] == read.train.identity and recorded["dev_sha256"] == read.dev.identity
    for value, reason in (
        (f"mood={files['train', 'mood']},slots={tmp_path / 'none.jsonl'}", "none.jsonl: there is no such file"),
        (f"mood={files['train', 'mood']},tags={files['train', 'slots']}", "tables must be for the heads mood, slots"),
    ):
        assert cli.main([*arguments, f"--output={tmp_path / 'other'}", f"--train-file={value}"]) == 2
        assert reason in capsys.readouterr().err
