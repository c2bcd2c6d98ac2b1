"""What a model is trained for. Nothing here imports TensorFlow."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert._keras import tf_keras

# What `Model.features` gives for a request: name → tensors, in the requested order.
Features: TypeAlias = "Mapping[str, list[tf.Tensor]]"
# The model's inputs, int32 [B, S], by name, of pretraining examples also `masked_lm_positions` [B, P]; and for the
# loss of a stage that reads them `labels` [B], or `masked_lm_labels` [B, P] (-1: none) and `next_sentence_labels` [B].
Batch: TypeAlias = "Mapping[str, tf.Tensor]"
# What a loss may know of a teacher; empty in a run without one.
Targets: TypeAlias = "Mapping[str, tf.Tensor]"
Adapters: TypeAlias = "Mapping[str, tf_keras.layers.Layer]"


class Objective(abc.ABC):
    """A loss, which the `Trainer` minimizes stage by stage.

    Attributes:
      name: what messages call it.
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def loss(
        self, stage: Stage, targets: Targets, model: Features, adapters: Adapters, batch: Batch
    ) -> Mapping[str, tf.Tensor]:
        """Named float32 scalars, one for each key of `stage.weights`, unweighted.

        Args:
          stage: the stage at hand.
          targets: what a teacher gives for the batch; empty without one.
          model: the features that the stage asks the trained model for.
          adapters: name → layer between model and loss; empty but in a distillation.
          batch: the inputs, and those labels that the stage's terms read.
        """
