"""`pocketbert compress --soft-label-columns`: candidates that learn the probabilities of any teacher."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_compression
import tiny_finetuning

import pocketbert as pb
from pocketbert.checkpoints.directory import describe_directory, read_directory
from pocketbert.cli import main
from pocketbert_bench.compression import rungs
from pocketbert_bench.compression.methods import (
    Training,
    TrialData,
    TrialShape,
    distillation,
    train_trial,
    trainings,
    trial_point,
)
from pocketbert_bench.compression.sources import Sources, sources_of

SOFT = ("--soft-label-columns=p_low,p_high", "--labels=low,high")
LIMITS = ("--max-latency-ms=4", "--kfold=2")


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    rows = [*rows]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def softened(texts: Iterable[str], **columns: list[str]) -> list[dict[str, Any]]:
    """Rows with probabilities of 0.7 to 0.95 for the label of each text."""
    random, rows = np.random.default_rng(5), []
    for index, text in enumerate(texts):
        high = float(random.uniform(0.7, 0.95))
        high = high if any(word in tiny_finetuning.GOOD for word in text.split()) else 1 - high
        rows.append({"text": text, "p_low": 1 - high, "p_high": high, **{k: v[index] for k, v in columns.items()}})
    return rows


@pytest.fixture(scope="module")
def inputs(compression_inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher with random weights, and tables with probabilities, with and without a label column."""
    folder = tmp_path_factory.mktemp("soft")
    shutil.copytree(compression_inputs, folder, dirs_exist_ok=True)
    examples = tiny_finetuning.examples(150, seed=1)
    assert examples.labels is not None
    labels = [tiny_finetuning.TASK.labels[label] for label in examples.labels]
    write_rows(folder / "soft.csv", softened(examples.texts, label=labels))
    write_rows(folder / "likely.csv", softened(examples.texts))
    return folder


