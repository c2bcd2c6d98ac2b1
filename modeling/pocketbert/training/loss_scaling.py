"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2, https://arxiv.org/abs/1710.03740).

float16 rounds gradients below 2^-25 to 0, so a scale multiplies the loss before the backward pass and divides the
gradients of the float32 weights. An update with an infinite or NaN gradient is skipped and halves the scale, down to 1;
2000 updates without one double it. The scale starts at 2^15. The optimizer is Keras' `LossScaleOptimizer`, which Keras
puts around every optimizer under its `mixed_float16` policy; a skipped update advances the learning rate, but changes
neither weights nor moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.errors import TrainingFailed
from pocketbert.progress import log_info
from pocketbert.training.gradients import Gradient

# Names in step results and log lines.
SKIPPED, LOSS_SCALE = "skipped", "loss_scale"
_LEAST_SCALE = 1.0


def scales_losses(optimizer: Any) -> bool:
    """Whether an optimizer scales losses."""
    return isinstance(optimizer, tf_keras.mixed_precision.LossScaleOptimizer)


def with_loss_scaling(optimizer: Any) -> Any:
    """Wraps an optimizer for models under the current precision policy, as Keras' `compile` does."""
    is_float16 = tf_keras.mixed_precision.global_policy().name == "mixed_float16"
    return tf_keras.mixed_precision.LossScaleOptimizer(optimizer) if is_float16 else optimizer


def without_loss_scaling(optimizer: Any) -> Any:
    """Returns the optimizer for the weights."""
    return optimizer.inner_optimizer if scales_losses(optimizer) else optimizer


def loss_scale(optimizer: Any) -> float:
    """Returns the current scale of an optimizer with loss scaling."""
    return float(optimizer.loss_scale)


def scaled_loss(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """Returns the loss to differentiate."""
    return optimizer.get_scaled_loss(loss) if scales_losses(optimizer) else loss


def unscaled_gradients(optimizer: Any, gradients: Sequence[Gradient | None]) -> Sequence[Gradient | None]:
    """Converts gradients of the `scaled_loss` to gradients of the loss."""
    return optimizer.get_unscaled_gradients(gradients) if scales_losses(optimizer) else gradients


def apply_gradients(optimizer: Any, gradients_and_variables: Sequence[tuple[Gradient, tf.Variable]]) -> dict[str, Any]:
    """Takes one step with unscaled gradients.

    Returns:
      With loss scaling, `skipped`: float32 scalar, 1 for a skipped update, else 0. Otherwise nothing.
    """
    if not scales_losses(optimizer):
        optimizer.apply_gradients(gradients_and_variables)
        return {}
    before = optimizer.loss_scale
    optimizer.apply_gradients(gradients_and_variables)
    # The counter also starts again after the scale has been doubled.
    skipped = tf.equal(tf.convert_to_tensor(optimizer.dynamic_counter), 0) & (optimizer.loss_scale <= before)
    return {SKIPPED: tf.cast(skipped, tf.float32)}


def loss_scale_state(optimizer: Any) -> dict[str, tf.Variable]:
    """Returns the scale and the updates since it changed, by name, for checkpoints; nothing without loss scaling."""
    if not scales_losses(optimizer):
        return {}
    # Keras has no public name for this variable.
    return {
        f"{LOSS_SCALE}/scale": optimizer._loss_scale.current_loss_scale,
        f"{LOSS_SCALE}/updates": optimizer.dynamic_counter,
    }


def report_skipped(rows: Sequence[Sequence[float]], column: int, last_step: int, scale: float) -> int:
    """Logs the skipped updates and returns their number.

    Args:
      rows: values for consecutive steps.
      column: index of `skipped` in a row.
      last_step: step in the last row.
      scale: the current scale.
    Raises:
      TrainingFailed: an update was skipped at the least scale.
    """
    steps = [last_step - len(rows) + 1 + index for index, row in enumerate(rows) if row[column]]
    if not steps:
        return 0
    named = ", ".join(map(str, steps[:5])) + (", …" if len(steps) > 5 else "")
    if scale <= _LEAST_SCALE:
        raise TrainingFailed(
            f"gradients must fit into float16; at step {steps[-1]} some do not, although the loss is not scaled up any "
            "more; use bfloat16 or float32"
        )
    log_info(
        f"skipped {len(steps)} update{'s' if len(steps) > 1 else ''}, at step {named}: gradients overflowed float16; "
        f"the loss scale is now {scale:g}"
    )
    return len(steps)
