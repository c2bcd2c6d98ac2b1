"""Distillation of sentence embeddings: losses against NumPy, nested dimensions, and a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import oracles.distillation as oracle
import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_tasks

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.losses import embedding_similarities
from pocketbert.distillation.method import DistillationSpec
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.errors import UserError
from pocketbert_runtime.embedding_config import EmbeddingConfig

RANDOM = np.random.default_rng(7)
THEIRS, OURS = RANDOM.normal(size=(5, 11)).astype(np.float32), RANDOM.normal(size=(5, 8)).astype(np.float32)
MASK = tf.ones([5, 3], tf.int32)


def test_single_text_has_no_similarities() -> None:
    assert float(embedding_similarities(THEIRS[:1], OURS[:1], MASK[:1], 0.05)) == 0.0


def test_nested_dimensions_are_averaged() -> None:
    task = TaskConfig(kind="embedding")
    method = EmbeddingDistillation(dimensions=(3, 5), temperature=0.4, max_length=9)
    config = tiny_finetuning.CONFIG
    (stage,) = method.stages(DistillationSpec(teacher=config, student=config, task=task, teacher_task=task))
    student = {"logits": [tf.constant(OURS)]}
    batch = {"input_mask": MASK}
    losses = method.loss(stage, {"vectors": tf.constant(THEIRS[:, :8])}, student, {}, batch)
    expected = [oracle.embedding_similarities(THEIRS[:, :8], OURS[:, :count], MASK.numpy(), 0.4) for count in (8, 3, 5)]
    assert float(losses["similarities"]) == pytest.approx(float(np.mean(expected)), rel=2e-5)


def test_terms_have_weights() -> None:
    config, task = tiny_finetuning.CONFIG, TaskConfig(kind="embedding")
    method = EmbeddingDistillation(vector_weight=2.5, similarity_weight=0.5, max_length=9)
    (stage,) = method.stages(DistillationSpec(teacher=config, student=config, task=task, teacher_task=task))
    assert stage.weights == {"vectors": 2.5 * config.hidden_size, "similarities": 0.5}


def test_too_many_dimensions_are_refused(tmp_path: Path) -> None:
    task, config = TaskConfig(kind="embedding"), tiny_finetuning.CONFIG
    spec = DistillationSpec(teacher=config, student=config, task=task, teacher_task=task)
    assert (
        "must be below the student's 30 features; received 30"
        in EmbeddingDistillation(dimensions=(30,)).validate(spec)[0]
    )
    with pytest.raises(UserError, match="dimensions must differ; received 4,4"):
        EmbeddingDistillation(dimensions=(4, 4))


@pytest.mark.one_of_each("13")
@pytest.mark.parametrize("dimensions", [None, 13])
def test_student_follows_its_teacher(dimensions: int | None, tmp_path: Path) -> None:
    embedding = EmbeddingConfig(pooling="max", dimensions=dimensions)
    start = tiny_finetuning.write_model(tmp_path / "start", tiny_finetuning.CONFIG.replace(num_layers=2))
    teacher = pb.from_pretrained(start, task=TaskConfig(kind="embedding", embedding=embedding))
    teacher.save_pretrained(tmp_path / "teacher")
    rows = "".join(f"{text}\t{pair}\n" for text, pair in zip(tiny_tasks.TEXTS, tiny_tasks.TEXTS[5:], strict=False))
    (tmp_path / "pairs.tsv").write_text(f"text\tpair\n{rows}", encoding="utf-8")
    data = pb.data.pairs(tmp_path / "pairs.tsv")
    method = EmbeddingDistillation(epochs=12, batch_size=8, learning_rate=2e-3, max_length=19, dimensions=(7,))
    student = TeacherLayers((2,))
    trained = pb.distill(student, data, tmp_path / "run", teacher=tmp_path / "teacher", method=method).model
    # The pooling is the teacher's.
    assert trained.task.embedding == embedding and trained.config.num_layers == 1
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["similarities"] for line in lines if "similarities" in line]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.nightly
def test_other_widths_learn_a_map(tmp_path: Path) -> None:
    config = tiny_finetuning.CONFIG
    task = TaskConfig(kind="embedding", embedding=EmbeddingConfig(pooling="mean"))
    start = tiny_finetuning.write_model(tmp_path / "start", config.replace(num_layers=2))
    teacher = pb.from_pretrained(start, task=task)
    rows = "".join(f"{text}\t{pair}\n" for text, pair in zip(tiny_tasks.TEXTS, tiny_tasks.TEXTS[5:], strict=False))
    (tmp_path / "pairs.tsv").write_text(f"text\tpair\n{rows}", encoding="utf-8")
    narrow = config.replace(hidden_size=18, embedding_size=18, num_attention_heads=2, head_size=9, num_layers=1)
    student = pb.from_preset(narrow, task, tokenizer=teacher.tokenizer, seed=5)
    method = EmbeddingDistillation(epochs=12, batch_size=8, learning_rate=2e-3, max_length=19, similarity_weight=0.0)
    data = pb.data.pairs(tmp_path / "pairs.tsv")
    trained = pb.distill(student, data, tmp_path / "run", teacher=teacher, method=method).model
    assert len(trained.predict(["a film"])[0]["embedding"]) == 18
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["vectors"] for line in lines if "vectors" in line]
    assert losses[-1] < 0.5 * losses[0]
    # The map to the teacher's width is not exported.
    assert trained.weights_by_path().keys() == student.weights_by_path().keys()
