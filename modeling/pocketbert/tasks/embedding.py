"""Sentence embeddings: one vector per text; the cosine between two vectors is the similarity between their texts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.data_warnings import count_truncated
from pocketbert.data.examples import Examples, evenly
from pocketbert.data.readers.tables import read_table, table_columns
from pocketbert.data.readers.text_pairs import (
    RECALL_METRICS,
    is_positive,
    positive_pairs,
    single_texts,
    text_numbers,
    texts_per_example,
)
from pocketbert.errors import UserError
from pocketbert.layers.core import Dense
from pocketbert.notation import argument
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.metrics import compute
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert.tasks.outputs import check_finite, mean_over_examples, unit_vectors
from pocketbert.tasks.pair_losses import PairLoss, pair_losses, rows_per_example
from pocketbert.tasks.scores import Scores, score_interval
from pocketbert_runtime.answers.embedding import OUTPUT, VectorAnswers
from pocketbert_runtime.answers.vectors import cosines, ranks
from pocketbert_runtime.embedding_config import EmbeddingConfig, dense_shapes
from pocketbert_runtime.forward import Forward, Outputs

# Below every feature, within float16.
_LOWEST = -6e4
_ACTIVATIONS = {"tanh": tf.tanh, "relu": tf.nn.relu, "gelu": tf.nn.gelu, "identity": tf.identity}


class EmbeddingHead(tf_keras.layers.Layer):
    """Pooling, an optional dense layer and normalization, as in sentence-transformers."""

    def __init__(self, config: EncoderConfig, task: TaskConfig) -> None:
        super().__init__()
        assert task.embedding is not None
        self._config: EmbeddingConfig = task.embedding
        if self._config.dimensions is not None:
            self.dense = Dense(config.hidden_size, self._config.dimensions, bias=self._config.dense_bias)
            if "residual.kernel" in dense_shapes(config, task):
                self.residual = Dense(config.hidden_size, self._config.dimensions, bias=False)

    def call(self, encoded: Mapping[str, tf.Tensor], training: bool | None = None) -> tf.Tensor:
        """Maps `sequence_output` [B, S, H] and `input_mask` [B, S] to float32 [B, D]."""
        config, tokens = self._config, tf.cast(encoded["sequence_output"], tf.float32)
        if config.pooling == "cls":
            vectors = tokens[:, 0]
        else:
            mask = tf.cast(encoded["input_mask"], tf.float32)[:, :, tf.newaxis]
            if config.pooling == "mean":
                vectors = tf.reduce_sum(tokens * mask, axis=1) / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)
            else:
                vectors = tf.reduce_max(tokens * mask + (1.0 - mask) * _LOWEST, axis=1)
        if config.dimensions is not None:
            projected = _ACTIVATIONS[config.dense_activation](tf.cast(self.dense(vectors), tf.float32))
            if config.dense_residual:
                projected += tf.cast(self.residual(vectors), tf.float32) if hasattr(self, "residual") else vectors
            vectors = projected
        return unit_vectors(vectors) if config.normalize else vectors

    def outputs(self, encoded: Mapping[str, tf.Tensor], training: bool | None) -> dict[str, tf.Tensor]:
        """`embedding`, float32 [B, D]."""
        return {OUTPUT: self(encoded, training=training)}

    def losses_by_output(self) -> dict[str, tf_keras.losses.Loss]:
        """Pair or triplet losses, from consecutive rows in a batch; see `pair_losses`."""
        return {OUTPUT: PairLoss()}


class SentenceEmbedding(VectorAnswers, SupervisedTask):
    """A vector for a text, trained on text pairs with scores, or on matching pairs."""

    pipeline_tag = "sentence-similarity"
    has_vectors = True
    data_kinds = ("regression",)
    least_centred_scale = 0.25

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.first_token_only = self.embedding.pooling == "cls"

    @property
    def default_metrics(self) -> tuple[tuple[str, ...], str]:
        """Spearman and Pearson correlation between cosines and scores."""
        return ("spearman", "pearson"), "spearman"

    def selection_metrics(self, dev: Any) -> tuple[str, ...]:
        """Correlations for pairs with scores, recall for positive pairs."""
        return RECALL_METRICS if is_positive(dev) else self.default_metrics[0]

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Removes a tanh pooler: this head would neither read nor train it."""
        return encoder.replace(pooler="none") if encoder.pooler == "tanh" else encoder

    def head(self, encoder: EncoderConfig) -> EmbeddingHead:
        """Returns a head with pooling, dense layer and normalization."""
        return EmbeddingHead(encoder, self.config)

    def loss(
        self, outputs: Mapping[str, tf.Tensor], labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Mean over pairs or triplets; see `pair_losses`. Labels and weights have an entry for each row."""
        labels = tf.convert_to_tensor(labels)
        losses, rows = pair_losses(outputs[OUTPUT], labels), rows_per_example(labels)
        counted = labels[0::rows] if rows == 2 else labels[0::rows, 0]
        return mean_over_examples(losses, counted, None if weights is None else weights[0::rows])

    def centred(self, output: np.ndarray) -> np.ndarray:
        """Subtracts the mean over texts: only differences between texts matter in a search."""
        return output - output.mean(axis=0)

    def read(self, path: str | os.PathLike[str], **columns: Any) -> Examples:
        """Reads pairs from a .csv, .tsv or .jsonl file; for `columns` (default: text, pair and label) see `read_table`.

        Pairs are positive if the file has no column `label` and you name no other one.
        """
        named = {"text_column": "text", "pair_column": "pair", "label_column": "label", "kind": "regression", **columns}
        if named["label_column"] == "label" and "label" not in table_columns(path, named.get("separator", ",")):
            named["label_column"] = None
        return positive_pairs(read_table(path, **named)[0])

    def check_data(self, data: Any) -> None:
        """Checks for `Examples`, with pairs if they have labels."""
        if not isinstance(data, Examples) or (data.labelled and data.pairs is None):
            raise UserError(f"{self.kind} needs pairs of texts; received {data.source}; name the {argument('pair')}")

    def count_truncated(self, data: Examples, tokenizer: Any, max_length: int) -> int:
        """Counts truncated texts; a pair has two, a triplet three."""
        return count_truncated(self.inputs(data).texts, None, tokenizer, max_length)

    def encode(self, data: Examples, tokenizer: Any, max_length: int, **_: Any) -> EncodedExamples:
        """Encodes a row for each text in an example, with labels as in `pair_losses`; longer texts are truncated."""
        return self._encoded(data, tokenizer, max_length)

    def rows(
        self, data: Examples, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any
    ) -> EmbeddingRows:
        """Encodes a row for each text: two for a pair, three for a triplet."""
        if most is not None:
            data = data.select(evenly(len(data), most // texts_per_example(data)))
        return EmbeddingRows(self._encoded(data, tokenizer, max_length, show_progress=False), data)

    def inputs(self, data: Examples) -> Examples:
        """Returns the texts for the encoder, one by one, with the default prompt."""
        return single_texts(data, self.embedding.prompt)

    def evaluator(
        self,
        forward: Forward,
        data: Examples,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        choose_threshold: bool = False,
        show_progress: bool = False,
        **options: Any,
    ) -> EmbeddingEvaluator:
        """See `SupervisedTask.evaluator`. There is no threshold to choose.

        For positive pairs, `metrics` are `RECALL_METRICS`: how often a text finds its partner among all partners.
        """
        self.check_data(data)
        metrics = RECALL_METRICS if is_positive(data) else metrics or self.metrics
        rows = EmbeddingRows(self._encoded(data, tokenizer, max_length), data)
        return EmbeddingEvaluator(self, forward, rows, metrics, show_progress)

    def with_baseline(
        self,
        data: Examples | None,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        """See `SupervisedTask.with_baseline`. The baseline gives all texts the same vector."""
        metric = main_metric or self.main_metric
        main = metric if metric in metrics else next(iter(metrics))
        return Scores(main_metric=main, metrics=metrics, baseline=None)

    def _encoded(
        self, data: Examples, tokenizer: Any, max_length: int, *, show_progress: bool = True
    ) -> EncodedExamples:
        encoded = encode(self.inputs(data), tokenizer, max_length, show_progress=show_progress)
        if data.pairs is None:
            return encoded
        rows = texts_per_example(data)
        labels = None if data.labels is None else np.repeat(data.labels, rows)
        if is_positive(data):
            labels = text_numbers(data)
            if data.negatives is not None:
                labels = np.stack([labels, np.tile(np.arange(rows, dtype=np.int32), len(data))], axis=1)
        return dataclasses.replace(encoded, labels=labels, rows_per_example=rows)


class EmbeddingRows:
    """Texts as token rows, with their pairs' labels.

    Attributes:
      encoded: a row for each text.
    """

    def __init__(self, encoded: EncodedExamples, data: Examples) -> None:
        self.decided = None
        self.encoded = dataclasses.replace(encoded, rows_per_example=1)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def score(self, outputs: Outputs, metric: str) -> tuple[float, None]:
        """See `Rows.score`. A similarity is neither right nor wrong."""
        return self.resampled(outputs, metric)(np.arange(len(self))), None

    def compute(self, outputs: Outputs, names: Sequence[str]) -> dict[str, float]:
        """Computes metrics on all rows' embeddings."""
        first, second, negatives = self._parts(outputs)
        if is_positive(self._data):
            places = self._places(first, second, negatives)
            return {name: float(np.mean(places < int(name.rpartition("_")[2]))) for name in names}
        assert self._data.labels is not None
        return compute(names, self._data.labels, cosines(first, second), self._data.groups)

    def interval(self, outputs: Outputs, metric: str) -> tuple[float, float]:
        """95 % confidence interval for a metric over pairs."""
        resampled = self.resampled(outputs, metric)
        right = round(len(self) * resampled(np.arange(len(self)))) if is_positive(self._data) else None
        return score_interval(len(self), resampled, right=right)

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """See `Rows.resampled`; positive pairs have `recall_at_1` instead of a correlation."""
        first, second, negatives = self._parts(outputs)
        if is_positive(self._data):
            name = metric if metric in RECALL_METRICS else RECALL_METRICS[0]
            hits = self._places(first, second, negatives) < int(name.rpartition("_")[2])
            return lambda indices: float(hits[indices].mean())
        values, labels = cosines(first, second), self._data.labels
        assert labels is not None
        return lambda indices: compute([metric], labels[indices], values[indices])[metric]

    def _parts(self, outputs: Outputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vectors for first texts, second texts and negatives; pairs have no negatives."""
        vectors, step = outputs[OUTPUT], texts_per_example(self._data)
        return vectors[0::step], vectors[1::step], vectors[2::step] if step == 3 else vectors[:0]

    def _places(self, first: np.ndarray, second: np.ndarray, negatives: np.ndarray) -> np.ndarray:
        """Each second text's rank among the different second texts and negatives, by similarity to its first text."""
        assert self._data.pairs is not None
        places: dict[str, int] = {}
        documents = np.concatenate([second, negatives])
        texts = [*self._data.pairs, *(self._data.negatives or ())]
        numbers = np.array([places.setdefault(text, len(places)) for text in texts])
        right, rows = numbers[: len(second)], np.unique(numbers, return_index=True)[1]
        # Equal first texts' partners are right too, and a text does not have to beat itself.
        equal: dict[str, set[int]] = {}
        for text, row in zip(self._data.texts, right.tolist(), strict=True):
            equal.setdefault(text, {places[text]} if text in places else set()).add(row)
        return ranks(first, documents[rows], right, [sorted(equal[text]) for text in self._data.texts])


class EmbeddingEvaluator:
    """Scores a network on pairs; see `SupervisedTask.evaluator`."""

    def __init__(
        self,
        task: SentenceEmbedding,
        forward: Forward,
        rows: EmbeddingRows,
        metrics: Sequence[str],
        show_progress: bool,
    ) -> None:
        self.task: TaskConfig = task.config
        self._task, self._forward, self._rows, self._metrics = task, forward, rows, metrics
        self._show_progress = show_progress

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        return self._rows.compute(self._outputs(when), self._metrics)

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`."""
        outputs = self._outputs("at the end")
        values = self._rows.compute(outputs, self._metrics) if metrics is None else metrics
        scores = self._task.with_baseline(None, values, main_metric=main_metric)
        return dataclasses.replace(
            scores, examples=len(self._rows), interval=self._rows.interval(outputs, scores.main_metric)
        )

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """None: a vector is neither right nor wrong."""
        return []

    def _outputs(self, when: str) -> Outputs:
        return check_finite(when, self._forward(self._rows.encoded, show_progress=self._show_progress))
