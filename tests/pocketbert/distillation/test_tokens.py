"""Distillation of token classification: eq. 10 over tokens in NumPy, and runs of the methods."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
from scipy.special import log_softmax, softmax

import pocketbert as pb
from pocketbert import cli
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.cache_teacher import cache_stages
from pocketbert.distillation.planning import plan_distillation
from pocketbert.distillation.predictions import logits_by_name, prediction_loss
from pocketbert.distillation.run import distill
from pocketbert.distillation.teacher import CachedTeacher
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune

# Learned from the words alone, in few steps.
TYPES = {"MOOD": tiny_finetuning.GOOD, "FLAW": tiny_finetuning.BAD}
METHODS = tiny_distillation.tag_methods(4)
TINYBERT = METHODS["tinybert"]


def write(path: Path, count: int, seed: int) -> Path:
    random, sentences = np.random.default_rng(seed), []
    for _ in range(count):
        lines = []
        for _ in range(random.integers(2, 9)):
            name = str(random.choice([*TYPES, "O"]))
            word = random.choice(TYPES.get(name, tiny_finetuning.NEUTRAL))
            lines.append(f"{word}\t{name if name == 'O' else f'B-{name}'}\n")
        sentences.append("".join(lines))
    path.write_text("\n".join(sentences), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TaskData:
    folder = tmp_path_factory.mktemp("data")
    return pb.data.tagged(write(folder / "train.conll", 150, 1), dev=write(folder / "dev.conll", 31, 2))


@pytest.fixture(scope="module")
def teacher(data: TaskData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    bare = tiny_finetuning.write_model(folder / "bare", tiny_distillation.TEACHER)
    options = FinetuneConfig(learning_rate=6e-3, epochs=6, batch_size=16, max_length=19)
    result = finetune(bare, data, folder / "run", config=options)
    assert result.metrics["f1"] > 0.95
    return Path(result.model_directory)


def test_equation_10_is_the_mean_over_tokens() -> None:
    random = np.random.default_rng(0)
    mask = (np.arange(7) < np.array([7, 4, 6])[:, np.newaxis]).astype(np.int32)
    teacher_logits, student_logits = random.normal(0, 3, [2, 3, 7, 5]).astype(np.float32)
    loss = prediction_loss(
        logits_by_name([tf.constant(teacher_logits)]),
        logits_by_name([tf.constant(student_logits)]),
        tf.constant(mask),
        temperature=2.0,
    )
    expected = (
        -(softmax(teacher_logits / 2, axis=-1) * log_softmax(student_logits / 2, axis=-1)).sum(-1)[mask == 1].mean()
    )
    # float32 sums of 17 terms.
    assert float(loss) == pytest.approx(expected, rel=1e-5)


# Students learn tags from a file in test_heads_soft_labels.py.
@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_student_learns_the_tags(method: Any, data: TaskData, teacher: Path, tmp_path: Path) -> None:
    result = distill(tiny_distillation.STUDENT, data, tmp_path / "run", teacher=teacher, method=method)
    assert result.metrics["f1"] > 0.9 and result.teacher_metrics["f1"] > 0.95
    student = pb.from_pretrained(result.model_directory)
    assert student.task == TaskConfig(kind="token_classification", labels=data.task.labels)
    (answer,) = student.predict(["the superb film"])
    assert [(span["text"], span["label"]) for span in answer["spans"]] == [("superb", "MOOD")]


@pytest.mark.nightly
def test_cached_teacher_gives_the_same_losses(data: TaskData, teacher: Path, tmp_path: Path) -> None:
    plan = plan_distillation(tiny_distillation.STUDENT, data, teacher=teacher, method=TINYBERT, run=RunConfig())
    cache_stages(plan, tmp_path / "cache", dtype="float32")
    losses = []
    for name, source in (("live", teacher), ("cached", CachedTeacher(tmp_path / "cache", teacher))):
        distill(tiny_distillation.STUDENT, data, tmp_path / name, teacher=source, method=TINYBERT)
        rows = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        losses.append([row["loss"] for row in rows if "loss" in row])
    # A float32 step rounds differently, and some 40 steps amplify it.
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


def test_method_without_token_losses_refuses(
    data: TaskData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tiny_finetuning.write_model(tmp_path / "bare", tiny_distillation.TEACHER)
    teacher = tmp_path / "teacher"
    pb.from_pretrained(bare, task=data.task).save_pretrained(teacher)
    flags = [f"--teacher={teacher}", f"--student={teacher}", f"--train-file={data.train.source}"]
    assert cli.main(["distill", "--method=embedding", *flags, f"--output={tmp_path / 'run'}"]) == 2
    assert "received token_classification" in capsys.readouterr().err.strip().splitlines()[-1]
