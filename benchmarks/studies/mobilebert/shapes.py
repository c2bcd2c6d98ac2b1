"""Inputs of `mobilebert.training`, `.text` and `.memory`: architectures, a batch, rates."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.presets import preset

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.distillation.method import Method
    from pocketbert.training.stage import Stage

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
    """Size of a step.

    Attributes:
      layers: number of layers of teacher and student.
      batch_size: number of examples.
      length: tokens of every example.
    """

    layers: int = 24
    batch_size: int = 8
    length: int = 128

    def __str__(self) -> str:
        return f"{self.layers} layers, batch {self.batch_size} x {self.length}"


def use_threads() -> None:
    """Gives TensorFlow `THREADS` threads; call it before TensorFlow is imported."""
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(THREADS)


def config(name: str, shape: Shape) -> EncoderConfig:
    """A preset's configuration with the number of layers in `shape`."""
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


def transfer(shape: Shape) -> tuple[Method, Stage]:
    """MobileBERT's stage with feature maps, in the authors' decomposed form, and attention of all layers.

    All weights are trained, as in the baseline; the method itself freezes embedding and heads.
    """
    from pocketbert.distillation.method import DistillationSpec
    from pocketbert.distillation.methods.mobilebert import MobileBERT
    from pocketbert.training.stage import all_trainable, unit_multiplier

    options = MobileBERT(
        preset="authors-code",
        strategy="joint",
        transfer_learning_rate=LEARNING_RATE,
        transfer_batch_size=shape.batch_size,
        max_length=shape.length,
        weight_decay=WEIGHT_DECAY,
        clip_norm=CLIP_NORM,
    )
    setting = DistillationSpec(teacher=config(TEACHER, shape), student=config(STUDENT, shape), task=None)
    stage = options.stages(setting)[0]
    return options, dataclasses.replace(stage, trainable=all_trainable, learning_rate_multiplier=unit_multiplier)
