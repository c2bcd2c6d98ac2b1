"""Targets and loss for learning the teacher's predictions (TinyBERT, eq. 10; HSK, section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pocketbert.configs import TaskConfig
from pocketbert.training.objective import Batch, Features, Targets
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.tasks.base import Task

# A target: int32 [B, S], 1 for tokens with soft labels.
TAUGHT_TOKENS = "taught_tokens"
# The papers give losses for answers per text or question. Eq. 10 applies to tokens and to several heads, too.
KINDS = ("classification", "multi_label", "regression", "span", "token_classification", "several")


def logits_by_name(logits: Sequence[tf.Tensor], config: TaskConfig | None = None) -> dict[str, tf.Tensor]:
    """Returns name → output for a head's logits: `logits`, `start_logits` and `end_logits`, or `token_logits`.

    For several heads, the names begin with the head names in `config`, such as `intent_logits`.
    """
    from pocketbert.tasks.registry import get_task
    from pocketbert_runtime.answers.span import SPAN_OUTPUTS
    from pocketbert_runtime.answers.token_classification import TOKEN_LOGITS

    if config is not None and config.tasks:
        return dict(zip(get_task(config).output_names, logits, strict=True))
    one = TOKEN_LOGITS if logits[0].shape.rank == 3 else "logits"
    return dict(zip((one,) if len(logits) < 2 else SPAN_OUTPUTS, logits, strict=False))


def taught_tokens(soft_labels: tf.Tensor, width: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a batch's soft token labels, and which tokens have them.

    Args:
      soft_labels: [B, at least S, C], 0 for tokens without them.
      width: tokens per row, S.
    Returns:
      Probabilities [B, S, C], which are equal for other tokens, and int32 [B, S].
    """
    import tensorflow as tf

    probabilities = soft_labels[:, :width]
    taught = tf.reduce_any(probabilities > 0, axis=-1)
    equal = tf.ones_like(probabilities) / probabilities.shape[-1]
    return tf.where(taught[..., tf.newaxis], probabilities, equal), tf.cast(taught, tf.int32)


def prediction_terms(
    stage: Stage,
    targets: Targets,
    student: Features,
    batch: Batch,
    *,
    temperature: float = 1.0,
    mean_over_classes: bool = False,
) -> dict[str, tf.Tensor]:
    """Computes `prediction` and `labels`, if the stage has these terms; see `prediction_loss` and `labels_loss`.

    Several heads' predictions are learned as their labels are: by the weighted sum of the head losses.
    """
    from pocketbert.tasks.parts import weighted_sum
    from pocketbert.tasks.registry import get_task
    from pocketbert.training.label_losses import labels_loss
    from pocketbert_runtime.answers.several import part_outputs

    assert stage.task is not None
    terms = {}
    if "prediction" in stage.weights:
        task, outputs = get_task(stage.task), logits_by_name(student["logits"], stage.task)

        def loss(head: Task, teachers: Mapping[str, tf.Tensor], students: Mapping[str, tf.Tensor]) -> tf.Tensor:
            return prediction_loss(
                teachers,
                students,
                batch["input_mask"],
                temperature=temperature,
                mean_over_classes=mean_over_classes,
                independent_labels=head.has_independent_labels,
            )

        of_heads = {
            name: loss(part, part_outputs(name, targets), part_outputs(name, outputs))
            for name, part in task.parts.items()
        }
        terms["prediction"] = weighted_sum(task, of_heads) if of_heads else loss(task, targets, outputs)
    if "labels" in stage.weights:
        terms["labels"] = labels_loss(stage, student, batch)
    return terms


def prediction_loss(
    targets: Mapping[str, tf.Tensor],
    student: Mapping[str, tf.Tensor],
    mask: tf.Tensor,
    *,
    temperature: float = 1.0,
    mean_over_classes: bool = False,
    independent_labels: bool = False,
) -> tf.Tensor:
    """Computes eq. 10 for logits [B, C], its mean over start and end for spans, or squared difference for scores [B].

    For independent labels, it is eq. 10 with each logit's probabilities σ and 1 − σ, a mean over labels, as in the
    label loss. For token logits [B, S, C], it is the mean over all tokens: those without a label have predictions, too.
    With soft labels, it is the mean over the tokens with soft labels, the first ones of words.

    Args:
      targets: the teacher's outputs by name, and `taught_tokens` for soft labels of tokens.
      student: the student's, with the same names.
      mask: [B, S], 1 = token.
      temperature: divides the logits.
      mean_over_classes: whether to divide the loss by the number of classes.
      independent_labels: whether each logit is its own label.
    """
    from pocketbert.distillation.losses import soft_cross_entropy
    from pocketbert.tasks.span import without_padding
    from pocketbert_runtime.answers.token_classification import TOKEN_LOGITS

    # Every example has a first token. This mask counts examples without running a network.
    examples = mask[:, 0]
    if TOKEN_LOGITS in student:
        mask = mask * targets[TAUGHT_TOKENS] if TAUGHT_TOKENS in targets else mask
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
    if independent_labels:
        return _sigmoid_cross_entropy(targets["logits"], logits, temperature, examples)
    loss = soft_cross_entropy(targets["logits"], logits, temperature, examples)
    return loss / logits.shape[-1] if mean_over_classes else loss


def _sigmoid_cross_entropy(target: tf.Tensor, logits: tf.Tensor, temperature: float, mask: tf.Tensor) -> tf.Tensor:
    """Computes the probabilities' mean cross-entropy over labels and examples; float32, from logits [B, C]."""
    import tensorflow as tf

    from pocketbert.layers.loss_normalization import masked_mean

    target, logits = (tf.cast(values, tf.float32) / temperature for values in (tf.stop_gradient(target), logits))
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.sigmoid(target), logits=logits)
    return masked_mean(tf.reduce_mean(losses, axis=1), mask)


def _squared_difference(target: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes the mean squared difference of scores [B] where mask [B] is 1; float32, no gradient for the target."""
    import tensorflow as tf

    from pocketbert.layers.loss_normalization import masked_mean

    target = tf.stop_gradient(tf.cast(target, tf.float32))
    return masked_mean(tf.math.squared_difference(tf.cast(scores, tf.float32), target), mask)
