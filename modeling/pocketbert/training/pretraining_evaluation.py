"""MLM and NSP scores of a model on the dev split."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from pocketbert.model import Model
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.tasks.outputs import check_finite

if TYPE_CHECKING:
    from pocketbert.data.pretraining_data import PretrainingData

# Examples per call of the model.
BATCH_SIZE = 32
# Seed and epoch of order and masks, so that every evaluation uses the same examples and masks.
_SEED = _EPOCH = 0


class PretrainingEvaluator:
    """Scores a model with a masked-LM and a next-sentence head.

    `masked_lm_loss` and `next_sentence_loss` are means in nats over masked tokens and over examples.
    `masked_lm_accuracy` and `next_sentence_accuracy` are fractions from 0 to 1.

    Args:
      model: the model; its weights may change between calls.
      data: the dev split.
      max_batches: maximum number of batches of `BATCH_SIZE` examples, a fixed random sample.
    """

    def __init__(self, model: Model, data: PretrainingData, max_batches: int) -> None:
        self._model = model
        plan = data.plan(batch_size=min(BATCH_SIZE, len(data)), seed=_SEED, epoch=_EPOCH)[:max_batches]
        self._batches = data.dataset(plan, seed=_SEED, epoch=_EPOCH)
        self._count = tf.function(self._counts, input_signature=[self._batches.element_spec], autograph=False)

    def metrics(self, when: str) -> dict[str, float]:
        """Metrics of the current weights.

        Args:
          when: completes an error message, for example `after step 7`.

        Raises:
          TrainingFailed: an output is not finite.
        """
        # Summed in float64: the last batches count as much as the first.
        rows = [self._count(batch).numpy().astype("float64") for batch in self._batches]
        words, word_loss, words_right, examples, example_loss, examples_right = sum(rows)
        check_finite(when, {"masked_lm": word_loss, "next_sentence": example_loss})
        return {
            "masked_lm_loss": float(word_loss / words),
            "masked_lm_accuracy": float(words_right / words),
            "next_sentence_loss": float(example_loss / examples),
            "next_sentence_accuracy": float(examples_right / examples),
        }

    def _counts(self, batch: dict[str, tf.Tensor]) -> tf.Tensor:
        """Float32 [6]: count, summed loss and number of correct answers of masked tokens, then of examples."""
        inputs = {name: value for name, value in batch.items() if not name.endswith("_labels")}
        outputs = self._model(inputs, training=False)
        words, sentences = batch["masked_lm_labels"], batch["next_sentence_labels"]
        return tf.stack(
            [
                *_sums(words, outputs["prediction_logits"], is_labelled(words)),
                *_sums(sentences, outputs["seq_relationship_logits"], tf.ones_like(sentences, tf.bool)),
            ]
        )


def _sums(labels: tf.Tensor, logits: tf.Tensor, counted: tf.Tensor) -> list[tf.Tensor]:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
    right = tf.equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels)
    weights = tf.cast(counted, tf.float32)
    return [tf.reduce_sum(each * weights) for each in (tf.ones_like(losses), losses, tf.cast(right, tf.float32))]
