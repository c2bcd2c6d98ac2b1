"""Token classification: a tag for each word, and word spans such as names."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples, evenly
from pocketbert.data.readers.iob import types_of_tags
from pocketbert.data.readers.tagged_texts import TaggedTexts, plain_texts, read_tagged
from pocketbert.errors import UserError
from pocketbert.layers.core import Dense
from pocketbert.layers.dropout import Dropout
from pocketbert.layers.loss_normalization import masked_mean
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.classification import class_decisions
from pocketbert.tasks.interfaces import Decisions
from pocketbert.tasks.masked_lm import is_labelled, only_labelled
from pocketbert.tasks.metrics import TAG_METRICS, tag_results, tag_scores
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert.tasks.outputs import CrossEntropy, Labelled, check_finite, uniform_cross_entropy
from pocketbert.tasks.prediction_layers import PredictionLayers
from pocketbert.tasks.scores import Baseline, Scores, score_interval
from pocketbert.tasks.simple_methods import Vectors, tag_method
from pocketbert.tasks.tagged_rows import TaggedRows, resampled_tags
from pocketbert_runtime.answers.tags import OUTSIDE
from pocketbert_runtime.answers.token_classification import TOKEN_LOGITS, TagAnswers
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.windows import WindowOptions


class TokenClassificationHead(PredictionLayers):
    """One logit per label and token, as in transformers' token classifiers."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(task.dropout)
        self.output_projection = Dense(config.hidden_size, len(task.labels))

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps the encoder's outputs to float32 [B, S, labels]."""
        x = self.dropout(self.predicted(encoded["sequence_output"]), training=training)
        return tf.cast(self.output_projection(x), tf.float32)

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`token_logits`, float32 [B, S, labels]."""
        return {TOKEN_LOGITS: self(encoded, training=training)}

    def learned(self, labelled: Mapping[str, Labelled], inputs: Mapping[str, tf.Tensor]) -> dict[str, Labelled]:
        """Keeps only the tokens with a label, as a list; see `masked_lm.only_labelled`."""
        width = tf.shape(inputs["input_mask"])[1]
        return only_labelled(
            {name: output._replace(labels=output.labels[:, :width]) for name, output in labelled.items()}
        )

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Cross-entropy against tag indices [B, S], in nats per word; negative labels are ignored."""
        return {TOKEN_LOGITS: CrossEntropy("tag indices")}


