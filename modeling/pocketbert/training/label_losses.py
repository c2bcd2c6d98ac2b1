"""Losses on labels, for every objective; the task of each head defines its loss."""

from __future__ import annotations

import tensorflow as tf

from pocketbert.configs import PRETRAINING_HEADS, TaskConfig
from pocketbert.tasks.registry import get_task
from pocketbert.training.objective import Batch, Features
from pocketbert.training.stage import LABEL_TERMS, Stage


def labels_loss(stage: Stage, model: Features, batch: Batch, weights: tf.Tensor | None = None) -> tf.Tensor:
    """Loss of the stage's task, float32 scalar; see `Task.loss`.

    Args:
      stage: a stage with a task.
      model: features of the trained model, with `logits`.
      batch: a batch with `labels`.
      weights: float32 [B], weights of the examples; None for 1.
    """
    assert stage.task is not None
    task = get_task(stage.task)
    return task.loss(
        dict(zip(task.output_names, model["logits"], strict=True)), batch["labels"], batch["input_mask"], weights
    )


def pretraining_losses(model: Features, batch: Batch) -> dict[str, tf.Tensor]:
    """BERT's two losses (Devlin et al. 2019, section 3.1): `masked_lm` and `next_sentence`, float32 scalars."""
    return {
        kind: head_loss(kind, logits, batch[LABEL_TERMS[kind]])
        for kind, logits in zip(PRETRAINING_HEADS, model["logits"], strict=True)
    }


def head_loss(kind: str, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Loss of a pretraining head, float32 scalar; see `Task.loss`."""
    task = get_task(TaskConfig(kind=kind))
    (name,) = task.output_names
    # These losses ignore the mask; their labels mark the positions that count.
    return task.loss({name: logits}, labels, tf.ones_like(labels))
