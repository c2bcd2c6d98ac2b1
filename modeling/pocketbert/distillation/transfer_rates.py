"""Which layers learn, and how fast, while knowledge is transferred layer by layer (MobileBERT, section 3.6).

Nothing here imports TensorFlow before a rate is requested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

# The factors of the authors' code, `layer_wise_learning_rate` in mobilebert/distill_util.py; the paper has none.
CURRENT_LAYER = 3.0
LOWER_LAYERS = 0.3


def layer_of(name: str) -> int | None:
    """The layer that a weight of a model directory belongs to, counted from 1; None for embedding and heads."""
    found = re.search(r"\.encoder\.layer\.(\d+)\.", name)
    return int(found[1]) + 1 if found else None


def background(step: tf.Tensor | int, steps: int) -> tf.Tensor:
    """The course of every rate in one phase: up within its first tenth, then slowly down to 0.9.

    b(t) = min(10·t/T, 0.9 + 0.1·√(1 − t/T)), and 1 where T = 1.

    Source: `get_background_lr` in the authors' mobilebert/distill_util.py; the paper has no schedule.

    Args:
      step: t, counted from 0 in the phase; any shape.
      steps: T, of the phase.

    Returns:
      float32, of the step's shape.
    """
    import tensorflow as tf

    done = tf.cast(step, tf.float32) / steps
    if steps == 1:
        return tf.ones_like(done)
    return tf.minimum(10.0 * done, 0.9 + 0.1 * tf.sqrt(tf.maximum(1.0 - done, 0.0)))


@dataclass(frozen=True, kw_only=True)
class TransferRates:
    """The learning-rate multipliers of one phase of knowledge transfer: a stage's `learning_rate_multiplier`.

    At step t of a phase of T steps, with b of `background`:

    - a current layer's weights: 3·b(t);
    - those of layers below: 0 where they are frozen, as in the paper's text; else 0.3·b(t);
    - those of layers above, of the embedding and of the heads: 0.

    The factors and b are the authors' code's. Their optimizer also sets its moments to zero whenever b is 0, that is
    in each phase's first step, so that theirs begin with the second step's gradient. Departure: a fresh optimizer a
    stage begins with the first step's, whose gradient enters the moments although it moves no weight.

    Attributes:
      first: the lowest current layer, counted from 1.
      last: the highest current layer.
      steps: T.
      lower: the layers below continue to learn.
    """

    first: int
    last: int
    steps: int
    lower: bool

    def peak(self, layer: int | None) -> float:
        """The multiplier where b is 1; None stands for embedding and heads."""
        if layer is None or layer > self.last:
            return 0.0
        if layer >= self.first:
            return CURRENT_LAYER
        return LOWER_LAYERS if self.lower else 0.0

    def trains(self, name: str) -> bool:
        """Whether a weight, by its name in the model directory, changes in this phase."""
        return self.peak(layer_of(name)) > 0

    def __call__(self, name: str, step: tf.Tensor) -> tf.Tensor | float:
        """The multiplier of a weight at a step of the phase; the number 0 for one that does not change."""
        peak = self.peak(layer_of(name))
        return peak * background(step, self.steps) if peak else 0.0
