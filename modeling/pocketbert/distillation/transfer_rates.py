"""Learning-rate multipliers per layer for knowledge transfer (MobileBERT, section 3.6).

TensorFlow is imported inside functions only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

# Factors in the authors' code, `layer_wise_learning_rate` in mobilebert/distill_util.py; the paper gives none.
CURRENT_LAYER = 3.0
LOWER_LAYERS = 0.3


def layer_of(name: str) -> int | None:
    """Returns a weight's layer by its name in a model directory, from 1; None for embedding and heads."""
    match = re.search(r"\.encoder\.layer\.(\d+)\.", name)
    return int(match[1]) + 1 if match else None


def background(step: tf.Tensor | int, steps: int) -> tf.Tensor:
    """Computes a phase's schedule, float32: warm-up over the first tenth, then slow decay to 0.9.

    b(t) = min(10·t/T, 0.9 + 0.1·√(1 − t/T)); b = 1 for T = 1.

    Source: `get_background_lr` in the authors' mobilebert/distill_util.py; the paper gives no schedule.

    Args:
      step: t, counted from 0 in the phase; any shape.
      steps: T, steps in the phase.
    """
    import tensorflow as tf

    done = tf.cast(step, tf.float32) / steps
    if steps == 1:
        return tf.ones_like(done)
    return tf.minimum(10.0 * done, 0.9 + 0.1 * tf.sqrt(tf.maximum(1.0 - done, 0.0)))


@dataclass(frozen=True, kw_only=True)
class TransferRates:
    """Learning-rate multipliers for one knowledge transfer phase; a `Stage.learning_rate_multiplier`.

    The multipliers at step t of T, with b from `background`:

    - current layers: 3·b(t);
    - layers below: 0 if frozen, as in the paper, otherwise 0.3·b(t);
    - layers above, embedding and heads: 0.

    The factors and b come from the authors' code. Departure: when b is 0, in each phase's first step, the authors'
    optimizer zeroes its moments, so they start with the second step's gradient. Here each stage has a new optimizer,
    and the first gradient enters the moments although no weight changes.

    Attributes:
      first: lowest current layer, counted from 1.
      last: highest current layer.
      steps: T, steps in the phase.
      lower: whether the layers below continue to learn.
    """

    first: int
    last: int
    steps: int
    lower: bool

    def peak(self, layer: int | None) -> float:
        """Returns a layer's multiplier for b = 1; None stands for embedding and heads."""
        if layer is None or layer > self.last:
            return 0.0
        if layer >= self.first:
            return CURRENT_LAYER
        return LOWER_LAYERS if self.lower else 0.0

    def trains(self, name: str) -> bool:
        """Returns whether a weight, by its name in the model directory, changes in this phase."""
        return self.peak(layer_of(name)) > 0

    def __call__(self, name: str, step: tf.Tensor) -> tf.Tensor | float:
        """Returns a weight's multiplier at a step in the phase; the Python number 0 for frozen weights."""
        peak = self.peak(layer_of(name))
        return peak * background(step, self.steps) if peak else 0.0
