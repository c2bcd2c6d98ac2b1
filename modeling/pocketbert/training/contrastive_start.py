"""A contrastive start for few examples: moves texts with the same label together before training fits the head.

The loss is SetFit's (Tunstall et al. 2022, section 3.1, https://arxiv.org/abs/2209.11055): it moves the cosine between
two texts to 1 if their labels are equal, and to 0 otherwise. Departures: all pairs in a batch count instead of a
sample, so a step on 32 texts trains on 496 pairs, and there is no dropout.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import TrainingFailed
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.progress import track
from pocketbert.training.head_start import Pooling, read_vectors
from pocketbert.training.loss_scaling import apply_gradients, scaled_loss, unscaled_gradients, with_loss_scaling
from pocketbert.training.optimizers import AdamW
from pocketbert.training.schedules import LinearSchedule

_MOST_PER_BATCH, _RATE, _CLIP_NORM = 32, 1e-4, 1.0


def contrastive_loss(vectors: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean squared distance between cosines and 1 for pairs with equal labels, or 0 for others: float32 scalar.

    Both kinds of pairs weigh the same. A batch with one kind has only its loss.

    Args:
      vectors: float `[B, H]`.
      labels: int `[B]`.
    """
    units = tf.linalg.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
    cosines = tf.matmul(units, units, transpose_b=True)
    equal = labels[:, tf.newaxis] == labels[tf.newaxis]
    # Each pair once, and no text with itself.
    pairs = tf.linalg.band_part(tf.ones_like(cosines), 0, -1) - tf.eye(tf.shape(cosines)[0])
    positive, negative = (pairs * tf.cast(mask, tf.float32) for mask in (equal, ~equal))
    losses = [
        tf.math.divide_no_nan(tf.reduce_sum(weights * tf.square(cosines - target)), tf.reduce_sum(weights))
        for weights, target in ((positive, 1.0), (negative, 0.0))
    ]
    kinds = tf.cast(tf.reduce_any(positive > 0), tf.float32) + tf.cast(tf.reduce_any(negative > 0), tf.float32)
    return tf.math.divide_no_nan(tf.add_n(losses), kinds)


def train_contrastively(
    model: Model,
    pooling: Pooling,
    encoded: EncodedExamples,
    steps: int,
    *,
    most_per_batch: int,
    seed: int,
    frozen: Iterable[str] = (),
    rate_factors: Mapping[str, float] = {},
) -> None:
    """Trains a classifier's encoder on pairs of its examples.

    Args:
      model: the model; its encoder changes.
      pooling: how the head reads a text's vector.
      encoded: examples with one label each.
      steps: number of updates.
      most_per_batch: most examples in a batch; at most 32 are used.
      seed: seed for the example order.
      frozen: paths of weights to leave as they are.
      rate_factors: learning rate factors by weight name in a model directory; 1 for the others.
    Raises:
      TrainingFailed: the loss is infinite or NaN.
    """
    # The mean over tokens does not pass the pooler.
    constant = {*frozen} | {path for path in model.weights_by_path() if pooling == "mean" and ".pooler." in path}
    weights = {
        path: weight
        for path, weight in model.weights_by_path().items()
        if path.startswith("encoder.") and path not in constant
    }
    specs = tensor_specs(model.config, model.tasks)
    named_optimizer = AdamW(
        LinearSchedule(_RATE, steps),
        clip_norm=_CLIP_NORM,
        multiplier=lambda path, step: rate_factors.get(specs[path].weight_name, 1.0),
    )
    named_optimizer.bind(weights)
    named_optimizer.build([*weights.values()])
    optimizer = with_loss_scaling(named_optimizer)

    def step(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape, padding_after_texts(model):
            outputs = model.encoder(inputs, training=False)
            loss = contrastive_loss(read_vectors(model, outputs, inputs["input_mask"], pooling), labels)
            scaled = scaled_loss(optimizer, loss)
        variables = [*weights.values()]
        gradients = tape.gradient(scaled, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        apply_gradients(optimizer, list(zip(unscaled_gradients(optimizer, gradients), variables, strict=True)))
        return loss

    signature = ({name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}, tf.TensorSpec([None], tf.int32))
    traced = tf.function(step, input_signature=signature, autograph=False)
    batches = _batches(encoded, min(most_per_batch, _MOST_PER_BATCH), seed)
    for inputs, labels in track(itertools.islice(batches, steps), "contrastive start", "step", steps):
        loss = traced(inputs, labels)
    # NaN stays NaN, so the last loss tells.
    if steps and not np.isfinite(loss):
        raise TrainingFailed(f"the contrastive start must have a finite loss; received {float(loss)}")


def _batches(encoded: EncodedExamples, most: int, seed: int) -> Iterator[Any]:
    """Yields batches of about equal size without end: one left-over text would have no pair."""
    size = max(2, -(-len(encoded) // -(-len(encoded) // most)))
    for epoch in itertools.count():
        plan = plan_batches(np.asarray(encoded.lengths), batch_size=size, seed=seed, epoch=epoch)
        yield from dataset(encoded, [rows for rows in plan if len(rows) > 1])
