"""Label losses for every objective; each head's task defines its loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from pocketbert.configs import PRETRAINING_HEADS, TaskConfig
from pocketbert.tasks.base import Task
from pocketbert.tasks.registry import get_task
from pocketbert.training.objective import Batch, Features
from pocketbert.training.stage import LABEL_TERMS, Stage


def labels_loss(stage: Stage, model: Features, batch: Batch, weights: tf.Tensor | None = None) -> tf.Tensor:
    """Computes the loss of the stage's task, float32 scalar; see `Task.loss`.

    With label smoothing s, it is (1 − s)·loss + s·loss against equal probabilities (Szegedy et al. 2016, section 7,
    https://arxiv.org/abs/1512.00567).

    Args:
      stage: a stage with a task.
      model: features of the trained model, with `logits`.
      batch: a batch with `labels`.
      weights: loss factors for examples or their labels, as in `Task.loss`; None for 1.
    """
    assert stage.task is not None
    task = get_task(stage.task)
    outputs = dict(zip(task.output_names, model["logits"], strict=True))
    return _smoothed_loss(task, stage.label_smoothing, outputs, batch["labels"], batch["input_mask"], weights)


def pretraining_losses(model: Features, batch: Batch, smoothing: float = 0.0) -> dict[str, tf.Tensor]:
    """Computes BERT's two losses (Devlin et al. 2019, section 3.1): `masked_lm` and `next_sentence`, float32 scalars.

    Label smoothing is for masked tokens.
    """
    return {
        kind: head_loss(kind, logits, batch[LABEL_TERMS[kind]], smoothing)
        for kind, logits in zip(PRETRAINING_HEADS, model["logits"], strict=True)
    }


def head_loss(kind: str, logits: tf.Tensor, labels: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Computes a pretraining head's loss, float32 scalar; see `Task.loss`."""
    task = get_task(TaskConfig(kind=kind))
    (name,) = task.output_names
    # These losses ignore the mask; their labels mark the positions that count.
    smoothing = smoothing if task.smooths_labels else 0.0
    return _smoothed_loss(task, smoothing, {name: logits}, labels, tf.ones_like(labels))


def _smoothed_loss(task: Task, smoothing: float, outputs: Mapping[str, tf.Tensor], *arguments: Any) -> tf.Tensor:
    loss = task.loss(outputs, *arguments)
    uniform = task.uniform_loss(outputs, *arguments) if smoothing else None
    return loss if uniform is None else (1 - smoothing) * loss + smoothing * uniform