class TokenClassification(TagAnswers, SupervisedTask):
    """Labels word spans. A word's first token carries its tag (Devlin et al. 2019, section 5.3)."""

    linear_form = "classes"
    scored_by_folds = True
    pipeline_tag = "token-classification"
    default_max_length = 128
    centred_by_example = True

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Micro-averaged F1, precision and recall for spans, and accuracy for tags, as conlleval prints them."""
        return TAG_METRICS, TAG_METRICS[0]

    @property
    def num_logits(self) -> int:
        """One logit per label."""
        return len(self.config.labels)

    @property
    def weighted_classes(self) -> tuple[str, ...]:
        """The tags."""
        return self.config.labels

    def class_targets(self, data: TaggedTexts) -> np.ndarray:
        """Each word's tag index, int32 [words]."""
        index = {label: number for number, label in enumerate(self.config.labels)}
        return np.array([index[tag] for tags in data.tags or () for tag in tags], np.int32)

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Removes a tanh pooler: this head would not read or train it. transformers' token classifiers have none."""
        return encoder.replace(pooler="none") if encoder.pooler == "tanh" else encoder

    def head(self, encoder: EncoderConfig) -> TokenClassificationHead:
        """Returns a head with one logit per label and token."""
        return TokenClassificationHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean cross-entropy over words, in nats. Labels are tag indices, int32 [B, at least S]; negative: no label."""
        labels, logits, factors = self._rows(outputs, labels, mask, weights)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
        return masked_mean(losses * factors, is_labelled(labels))

    def _rows(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Labels, logits and factors, one row per token."""
        logits = outputs[TOKEN_LOGITS]
        width = tf.shape(mask)[1]
        labels = labels[:, :width]
        factors = tf.ones_like(labels, tf.float32)
        if weights is not None:
            factors *= weights[:, :width] if weights.shape.rank == 2 else weights[:, tf.newaxis]
        # One row per token, so that counting the weights does not run the network; see `MaskedLM.loss`.
        labels = tf.reshape(labels, [-1])
        logits = tf.reshape(tf.cast(logits, tf.float32), [-1, logits.shape[-1]])
        return labels, logits, tf.reshape(factors, [-1])

    def uniform_loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """See `Task.uniform_loss`."""
        labels, logits, factors = self._rows(outputs, labels, mask, weights)
        return masked_mean(uniform_cross_entropy(logits) * factors, is_labelled(labels))

    def read(self, path: str | os.PathLike[str], **columns: Any) -> TaggedTexts:
        """Reads a CoNLL or .jsonl file; for `columns` see `read_tagged`."""
        return read_tagged(path, types=self.types, **columns)

    def file_options(self, table: Any) -> dict[str, Any]:
        return table.tagged

    @property
    def types(self) -> list[str]:
        """Span types, in label order."""
        return types_of_tags(self.config.labels)

    def check_data(self, data: Any) -> None:
        """Checks for `TaggedTexts`."""
        if not isinstance(data, TaggedTexts):
            raise UserError(f"the examples must be the task's; received {data.source} for {self.kind}")

    def encode(self, data: TaggedTexts, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """Encodes one row per window. Labels: tag indices [rows, max_length], -1 except at words' first tokens.

        A word has its label only in the window with the most context for it.
        """
        return self.rows(data, tokenizer, max_length, **windows).labelled_rows()

    def encode_soft(self, data: TaggedTexts, tokenizer: Any, max_length: int, **windows: Any) -> EncodedExamples:
        """See `encode`; soft labels [rows, max_length, tags] are 0 except at words' first tokens."""
        rows = self.rows(data, tokenizer, max_length, **windows)
        return rows.labelled_rows().with_soft_labels(rows.soft_rows())

    def rows(self, data: Any, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any) -> TaggedRows:
        """Encodes one row per text window; `Examples` without labels are fine."""
        if isinstance(data, Examples):
            data = plain_texts(data.texts, data.source)
        taken = data if most is None else data.select(evenly(len(data), most))
        return TaggedRows(self, taken, tokenizer, WindowOptions(max_length=max_length, **windows))

    def evaluator(
        self,
        forward: Forward,
        data: TaggedTexts,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        choose_threshold: bool = False,
        show_progress: bool = False,
        **windows: Any,
    ) -> TokenEvaluator:
        """See `SupervisedTask.evaluator`. There is no threshold to choose."""
        self.check_data(data)
        rows = self.rows(data, tokenizer, max_length, **windows)
        return TokenEvaluator(self, forward, rows, metrics or self.metrics, show_progress=show_progress)

    def with_baseline(
        self,
        data: TaggedTexts,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """See `SupervisedTask.with_baseline`. The baseline finds no span."""
        assert data.tags is not None
        names = names or self.metrics
        nothing = [[OUTSIDE] * len(tags) for tags in data.tags]
        return Scores(
            main_metric=main_metric or (self.main_metric if self.main_metric in names else names[0]),
            metrics=metrics,
            baseline={"answer": "never a span", "metrics": tag_scores(names, data.tags, nothing)},
            examples=len(data.tags),
        )

    def simple_methods(
        self, train: TaggedTexts, dev: TaggedTexts, metric: str, vectors: Vectors | None
    ) -> list[Baseline]:
        """See `SupervisedTask.simple_methods`: each word's most frequent tag."""
        gold = dev.tags
        assert gold is not None
        return tag_method(train, dev, lambda predicted: tag_scores([metric], gold, predicted)[metric])

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the mean over labels, which softmax ignores."""
        return output - output.mean(axis=-1, keepdims=True)

    def decisions(self, reference: np.ndarray, answers: np.ndarray, tolerance: float) -> Decisions:
        """Compares predicted tags; see `Classification.decisions`."""
        return class_decisions(reference, answers, tolerance, "tokens")


class TokenEvaluator:
    """Scores a network on tagged texts; see `SupervisedTask.evaluator`."""

    def __init__(
        self,
        task: TokenClassification,
        forward: Forward,
        rows: TaggedRows,
        metrics: Sequence[str],
        *,
        show_progress: bool = False,
    ) -> None:
        self.task: TaskConfig = task.config
        self._task, self._forward, self._rows, self._metrics = task, forward, rows, metrics
        self._show_progress = show_progress
        self._outputs: Outputs | None = None

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        return tag_scores(self._metrics, self._rows.gold, self._predictions(when))

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`. Includes the scores per type; without `metrics`, computes them."""
        predicted = self._predictions("at the end")
        results = tag_scores(self._metrics, self._rows.gold, predicted) if metrics is None else metrics
        gold = self._rows.gold
        scores = self._task.with_baseline(self._rows.data, results, self._metrics, main_metric)
        interval = score_interval(len(gold), resampled_tags(scores.main_metric, gold, predicted))
        return dataclasses.replace(scores, classes=tag_results(gold, predicted), interval=interval)

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """See `Evaluator.mistakes`."""
        assert self._outputs is not None
        return self._rows.mistakes(self._outputs, most)

    def _predictions(self, when: str) -> list[list[str]]:
        self._outputs = check_finite(when, self._forward(self._rows.encoded, show_progress=self._show_progress))
        return self._rows.tags(self._outputs)
