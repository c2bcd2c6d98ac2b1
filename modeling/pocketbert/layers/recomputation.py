"""Gradient checkpointing: the backward pass computes a layer again instead of storing it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pocketbert.layers.dropout import Dropout


def recomputed(
    block: Any,
    x: tf.Tensor,
    mask_bias: tf.Tensor,
    *,
    wanted: Sequence[str],
    is_last: bool,
    relative: tf.Tensor | None = None,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Runs a `Block` in training as `Block.call`, and stores only its input and outputs for the backward pass.

    Chen et al. 2016, section 4.1 (https://arxiv.org/abs/1604.06174), with the layers as segments. Both passes draw the
    same dropout, so the gradients are those without recomputation, up to rounding.

    Args:
      block: the layer.
      x: feature map [B, S, H].
      mask_bias: [B, 1, 1, S]; it gets no gradient.
      wanted: attention features to return, as in `Block.call`.
      is_last: whether this is the encoder's last layer.
      relative: vectors of distances, as in `Block.call`.
    """
    layers = [part for part in block.submodules if isinstance(part, Dropout) and part.generator is not None]
    seeds = [layer.draw_seed() for layer in layers]

    def run(x: tf.Tensor, relative: tf.Tensor | None = None) -> list[tf.Tensor]:
        with _seeded(layers, seeds):
            options = {} if relative is None else {"relative": relative}
            output, features = block(x, mask_bias, wanted=wanted, training=True, is_last=is_last, **options)
        return [output, *(features[name] for name in wanted)]

    # Only arguments and variables get gradients.
    output, *features = tf.recompute_grad(run)(*([x] if relative is None else [x, relative]))
    named: Mapping[str, tf.Tensor] = dict(zip(wanted, features, strict=True))
    return output, dict(named)


@contextlib.contextmanager
def _seeded(layers: Sequence[Dropout], seeds: Sequence[tf.Tensor]) -> Iterator[None]:
    """Context in which the layers use these seeds."""
    for layer, seed in zip(layers, seeds, strict=True):
        layer.seed = seed
    try:
        yield
    finally:
        for layer in layers:
            layer.seed = None