@pytest.fixture
def command(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    return tiny_compression.compress_command(inputs, tmp_path / "out", monkeypatch)


@pytest.mark.nightly
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    ("method", "folds"),
    [("predictions", True), ("tinybert", False), ("minilmv2", True)],
    ids=["predictions", "tinybert", "minilmv2"],
)
def test_row_is_repeated_by_hand(
    method: str,
    folds: bool,
    command: Callable[..., int],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # An epoch of four steps.
    monkeypatch.setattr(rungs, "_FACTORS", (1, 1, 1))
    tiny_compression.export_once(inputs / "exports", monkeypatch, any_data=True)
    limits = ("--max-latency-ms=4", "--kfold=2" if folds else f"--test-file={inputs / 'train.csv'}")
    assert command(*SOFT, *limits, "--dry-run", table="soft") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    structure = next(row["structure"] for row in rows if row["method"] == method)
    assert command(*SOFT, *limits, f"--like={structure},{method}", "--trials=1", table="soft") == 0
    note = f"stages that learn predictions learn the soft labels of {inputs / 'soft.csv'}"
    assert note in capfd.readouterr().err and note in (tmp_path / "out" / "report.html").read_text()
    (row,) = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert (row["method"], row["difference"]) == (method, "")
    distil = next(line for line in row["commands"] if line.startswith("pocketbert distill"))
    # MiniLMv2 learns relations, then labels.
    assert ("--soft-label-columns=probabilities" in distil) == (method != "minilmv2")
    assert (f"--teacher={inputs / 'teacher'}" in distil) == (method != "predictions")
    for line in row["commands"]:
        assert main(shlex.split(line)[1:]) == 0
    model = next(part for part in shlex.split(row["commands"][-1]) if part.startswith("--model="))
    by_hand, trained = (
        read_directory(path).tensors for path in (Path(model.removeprefix("--model=")), tmp_path / "out" / "model")
    )
    assert by_hand.keys() == trained.keys()
    assert all(np.array_equal(by_hand[name], trained[name]) for name in trained)
    # The run resumes with its probabilities, and no others.
    like = f"--like={structure},{method}"
    assert command(*SOFT, *limits, like, "--trials=1", table="soft") == 0
    capfd.readouterr()
    assert command("--labels=low,high", *limits, like, "--trials=1", table="soft") == 2
    assert "train_sha256" in capfd.readouterr().err


def test_soft_labels_replace_the_logits_of_the_teacher(inputs: Path) -> None:
    described = describe_directory(inputs / "teacher")
    data = pb.data.table(inputs / "soft.csv", label_names=["low", "high"], soft_labels=("p_low", "p_high"))
    student = described.config.replace(num_layers=1)
    names = {training.method for training in trainings(data, described, student, text=False)}
    assert names == {"finetune", "predictions", "tinybert", "minilmv2", "hsk", "efficientbert"}
    shape = TrialShape(
        teacher=described.config, student=student, kind="classification", examples=9, max_length=16, epochs=1
    )
    both = Sources(soft_labels=True, teacher=True)
    expected = {
        "predictions": Sources(soft_labels=True, teacher=False),
        "tinybert": both,
        "minilmv2": Sources(soft_labels=False, teacher=True),
        "hsk": both,
        "efficientbert": both,
    }
    for name, sources in expected.items():
        assert sources_of(distillation(name, shape, 1e-4), data, described, student) == sources


@pytest.mark.usefixtures("eager")
def test_trial_learns_the_soft_labels_of_words(inputs: Path, tmp_path: Path) -> None:
    tags, random = ("O", "B-MOOD", "I-MOOD"), np.random.default_rng(7)
    lines = []
    for text in tiny_finetuning.examples(40, seed=3).texts:
        likely = [random.dirichlet([1, 2, 3]).tolist() for _ in text.split()]
        lines.append({"text": text, "spans": [], "probabilities": [dict(zip(tags, p, strict=True)) for p in likely]})
    path = tmp_path / "words.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    task, tokenizer = (
        pb.TaskConfig(kind="token_classification", labels=tags),
        pb.from_pretrained(inputs / "teacher").tokenizer,
    )
    for name, layers in (("teacher", 2), ("student", 1)):
        config = tiny_compression.TEACHER.replace(num_layers=layers, pooler="none")
        pb.from_preset(config, task, tokenizer, seed=layers).save_pretrained(tmp_path / name)
    trained = {}
    for name, columns in (("hard", ()), ("soft", ("probabilities",))):
        data = pb.data.tagged(path, dev=path, label_names=["MOOD"], soft_labels=columns)
        shared = TrialData(data=data, teacher=str(tmp_path / "teacher"), max_length=24)
        point = trial_point(Training(method="predictions"), tmp_path / "student", 2)
        train_trial(shared, point, 0, tmp_path / name)
        # The shared data are not changed, and fine-tuning learns their labels.
        assert (shared.data.train.soft_labels is not None) == (name == "soft")  # type: ignore[attr-defined]
        train_trial(shared, trial_point(Training(), tmp_path / "student", 1), 0, tmp_path / f"tuned-{name}")
        trained[name] = read_directory(tmp_path / name / "model").tensors
        trained[f"tuned-{name}"] = read_directory(tmp_path / f"tuned-{name}" / "model").tensors

    def equal(one: str, other: str) -> bool:
        return all(np.array_equal(trained[one][part], trained[other][part]) for part in trained[one])

    assert not equal("hard", "soft") and equal("tuned-hard", "tuned-soft")


def test_choice_needs_labels(
    command: Callable[..., int], inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(*SOFT, *LIMITS, "--dry-run", table="likely") == 2
    message = "dev and final split choose and score, so they need labels beside soft labels"
    remedy = "add a label column, or pass --dev-file and --test-file with labels"
    error = capfd.readouterr().err
    assert message in error and remedy in error
    for name, seed in (("dev", 8), ("test", 9)):
        tiny_finetuning.write_table(tmp_path / f"{name}.csv", tiny_finetuning.examples(140, seed))
    dev = f"--dev-file={tmp_path / 'dev.csv'}"
    assert command(*SOFT, dev, "--max-latency-ms=4", "--dry-run", table="likely") == 2
    assert "pass --test-file with labels" in capfd.readouterr().err
    files = (dev, f"--test-file={tmp_path / 'test.csv'}")
    assert command(*SOFT, *files, "--max-latency-ms=4", "--dry-run", table="likely") == 0
    assert "fine-tuning learns the most likely ones" in capfd.readouterr().err


def test_unlabelled_texts_beside_soft_labels_are_refused(
    command: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more.txt").write_text("a text that no one has seen\n")
    assert command(*SOFT, *LIMITS, f"--unlabelled-file={tmp_path / 'more.txt'}", "--dry-run", table="soft") == 2
    assert "unlabelled texts have no soft labels; received" in capfd.readouterr().err
    assert main(["compress", "--task=sst2", "--data=glue", "--soft-label-columns=a,b", "--dry-run"]) == 2
    assert "--soft-label-columns needs --train-file; received it alone" in capfd.readouterr().err
