"""What both sides of `mobilebert_training`, and `mobilebert_memory`, are given: architectures, a batch, rates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.presets import preset

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.distillation.stage import Stage

THREADS = 2
TEACHER = "ib_bert_large"
STUDENT = "mobilebert"
LEARNING_RATE = 1.5e-3
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
# BERT masks 15 % of the tokens.
MASKED = 0.15


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How much a step computes.

    Attributes:
      layers: of teacher and student.
      batch_size: examples.
      length: tokens of every example.
    """

    layers: int = 24
    batch_size: int = 8
    length: int = 128

    def __str__(self) -> str:
        return f"{self.layers} layers, batch {self.batch_size} x {self.length}"


def use_threads() -> None:
    """Gives TensorFlow, which must not be loaded yet, `THREADS` threads."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)


def config(name: str, shape: Shape) -> EncoderConfig:
    """A preset's architecture with as many layers as `shape` says."""
    return preset(name).config.replace(num_layers=shape.layers)


def batch(shape: Shape) -> dict[str, tf.Tensor]:
    """Random ids without padding, int32: inputs [B, S], `masked_lm_positions` and `masked_lm_labels` [B, P]."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    ids = random.integers(1000, 30_000, [shape.batch_size, shape.length])
    masked = max(1, round(MASKED * shape.length))
    positions = np.stack([np.sort(random.permutation(shape.length)[:masked]) for _ in ids])
    arrays = {
        "input_word_ids": ids,
        "input_mask": np.ones_like(ids),
        "input_type_ids": np.zeros_like(ids),
        "masked_lm_positions": positions,
        "masked_lm_labels": np.take_along_axis(ids, positions, axis=1),
    }
    return {name: tf.constant(array, tf.int32) for name, array in arrays.items()}


def transfer(shape: Shape) -> tuple[Any, Stage]:
    """The method and its stage that compares all layers; the only place that says which method it is."""
    method = TransferOfAllLayers()
    return method, method.stage(shape)


class TransferOfAllLayers:
    """Feature maps, in the authors' decomposed form, and attention of every layer, each a mean over the layers."""

    name = "transfer-of-all-layers"
    # Of the authors' code; `attention` is the KL divergence, whose gradient is that of their cross-entropy.
    weights = {"feature_normalized": 100.0, "feature_mean": 5000.0, "feature_variance": 5.0, "attention": 1.0}

    def stage(self, shape: Shape) -> Stage:
        """The one stage: teacher and student show the same features."""
        from pocketbert.distillation.stage import OptimizerConfig, Stage, Steps

        layers = tuple(range(1, shape.layers + 1))
        request = {"hidden_states": layers, "attention_logits": layers}
        return Stage(
            name="transfer",
            teacher_features=request,
            student_features=request,
            weights=self.weights,
            data="pretraining",
            max_length=shape.length,
            duration=Steps(10_000),
            batch_size=shape.batch_size,
            optimizer=OptimizerConfig(
                learning_rate=LEARNING_RATE,
                algorithm="lamb",
                schedule="constant",
                weight_decay=WEIGHT_DECAY,
                clip_norm=CLIP_NORM,
            ),
        )

    def targets(self, stage: Stage, teacher: Mapping[str, Sequence[Any]], batch: Any) -> dict[str, Any]:
        """Everything that was asked of the teacher, a target a layer."""
        return {f"{name} {number}": value for name, values in teacher.items() for number, value in enumerate(values)}

    def loss(self, stage: Stage, targets: Any, student: Any, adapters: Any, batch: Any) -> dict[str, Any]:
        """The terms of `weights`."""
        import tensorflow as tf

        from pocketbert.distillation.losses import attention_transfer, feature_statistics_transfer

        mask = batch["input_mask"]
        found: dict[str, list[Any]] = {name: [] for name in self.weights}
        for number, (hidden, logits) in enumerate(
            zip(student["hidden_states"], student["attention_logits"], strict=True)
        ):
            parts = feature_statistics_transfer(targets[f"hidden_states {number}"], hidden, mask)
            for name, value in parts.items():
                found[f"feature_{name}"].append(value)
            found["attention"].append(attention_transfer(targets[f"attention_logits {number}"], logits, mask))
        return {name: tf.add_n(values) / len(values) for name, values in found.items()}
