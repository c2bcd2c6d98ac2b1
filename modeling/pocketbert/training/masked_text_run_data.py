"""Plain text as data for masked LM, and metrics on its dev part."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, plan_batches
from pocketbert.data.packing import pack
from pocketbert.data.pretraining.masking import masked_dataset
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert.data.task_data import TextData
from pocketbert.data.text_split import TextSplit
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.progress import log_info
from pocketbert.tasks.masked_lm import is_labelled
from pocketbert.tasks.outputs import check_finite
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.training.config import RunConfig
from pocketbert.training.pretraining_run_data import BATCH_SIZE, answer_sums
from pocketbert.training.run_data import StageEvaluator, TextRunData
from pocketbert.training.stage import Stage

# Seed and epoch for the dev part's inputs and masks, so that all evaluations and runs have the same.
_SEED = _EPOCH = 0
# JSON has no infinity.
_LARGEST_EXPONENT = math.log(1e300)


class MaskedTextRunData(TextRunData):
    """Plain text for masked LM.

    Args:
      data: the text, with or without its own dev part.
      dev_every: one in this many documents or lines is the dev part, see `TextSplit`; 0 for none.
    Attributes:
      dev: the dev part's token ids; None without one, or before the first call of `encoded`.
    """

    # As in BERT, no dropout between encoder outputs and this head.
    tasks = (TaskConfig(kind="masked_lm", dropout=0.0),)

    def __init__(self, data: TextData, dev_every: int) -> None:
        super().__init__(data)
        self._dev_every = dev_every
        self.main_metric = "masked_lm_accuracy" if data.dev is not None or dev_every else ""
        self.dev: EncodedExamples | None = None

    def paths(self) -> list[str | os.PathLike[str] | None]:
        return [self.path, self.given.dev]

    def recorded(self) -> dict[str, Any]:
        """See `RunData`."""
        dev = self.given.dev
        dev_digest = None if dev is None else TextRunData(TextData(dev)).recorded()["text_sha256"]
        return {**super().recorded(), "dev_text_sha256": dev_digest}

    def option_problems(self, run: RunConfig) -> list[str]:
        return []

    def encoded(self, stage: Stage, tokenizer: Tokenizer, seed: int, windows: Mapping[str, Any]) -> EncodedExamples:
        """See `RunData`; also packs the dev part."""
        log_info(f"packing {self.path} into inputs of {stage.max_length} tokens")
        split = TextSplit(self.path, self.given.dev, self._dev_every)
        options: dict[str, Any] = {"keep_spaces": tokenizer.vocabulary.rules.tokens_are_bytes}
        if split.dev:
            self.dev = pack(split.dev, tokenizer, stage.max_length, seed=_SEED, **options)
        return pack(split.training(), tokenizer, stage.max_length, seed=seed, **options)

    def evaluated_length(self, stage: Stage) -> int | None:
        """See `RunData`; every stage is evaluated on the dev part, if any."""
        return stage.max_length if self.main_metric else None

    def evaluator(
        self, model: Model, max_length: int, run: RunConfig, windows: Mapping[str, Any], batch_size: int
    ) -> StageEvaluator:
        if self.dev is None:
            return super().evaluator(model, max_length, run, windows, batch_size)
        return MaskedTextEvaluator(model, self.dev, run.evaluation_batches)

    def _unused(self, used: Collection[str]) -> list[str]:
        return []


class MaskedTextEvaluator:
    """Scores a model with a masked-LM head and a tokenizer on packed text.

    `masked_lm_loss` is the mean over masked tokens in nats, `masked_lm_perplexity` its exponential (at most 1e300), and
    `masked_lm_accuracy` a fraction from 0 to 1. Tokens are masked one by one, never as whole words.

    Args:
      model: the model; its weights may change between calls.
      encoded: the dev part.
      max_batches: most batches with `BATCH_SIZE` inputs, a fixed random sample.
    Attributes:
      loss: `masked_lm_loss` in the last call of `metrics`.
    """

    loss: float | None

    def __init__(self, model: Model, encoded: EncodedExamples, max_batches: int) -> None:
        self._model, self.loss = model, None
        assert model.tokenizer is not None
        plan = plan_batches(encoded.lengths, batch_size=BATCH_SIZE, seed=_SEED, epoch=_EPOCH)[:max_batches]
        options = MaskingOptions.of_length(encoded.max_length)
        self._batches = masked_dataset(
            encoded, plan, model.tokenizer, seed=_SEED, epoch=_EPOCH, options=options, predictions=True
        )
        self._count = tf.function(self._counts, input_signature=self._batches.element_spec, autograph=False)

    def metrics(self, when: str) -> dict[str, float]:
        """Returns metrics for the current weights.

        Args:
          when: completes an error message, for example `after step 7`.
        Raises:
          TrainingFailed: an output is not finite.
        """
        # Summed in float64: the last batches count as much as the first.
        rows = [self._count(*batch).numpy().astype("float64") for batch in self._batches]
        words, loss, right = sum(rows)
        check_finite(when, {"masked_lm": loss})
        self.loss = float(loss / words)
        return {
            "masked_lm_loss": self.loss,
            "masked_lm_perplexity": math.exp(min(self.loss, _LARGEST_EXPONENT)),
            "masked_lm_accuracy": float(right / words),
        }

    def _counts(self, inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        """Float32 [3]: count, summed loss and correct answers for masked tokens."""
        with padding_after_texts(self._model):
            outputs = self._model(inputs, training=False)
        return tf.stack(answer_sums(labels, outputs["prediction_logits"], is_labelled(labels)))
