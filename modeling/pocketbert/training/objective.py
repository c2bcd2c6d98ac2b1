"""The interface for objectives: losses for the trainer to minimize. Nothing here imports TensorFlow."""

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
# Model inputs by name, int32 [B, S], with `masked_lm_positions` [B, P] for pretraining examples; and labels for the
# stage's terms: `labels` [B], or `masked_lm_labels` [B, P] (-1: none) and `next_sentence_labels` [B].
Batch: TypeAlias = "Mapping[str, tf.Tensor]"
# Everything a loss reads from a teacher; empty without one.
Targets: TypeAlias = "Mapping[str, tf.Tensor]"
Adapters: TypeAlias = "Mapping[str, tf_keras.layers.Layer]"


class Objective(abc.ABC):
    """A loss for the `Trainer` to minimize stage by stage.

    Attributes:
      name: name in messages and records.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Computes the loss terms: unweighted float32 scalars, one per key in `stage.weights`.

        Args:
          stage: the current stage.
          targets: teacher targets for the batch; empty without a teacher.
          model: requested features of the trained model.
          adapters: name → layer between model and loss; only distillation has adapters.
          batch: inputs, and labels for the stage's terms.
        """
