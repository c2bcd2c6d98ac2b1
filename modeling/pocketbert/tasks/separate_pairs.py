"""Text pairs read by an encoder one by one: rows and vector features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError
from pocketbert_runtime.answers.separate_pairs import ROWS, separate_rows, without_pairs

# Features of a pair for each number of a vector.
FEATURES = 4


def pair_features(vectors: tf.Tensor) -> tf.Tensor:
    """Computes pair features (Conneau et al. 2017, InferSent, section 3.1, https://arxiv.org/abs/1705.02364).

    Args:
      vectors: float [2·P, H]; rows 2·i and 2·i + 1 are the vectors u and v for pair i.
    Returns:
      [u, v, |u − v|, u·v], float [P, 4·H]; u·v is the elementwise product.
    Raises:
      UserError: the number of rows is odd. With an unknown number, TensorFlow's own error.
    """
    rows, width = vectors.shape
    if rows is not None and rows % ROWS:
        raise UserError(f"a head on separate pairs needs two rows for each pair, those of its texts; received {rows}")
    # No `require`: its operation would keep the network in the graph that counts micro-batches.
    first, second = tf.unstack(tf.reshape(vectors, [-1, ROWS, width]), axis=1)
    return tf.concat([first, second, tf.abs(first - second), first * second], axis=-1)


def encode_separately(
    data: Examples, tokenizer: Callable[..., Any], max_length: int, *, show_progress: bool = True
) -> EncodedExamples:
    """Encodes a row for each text in a pair, as `data.batches.encode`; raises `UserError` for single texts."""
    rows = separate_rows(data.texts, data.pairs, tokenizer, max_length, source=data.source, show_progress=show_progress)
    labels = None if data.labels is None else np.repeat(data.labels, ROWS, axis=0)
    return EncodedExamples.of(rows, labels, data.groups)


def require_pairs(data: Examples) -> None:
    """Raises `UserError` if the examples are single texts."""
    if data.pairs is None:
        raise without_pairs(data.source)
