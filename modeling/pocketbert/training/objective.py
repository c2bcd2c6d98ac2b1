"""The interface of an objective: the loss that the trainer minimizes. Nothing here imports TensorFlow."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert._keras import tf_keras

# Result of `Model.features`: name → tensors in the requested order.
Features: TypeAlias = "Mapping[str, list[tf.Tensor]]"
# Inputs of the model by name, int32 [B, S], with `masked_lm_positions` [B, P] for pretraining examples; and the labels
# that the stage's terms read: `labels` [B], or `masked_lm_labels` [B, P] (-1: none) and `next_sentence_labels` [B].
Batch: TypeAlias = "Mapping[str, tf.Tensor]"
# Everything that a loss reads of a teacher; empty without a teacher.
Targets: TypeAlias = "Mapping[str, tf.Tensor]"
Adapters: TypeAlias = "Mapping[str, tf_keras.layers.Layer]"


class Objective(abc.ABC):
    """A loss that the `Trainer` minimizes stage by stage.

    Attributes:
      name: name in messages and records.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Computes the terms of the loss: unweighted float32 scalars, one per key of `stage.weights`.

        Args:
          stage: the current stage.
          targets: teacher targets of the batch; empty without a teacher.
          model: features of the trained model that the stage requests.
          adapters: name → layer between model and loss; only distillation has adapters.
          batch: inputs, and the labels that the stage's terms read.
        """
