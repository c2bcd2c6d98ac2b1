"""Classification: one label for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.layers.dense import Dense
from pocketbert.layers.dropout import Dropout
from pocketbert.tasks.losses import CrossEntropy


class SentenceHead(tf_keras.layers.Layer):
    """A linear map of the pooled output; without a pooler, of a layer of its own (RoBERTa: tanh, DistilBERT: relu).

    Args:
      config: the encoder's architecture.
      task: gives the dropout rate.
      outputs: number of logits.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig, outputs: int) -> None:
        super().__init__()
        if config.pooler == "none":
            self.dense = Dense(config.hidden_size, config.hidden_size)
        self.dropout = Dropout(task.dropout)
        self.output_projection = Dense(config.hidden_size, outputs)
        self._has_own_pooler = config.pooler == "none"
        self._activation = config.sentence_activation

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 logits [B, outputs]."""
        if self._has_own_pooler:
            x = encoded["sequence_output"][:, 0]
            if self._activation == "relu":
                x = tf.nn.relu(self.dense(x))
            else:
                x = tf.tanh(self.dense(self.dropout(x, training=training)))
        else:
            x = encoded["pooled_output"]
        return tf.cast(self.output_projection(self.dropout(x, training=training)), tf.float32)


class ClassificationHead(SentenceHead):
    """Logits of the task's labels.

    Args:
      config: the encoder's architecture.
      task: a classification task.
    """

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config, task, len(task.labels))

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`logits`, float32 [B, labels]."""
        return {"logits": self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against class indices [B], in nats."""
        return {"logits": CrossEntropy()}
