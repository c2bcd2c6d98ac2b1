"""A small task with an output per token in one file, as CONTRIBUTING describes it: the parts of a text to highlight.

The row is in the table as soon as this module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskRules
from pocketbert.tasks.outputs import CrossEntropy
from pocketbert.tasks.registry import register
from pocketbert.tasks.token_classification import TokenClassification, TokenClassificationHead
from pocketbert_runtime.forward import Forward

OUTPUT = "highlight_logits"


class HighlightHead(TokenClassificationHead):
    """The head of token classification, with an output of another name."""

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        return {OUTPUT: self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        return {OUTPUT: CrossEntropy("tag indices")}


class Highlight(TokenClassification):
    """Finds the parts of a text that matter, without their type."""

    kind = "highlight"
    output_names = (OUTPUT,)

    def head(self, encoder: EncoderConfig) -> HighlightHead:
        return HighlightHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        return super().loss({"token_logits": outputs[OUTPUT]}, labels, mask, weights)

    def predict(
        self, inputs: Sequence[Any], forward: Forward, tokenizer: Any, max_length: int, **windows: Any
    ) -> list[dict[str, Any]]:
        answers = super().predict(inputs, forward, tokenizer, max_length, **windows)
        return [{"highlights": [span["text"] for span in answer["spans"]]} for answer in answers]


register(Highlight, TaskRules(min_labels=2, reads="spans"))
