"""AdamW for weights that a step may update in part: a supernet's (EfficientBERT, search stage 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pocketbert.training.optimizers import AdamW, StepScalars


class SlicedAdamW(AdamW):
    """`AdamW` with a step count per weight, or per column or row in weights updated in part.

    A gradient smaller than its weight updates the leading part of weight and moments. The rest keeps its bits: it
    neither decays nor ages. Bias correction counts updates per weight, column or row; torch counts them per weight. The
    learning rate follows the number of all steps. Weights that each step updates entirely change as with `AdamW`.

    Departure from the authors' code: there, zeros fill up a part's gradient, so moments and weight decay outside a
    candidate continue as if their gradient were zero.

    Call `begin_step`, `update_step` for each weight with a gradient, and `end_step`.

    Args:
      learning_rate: see `AdamW`.
      sliced_axes: name → axis for weights updated in part.
      **options: see `AdamW`.
    """

    def __init__(self, learning_rate: Any = 2e-5, *, sliced_axes: Mapping[str, int], **options: Any) -> None:
        super().__init__(learning_rate, **options)
        self._sliced_axes = dict(sliced_axes)

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Creates the moments and each weight's update count: a scalar, or one per column or row."""
        built = getattr(self, "_built", False)
        super().build(var_list)
        if built:
            return
        self._counts = []
        for variable in var_list:
            axis = self._sliced_axes.get(self._weight_name(self._var_key(variable)))
            shape = [] if axis is None else [size if at == axis else 1 for at, size in enumerate(variable.shape)]
            self._counts.append(tf.Variable(tf.zeros(shape, tf.int64), trainable=False, name="count"))

    def named_state(self) -> dict[str, tf.Variable]:
        """See `NamedOptimizer`; adds `count/NAME`."""
        counts = {f"count/{self._weight_name(key)}": self._counts[index] for key, index in self._index_dict.items()}
        return {**super().named_state(), **counts}

    def begin_step(self) -> None:
        """Sets the step's learning rate."""
        self._compute_current_learning_rate()

    def end_step(self) -> None:
        """Counts the step."""
        self.iterations.assign_add(1)

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Updates a weight, or the leading part with the gradient's shape."""
        count = self._counts[self._index_dict[self._var_key(variable)]]
        if count.shape.rank:
            part = _leading(gradient, count)
            count[part].assign(count[part] + 1)
        else:
            count.assign_add(1)
        super().update_step(gradient, variable)

    def _update(
        self, name: str, gradient: tf.Tensor, variable: tf.Variable, m: tf.Variable, v: tf.Variable, at: StepScalars
    ) -> tf.Operation:
        count = self._counts[self._index_dict[self._var_key(variable)]]
        reached = count[_leading(gradient, count)] if count.shape.rank else count.read_value()
        updates = tf.cast(reached, tf.float32)
        if self.bias_correction:
            at = replace(at, beta_1_power=tf.pow(self.beta_1, updates), beta_2_power=tf.pow(self.beta_2, updates))
        if name not in self._sliced_axes:
            return super()._update(name, gradient, variable, m, v, at)
        part = _leading(gradient, variable)
        weight = variable[part]
        if self._decays(name):
            weight -= weight * (at.rate * self.decay_rate)
        new_m, new_v = self._update_moments(gradient, m, v)
        rate = at.rate * tf.sqrt(1 - at.beta_2_power) / (1 - at.beta_1_power)
        return variable[part].assign(weight - rate * new_m / (tf.sqrt(new_v) + self.epsilon))

    def _update_moments(self, gradient: tf.Tensor, m: tf.Variable, v: tf.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        part = _leading(gradient, m)
        new_m = m[part] + (gradient - m[part]) * (1 - tf.constant(self.beta_1))
        new_v = v[part] + (tf.square(gradient) - v[part]) * (1 - tf.constant(self.beta_2))
        m[part].assign(new_m)
        v[part].assign(new_v)
        return new_m, new_v


def _leading(gradient: tf.Tensor, whole: tf.Variable) -> tuple[slice, ...]:
    """Index of the leading part of `whole` that a gradient reaches; axes with size 1 are whole."""
    return tuple(slice(min(mine, size)) for mine, size in zip(gradient.shape, whole.shape, strict=False))
