"""Head outputs: names, labels, losses, and a float model's values for token rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.encoder import INPUT_NAMES, complete_inputs
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.layers.checks import require
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.base import Task
from pocketbert_runtime.forward import GatheredOutputs, Outputs, row_progress
from pocketbert_runtime.rows import TokenRows

BATCH_SIZE = 32
# Added to squared lengths, so that a zero vector has a gradient; smaller than any real vector's.
_SMALLEST_SQUARE = 1e-24
Heads = Mapping[str, Any]


class Labelled(NamedTuple):
    """A head's output with its labels and optional weights, for losses and metrics."""

    outputs: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor | None = None


def output_names(heads: Heads) -> dict[str, dict[str, str]]:
    """Maps head → own output name → the model's output name, with the head as prefix if several heads share it."""
    own_names = {head: list(layer.losses_by_output()) for head, layer in heads.items()}
    counter = Counter(name for names in own_names.values() for name in names)
    return {
        head: {name: f"{head}_{name}" if counter[name] > 1 else name for name in names}
        for head, names in own_names.items()
    }


def labelled_outputs(heads: Heads, inputs: Any, labels: Any, outputs: Any, weights: Any) -> dict[str, Labelled]:
    """Matches labels with outputs, by the model's names. Leaves out outputs without labels.

    Args:
      heads: at least one head by name.
      inputs: the model's inputs.
      labels: labels by output name, or plain labels for a model with one head.
      outputs: the model's outputs.
      weights: example weights by output name, or plain weights for a model with one head.
    Raises:
      UserError: an unknown output name, or plain values for a model with several heads.
    """
    names = output_names(heads)
    labels, weights = (_by_output(heads, names, *each) for each in (("labels", labels), ("weights", weights)))
    labelled: dict[str, Labelled] = {}
    for head, layer in heads.items():
        of_head = {
            own_name: Labelled(outputs[name], labels[name], weights.get(name))
            for own_name, name in names[head].items()
            if labels.get(name) is not None
        }
        if of_head and hasattr(layer, "learned"):
            of_head = layer.learned(of_head, complete_inputs(inputs))
        labelled.update({names[head][own_name]: each for own_name, each in of_head.items()})
    return labelled


def _by_output(heads: Heads, names: Mapping[str, Mapping[str, str]], what: str, values: Any) -> Mapping[str, Any]:
    every = [name for of_head in names.values() for name in of_head.values()]
    if values is None:
        return {}
    if isinstance(values, Mapping):
        if unknown := sorted(set(values) - set(every)):
            raise UserError(f"{what} must be for the outputs {', '.join(every)}; received {', '.join(unknown)}")
        return values
    if len(heads) != 1:
        raise UserError(f"{what} must be a dict by output name; this model gives {', '.join(every)}")
    (head,) = heads.values()
    if what == "labels" and hasattr(head, "labels_by_output"):
        return head.labels_by_output(values)
    return dict.fromkeys(every, values)


def uniform_cross_entropy(logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy between equal and predicted probabilities, in nats, float32 [...], from logits [..., C]."""
    return -tf.reduce_mean(tf.nn.log_softmax(tf.cast(logits, tf.float32)), axis=-1)


def mean_over_examples(losses: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
    """The `masked_mean` over per-example losses, a float32 scalar.

    Args:
      losses: [B].
      labels: [B], any labels. Counting them, not losses, keeps networks out of the graph for counting micro-batches.
      weights: float32 [B], loss factors, or None. The divisor excludes them.
    """
    return masked_mean(losses if weights is None else losses * weights, tf.ones_like(labels))


def has_label(labels: tf.Tensor) -> tf.Tensor:
    """Whether examples have a label, bool [B]; a negative class and a NaN score mean none.

    Args:
      labels: classes, int [B]; 0 or 1 for each label, int [B, labels]; or scores, float [B].
    """
    labels = tf.convert_to_tensor(labels)
    first = labels if labels.shape.rank == 1 else labels[:, 0]
    return first >= 0 if first.dtype.is_integer else tf.logical_not(tf.math.is_nan(first))


def mean_over_labelled(losses: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tf.Tensor:
    """The `masked_mean` over labelled examples' losses, a float32 scalar; 0, without a gradient, if there are none.

    Args:
      losses: finite, [B].
      labels: see `has_label`. Only they determine the divisor, as in `mean_over_examples`.
      weights: see `mean_over_examples`.
    """
    return masked_mean(losses if weights is None else losses * weights, has_label(labels))


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class CrossEntropy(tf_keras.losses.Loss):
    """Cross-entropy between logits and indices, in nats.

    Args:
      indices: plural name for the labels in messages.
      reduction: see Keras.
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
          UserError: a label is not between 0 and C - 1. For graphs see `layers.checks.require`.
        """
        classes = tf.shape(y_pred)[-1]
        labels = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(y_pred)[:-1])
        wrong = tf.boolean_mask(labels, (labels < 0) | (labels >= classes))
        num_classes = y_pred.shape[-1]
        limit = f"0 to {num_classes - 1}" if num_classes is not None else "0 up to the inputs' length"
        rule = f"labels must be {self.indices} from {limit}"
        with tf.control_dependencies(require(tf.size(wrong) == 0, rule, tf.reduce_max(wrong))):
            labels = tf.identity(labels)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, y_pred)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "indices": self.indices}


def unit_vectors(vectors: tf.Tensor) -> tf.Tensor:
    """Scales vectors [..., D] to length 1."""
    squares = tf.reduce_sum(tf.square(vectors), axis=-1, keepdims=True)
    return vectors / tf.sqrt(tf.maximum(squares, _SMALLEST_SQUARE))


class ModelForward:
    """Runs one head in a float model on row batches with similar lengths. The graph is traced once.

    Args:
      model: a `pocketbert.Model` with a head; its weights may change between calls.
      task: the head's task.
      batch_size: rows per batch.
      head: the head's name; None for the first.
    """

    def __init__(self, model: Any, task: Task, batch_size: int = BATCH_SIZE, head: str | None = None) -> None:
        # The model prefixes an output with the head if several heads share its name.
        names = output_names(model.heads)[head or next(iter(model.heads))]

        def answer(inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with padding_after_texts(model):
                outputs = model(inputs, training=False)
            return {own_name: outputs[name] for own_name, name in names.items()}

        signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
        self._call = tf.function(answer, input_signature=[signature], autograph=False)
        self._task, self._batch_size = task, batch_size

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns outputs for at least one row, by the head's own names."""
        plan = plan_batches(encoded.lengths, batch_size=self._batch_size, seed=0, epoch=0, shuffle=False)
        examples = encoded if isinstance(encoded, EncodedExamples) else EncodedExamples.of(encoded)
        gathered = GatheredOutputs(encoded, self._task)
        with row_progress(len(encoded), show_progress) as update:
            for indices, inputs in zip(plan, dataset(examples.unlabelled(), plan), strict=True):
                gathered.add(indices, {name: output.numpy() for name, output in self._call(inputs).items()})
                update(len(indices))
        return gathered.outputs


def check_finite(when: str, outputs: Outputs) -> Outputs:
    """Returns a model's outputs during training; raises `TrainingFailed` if a value is NaN or infinite."""
    if not all(np.isfinite(output).all() for output in outputs.values()):
        raise TrainingFailed(
            f"the outputs must stay finite; {when} some are not; try a lower learning rate, a longer warm-up, "
            "clipping, or float32"
        )
    return outputs
