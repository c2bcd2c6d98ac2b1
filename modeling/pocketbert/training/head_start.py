"""Starts a new head: where it reads the text, and weights fitted on features from the pretrained encoder."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from pocketbert.checkpoints.families.registry import family_of
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.data.examples import evenly
from pocketbert.encoder import INPUT_NAMES
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.classification import SentenceHead, mean_vectors
from pocketbert.tasks.linear_fits import LinearFit, LinearForm, fit_linear
from pocketbert.tasks.prediction_layers import PredictionLayers
from pocketbert.tasks.separate_pairs import pair_features
from pocketbert_runtime.forward import GatheredOutputs

Pooling = Literal["first", "mean"]
# Most tokens in a fit: more hardly change it.
_MOST_TOKENS = 20_000
_BATCH_SIZE = 64
# Mean feature length in a fit.
_LENGTH = 10.0
# The first token makes the last layer cheaper on a phone; the mean suits more encoders. Within this factor of the loss,
# noise decides, and the mean is the safer choice.
_CLEARLY = 1.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadStart:
    """How a head starts.

    Attributes:
      pooling: where the head reads the text.
      separates_pairs: whether the head reads separate vectors for the texts in a pair.
      fit: initial weights for the linear map.
      losses: cross-validated losses of the compared poolings.
    """

    pooling: Pooling
    separates_pairs: bool = False
    fit: LinearFit
    losses: dict[str, float]

    @property
    def reason(self) -> str:
        """Explains the choice in one line."""
        if len(self.losses) < 2:
            features = "features of the separate vectors" if self.separates_pairs else "frozen features"
            return f"the head starts from a linear fit on {features} (cross-validated loss {self.fit.loss:.3f})"
        losses = " and ".join(f"{name} {loss:.3f}" for name, loss in self.losses.items())
        return (
            f"pooling={self.pooling}: cross-validated losses of a linear fit on frozen features are {losses}; the head "
            "starts from this fit"
        )


def fit_head(
    model: Model,
    task: SupervisedTask,
    data: Any,
    max_length: int,
    poolings: Sequence[Pooling],
    class_weights: np.ndarray | None = None,
    *,
    most_examples: int,
) -> HeadStart | None:
    """Fits a head on features from the frozen encoder; None for tasks without such a fit.

    Args:
      model: the model with a new head on the first token, or on all tokens.
      task: the head's task.
      data: labelled training examples.
      max_length: maximum sequence length.
      poolings: poolings to compare; the smallest cross-validated loss wins.
      class_weights: float32 [classes], for the task's `weighted_classes`; None for 1.
      most_examples: most examples in the fit; more are thinned out evenly.
    """
    if task.linear_form is None:
        return None
    chosen = data.select(evenly(len(data), most_examples))
    encoded = task.encode(chosen, model.tokenizer, max_length)
    if task.per_token and (count := math.ceil(len(chosen) * _MOST_TOKENS / _count_labels(encoded))) < len(chosen):
        # The encoder computes no other examples.
        encoded = task.encode(chosen.select(evenly(len(chosen), count)), model.tokenizer, max_length)
    labels = encoded.labels
    assert labels is not None
    if task.per_token:
        features, labels = _labelled_tokens(frozen_tokens(model, task, encoded), encoded)
        by_pooling: dict[Pooling, np.ndarray] = {"first": features}
    else:
        # Row by row: each has its own vector.
        by_pooling = frozen_vectors(model, task, dataclasses.replace(encoded, rows_per_example=1), poolings)
    if task.separates_pairs:
        labels = labels[:: encoded.rows_per_example]
        by_pooling = {name: pair_features(tf.constant(rows)).numpy() for name, rows in by_pooling.items()}
    outputs = task.num_logits or 1
    weights = None if class_weights is None else task.loss_factors(class_weights, tf.constant(labels)).numpy()
    # Token features are compared with nothing, and the penalty's strengths suit them unscaled.
    fit_map = fit_linear if task.per_token else _fit_scaled
    fits = {
        pooling: fit_map(task.linear_form, features, labels, outputs, weights)
        for pooling, features in by_pooling.items()
    }
    losses = {pooling: fit.loss for pooling, fit in fits.items()}
    pooling = min(losses, key=lambda name: losses[name] * (_CLEARLY if name == "first" else 1.0))
    return HeadStart(
        pooling=pooling,
        separates_pairs=task.separates_pairs,
        fit=fits[pooling],
        losses={str(name): loss for name, loss in losses.items()},
    )


def _fit_scaled(form: LinearForm, features: np.ndarray, *others: Any) -> LinearFit:
    """Scales features to the length that suits the penalty, fits, and returns the map for the unscaled features."""
    scale = _LENGTH / max(float(np.linalg.norm(features, axis=1).mean()), 1e-6)
    fit = fit_linear(form, scale * features, *others)
    return dataclasses.replace(fit, kernel=scale * fit.kernel)


def start_head(model: Model, fit: LinearFit, part: str | None = None) -> None:
    """Sets the linear map in the first head, or in its part with the name `part`."""
    head = next(iter(model.heads.values()))
    head = head if part is None else head.parts[part]
    head.output_projection.kernel.assign(fit.kernel)
    head.output_projection.bias.assign(fit.bias)


def frozen_vectors(
    model: Model, task: SupervisedTask, encoded: EncodedExamples, poolings: Sequence[Pooling]
) -> dict[Pooling, np.ndarray]:
    """Computes the vectors that a head would read with each pooling, float32 [N, H]."""

    def read(outputs: dict[str, tf.Tensor], mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return {pooling: read_vectors(model, outputs, mask, pooling) for pooling in poolings}

    gathered = _run(model, task, encoded, read)
    return {pooling: gathered[pooling] for pooling in poolings}


def read_vectors(model: Model, outputs: dict[str, tf.Tensor], mask: tf.Tensor, pooling: Pooling) -> tf.Tensor:
    """Reads the vectors for the model's head with a pooling, float32 [B, H], from encoder outputs."""
    head, encoded = next(iter(model.heads.values())), {**outputs, "input_mask": mask}
    if family_of(model.config.model_type).has_prediction_layers and isinstance(head, SentenceHead):
        return tf.cast(head.predicted_text(encoded, pooling == "mean"), tf.float32)
    if pooling == "mean":
        return mean_vectors(outputs["sequence_output"], mask)
    return tf.cast(head.pooled(encoded, training=False), tf.float32)


