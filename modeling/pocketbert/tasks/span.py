"""Span: where an answer starts and ends."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.dense import Dense
from pocketbert.tasks.losses import CrossEntropy, Labelled

SPAN_OUTPUTS = ("start_logits", "end_logits")
# Far below any logit, and finite: a difference of two stays a number.
_IMPOSSIBLE = -1e9


class SpanHead(tf_keras.layers.Layer):
    """Start and end logits of every token.

    Args:
      config: the encoder's architecture.
      task: a span task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        self.output_projection = Dense(config.hidden_size, 2)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 [B, S, 2]."""
        return tf.cast(self.output_projection(encoded["sequence_output"]), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`start_logits` and `end_logits`, float32 [B, S]."""
        return dict(zip(SPAN_OUTPUTS, tf.unstack(self(encoded, training=training), axis=-1), strict=True))

    def labels_by_output(self, positions: tf.Tensor) -> dict[str, tf.Tensor]:
        """The answers' first and last tokens, int [B, 2], as the labels of the two outputs."""
        return {name: positions[:, column] for column, name in enumerate(SPAN_OUTPUTS)}

    def learned(self, labelled: Mapping[str, Labelled], inputs: Mapping[str, tf.Tensor]) -> dict[str, Labelled]:
        """What loss and metrics are taken of: the logits without those of padding, so that its length changes nothing.

        A departure from BERT's run_squad.py, whose inputs all have the same length and whose loss counts padding in.
        """
        logits = without_padding({name: each.outputs for name, each in labelled.items()}, inputs["input_mask"])
        return {name: each._replace(outputs=logits[name]) for name, each in labelled.items()}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against token positions [B], in nats."""
        return {name: CrossEntropy("token positions") for name in SPAN_OUTPUTS}


def without_padding(outputs: Mapping[str, tf.Tensor], mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Logits [B, S] by name where `mask` is 1, and elsewhere one that no softmax sees."""
    return {name: tf.where(tf.equal(mask, 1), logits, _IMPOSSIBLE) for name, logits in outputs.items()}
