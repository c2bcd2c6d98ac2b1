"""Learning-rate schedules: linear warm-up, then linear or cosine decay or a constant rate."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import raise_if_any


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class LinearSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then linear decay to 0.

    Devlin et al. 2019, appendix A.2 (https://arxiv.org/abs/1810.04805). Departure: after the warm-up, the decay starts
    from `peak`, as in transformers. In BERT's code it starts at step 0, so the rate then drops to
    peak * (1 - warmup_steps / total_steps).

    Args:
      peak: peak learning rate.
      total_steps: the rate is 0 from this step on.
      warmup_steps: warm-up steps; if positive, the rate at step 0 is 0.
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0) -> None:
        super().__init__()
        problems = _common_problems(peak, warmup_steps)
        if total_steps <= warmup_steps:
            problems.append(f"total_steps must exceed warmup_steps={warmup_steps}; received {total_steps}")
        raise_if_any(problems, "LinearSchedule")
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, a float32 scalar, at a step from 0."""
        position = tf.cast(step, tf.float32)
        down = (self.total_steps - position) / (self.total_steps - self.warmup_steps)
        up = position / max(self.warmup_steps, 1)
        part = tf.where(position < self.warmup_steps, up, self._decay(tf.maximum(down, 0.0)))
        return self.peak * part

    def _decay(self, left: tf.Tensor) -> tf.Tensor:
        """Share of the peak when a share `left` of the steps after the warm-up is left."""
        return left

    def get_config(self) -> dict[str, Any]:
        """Returns arguments for a new instance."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warmup_steps": self.warmup_steps}


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class CosineSchedule(LinearSchedule):
    """Linear warm-up from 0 to `peak`, then half a cosine down to 0, with the arguments of `LinearSchedule`.

    Loshchilov & Hutter 2017, equation 5 (https://arxiv.org/abs/1608.03983), with one period and a minimum of 0.
    """

    def _decay(self, left: tf.Tensor) -> tf.Tensor:
        return 0.5 * (1.0 + tf.cos(math.pi * (1.0 - left)))


@tf_keras.utils.register_keras_serializable(package="pocketbert")
class ConstantSchedule(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then a constant rate.

    Args:
      peak: learning rate after the warm-up.
      warmup_steps: warm-up steps; if positive, the rate at step 0 is 0.
    """

    def __init__(self, peak: float, warmup_steps: int = 0) -> None:
        super().__init__()
        raise_if_any(_common_problems(peak, warmup_steps), "ConstantSchedule")
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate, a float32 scalar, at a step from 0."""
        part = tf.minimum(tf.cast(step, tf.float32) / max(self.warmup_steps, 1), 1.0)
        return self.peak * (part if self.warmup_steps else tf.ones_like(part))

    def get_config(self) -> dict[str, Any]:
        """Returns arguments for a new instance."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _common_problems(peak: float, warmup_steps: int) -> list[str]:
    problems = []
    if not peak > 0:
        problems.append(f"peak must be positive; received {peak}")
    if warmup_steps < 0:
        problems.append(f"warmup_steps must not be negative; received {warmup_steps}")
    return problems
