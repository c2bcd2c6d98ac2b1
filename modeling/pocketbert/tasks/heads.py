"""What the heads of a model share: the names of their outputs, the labels and losses of these, cross-entropy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.encoder import complete_inputs
from pocketbert.errors import UserError
from pocketbert.layers.checks import require
from pocketbert.layers.loss_normalization import masked_mean

Heads = Mapping[str, Any]


class Labelled(NamedTuple):
    """An output of a head with its labels, and weights or None, as loss and metrics take them."""

    outputs: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor | None = None


def output_names(heads: Heads) -> dict[str, dict[str, str]]:
    """Head → its own name for each of its outputs → the model's, with the head's in front if several heads give it."""
    own = {head: list(layer.losses_by_output()) for head, layer in heads.items()}
    given = Counter(name for names in own.values() for name in names)
    return {
        head: {name: f"{head}_{name}" if given[name] > 1 else name for name in names} for head, names in own.items()
    }


def labelled_outputs(heads: Heads, inputs: Any, labels: Any, outputs: Any, weights: Any) -> dict[str, Labelled]:
    """The outputs that there are labels of, as loss and metrics take them, by the model's names.

    Args:
      heads: at least one.
      inputs: the model's.
      labels: by output; plain ones are the only head's.
      outputs: the model's.
      weights: of examples, by output; plain ones are the only head's.
    Raises:
      UserError: labels or weights of no output, or plain ones though there are several heads.
    """
    names = output_names(heads)
    labels, weights = (_by_output(heads, names, *each) for each in (("labels", labels), ("weights", weights)))
    found: dict[str, Labelled] = {}
    for head, layer in heads.items():
        of_head = {
            own: Labelled(outputs[name], labels[name], weights.get(name))
            for own, name in names[head].items()
            if labels.get(name) is not None
        }
        if of_head and hasattr(layer, "learned"):
            of_head = layer.learned(of_head, complete_inputs(inputs))
        found.update({names[head][own]: each for own, each in of_head.items()})
    return found


def _by_output(heads: Heads, names: Mapping[str, Mapping[str, str]], what: str, values: Any) -> Mapping[str, Any]:
    every = [name for of_head in names.values() for name in of_head.values()]
    if values is None:
        return {}
    if isinstance(values, Mapping):
        if unknown := sorted(set(values) - set(every)):
            raise UserError(f"{what} must be of the outputs {', '.join(every)}; received {', '.join(unknown)}")
        return values
    if len(heads) != 1:
        raise UserError(f"{what} must be a dict by output name; this model gives {', '.join(every)}")
    (head,) = heads.values()
    if what == "labels" and hasattr(head, "labels_by_output"):
        return head.labels_by_output(values)
    return dict.fromkeys(every, values)


def mean_over_examples(losses: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
    """The `masked_mean` of the examples' losses.

    Args:
      losses: [B].
      labels: [B], any of the examples' labels. They are counted in place of the losses: where micro-batches are counted
        first, that leaves the networks out of it.
      weights: float32 [B], factors of the losses that do not enter the divisor, or None.

    Returns:
      float32 scalar.
    """
    return masked_mean(losses if weights is None else losses * weights, tf.ones_like(labels))


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class CrossEntropy(tf_keras.losses.Loss):
    """Cross-entropy of logits against indices, in nats.

    Args:
      indices: what the labels are, in the plural, for messages.
      reduction: Keras'.
      name: the loss's name.
    """

    def __init__(
        self,
        indices: str = "class indices",
        reduction: str = tf_keras.losses.Reduction.AUTO,
        name: str = "cross_entropy",
    ) -> None:
        super().__init__(reduction=reduction, name=name)
        self.indices = indices

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Maps labels [...] and logits [..., C] to losses [...].

        Raises:
          UserError: a label is not between 0 and C - 1; in a graph, see `layers.checks.require`.
        """
        classes = tf.shape(y_pred)[-1]
        labels = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(y_pred)[:-1])
        wrong = tf.boolean_mask(labels, (labels < 0) | (labels >= classes))
        known = y_pred.shape[-1]
        limit = f"0 to {known - 1}" if known is not None else "0 up to the inputs' length"
        rule = f"labels must be {self.indices} from {limit}"
        with tf.control_dependencies(require(tf.size(wrong) == 0, rule, tf.reduce_max(wrong))):
            labels = tf.identity(labels)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)

    def get_config(self) -> dict[str, Any]:
        """The arguments of a new instance."""
        return {**super().get_config(), "indices": self.indices}
