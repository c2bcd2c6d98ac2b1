"""Targets and loss of a stage that learns the teacher's predictions (TinyBERT, eq. 10; HSK, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def logits_by_name(logits: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
    """Returns name → output for the logits of a head: `logits`, `start_logits` and `end_logits`, or `token_logits`."""
    from pocketbert.tasks.span import SPAN_OUTPUTS
    from pocketbert.tasks.token_classification import TOKEN_LOGITS

    one = TOKEN_LOGITS if logits[0].shape.rank == 3 else "logits"
    return dict(zip((one,) if len(logits) < 2 else SPAN_OUTPUTS, logits, strict=False))


def prediction_loss(
    targets: Mapping[str, tf.Tensor],
    student: Mapping[str, tf.Tensor],
    mask: tf.Tensor,
    *,
    temperature: float = 1.0,
    mean_over_classes: bool = False,
) -> tf.Tensor:
    """Computes eq. 10 for logits [B, C], the mean over start and end for spans, or squared difference for scores [B].

    For logits of tokens [B, S, C], it is the mean over all tokens: those without a label have predictions, too.

    Args:
      targets: the teacher's outputs by name.
      student: the student's, with the same names.
      mask: [B, S], 1 = token.
      temperature: divides the logits.
      mean_over_classes: whether to divide the loss by the number of classes.
    """
    from pocketbert.distillation.losses import soft_cross_entropy
    from pocketbert.tasks.span import without_padding
    from pocketbert.tasks.token_classification import TOKEN_LOGITS

    # Every example has a first token. This mask counts examples without running a network.
    examples = mask[:, 0]
    if TOKEN_LOGITS in student:
        loss = soft_cross_entropy(targets[TOKEN_LOGITS], student[TOKEN_LOGITS], temperature, mask)
        return loss / student[TOKEN_LOGITS].shape[-1] if mean_over_classes else loss
    if "logits" not in student:
        teachers, students = (
            without_padding({name: outputs[name] for name in student}, mask) for outputs in (targets, student)
        )
        losses = [soft_cross_entropy(teachers[name], students[name], temperature, examples) for name in students]
        return sum(losses[1:], losses[0]) / len(losses)
    logits = student["logits"]
    if logits.shape.rank == 1:
        return _squared_difference(targets["logits"], logits, examples)
    loss = soft_cross_entropy(targets["logits"], logits, temperature, examples)
    return loss / logits.shape[-1] if mean_over_classes else loss


def _squared_difference(target: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes the mean squared difference of scores [B] where mask [B] is 1; float32, no gradient for the target."""
    import tensorflow as tf

    from pocketbert.layers.loss_normalization import masked_mean

    target = tf.stop_gradient(tf.cast(target, tf.float32))
    return masked_mean(tf.math.squared_difference(tf.cast(scores, tf.float32), target), mask)