def frozen_tokens(model: Model, task: SupervisedTask, encoded: EncodedExamples) -> np.ndarray:
    """Computes what a token head's map reads for all tokens, float32 [T, H], without padding."""
    head = next(iter(model.heads.values()))
    read = head.predicted if isinstance(head, PredictionLayers) else tf.identity
    return _run(model, task, encoded, lambda outputs, mask: {"tokens": read(outputs["sequence_output"])})["tokens"]


def frozen_means(model: Model, task: SupervisedTask, encoded: EncodedExamples) -> np.ndarray:
    """Computes the mean token vectors, scaled to length 10, float32 [N, H]."""
    read = _run(model, task, encoded, lambda outputs, mask: {"mean": mean_vectors(outputs["sequence_output"], mask)})
    return read["mean"]


def _run(
    model: Model,
    task: SupervisedTask,
    encoded: EncodedExamples,
    read: Callable[[dict[str, tf.Tensor], tf.Tensor], dict[str, tf.Tensor]],
) -> dict[str, np.ndarray]:
    def features(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        with padding_after_texts(model):
            return read(model.encoder(inputs, training=False), inputs["input_mask"])

    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
    call = tf.function(features, input_signature=[signature], autograph=False)
    plan = plan_batches(encoded.lengths, batch_size=_BATCH_SIZE, seed=0, epoch=0, shuffle=False)
    gathered = GatheredOutputs(encoded, task)
    for indices, inputs in zip(plan, dataset(encoded.unlabelled(), plan), strict=True):
        gathered.add(indices, {name: values.numpy() for name, values in call(inputs).items()})
    return gathered.outputs


def _count_labels(encoded: EncodedExamples) -> int:
    assert encoded.labels is not None
    return max(int((encoded.labels >= 0).sum()), 1)


def _labelled_tokens(features: np.ndarray, encoded: EncodedExamples) -> tuple[np.ndarray, np.ndarray]:
    """Selects features [T, H] and labels [T] for tokens with a label, spread evenly if there are too many."""
    assert encoded.labels is not None
    lengths = np.diff(encoded.offsets)
    flat = encoded.labels[np.arange(encoded.labels.shape[1]) < lengths[:, np.newaxis]]
    places = np.flatnonzero(flat >= 0)
    places = places[evenly(len(places), _MOST_TOKENS)]
    return features[places], flat[places]
