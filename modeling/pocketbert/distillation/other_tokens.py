"""A teacher with another tokenizer than the student's: what it can teach, and its outputs for the student's tokens.

The texts are tokenized twice (`SupervisedTask.teacher_rows`). Outputs per text need nothing else. The start and end
logits of a question are moved to the student's tokens, and features of single tokens cannot be compared. Functions
import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert.notation import argument
from pocketbert.training.objective import Batch, Features
from pocketbert.training.stage import FeatureRequest, Stage

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.configs import TaskConfig
    from pocketbert.distillation.distiller import Teacher

# Far below any logit, and finite: the softmax is 0.
_IMPOSSIBLE = -1e9


def token_problems(
    stages: Sequence[Stage], task: TaskConfig | None, difference: str, *, soft_labels: bool
) -> list[str]:
    """Returns a problem for each stage that compares single tokens.

    Args:
      stages: the run's stages.
      task: the student's task, or None.
      difference: how the tokenizers differ.
      soft_labels: whether the examples have soft labels in place of the teacher's logits.
    """
    from pocketbert.tasks.registry import supervised_task

    problems = []
    for stage in stages:
        features = [name for name in stage.teacher_features if name != "logits" or not soft_labels]
        of_tokens = [name for name in features if name != "logits" or task is None]
        remedy = (
            "give a student with the teacher's vocabulary, or use a method that reads logits alone, such as tinybert "
            "with without=embedding,transformer"
        )
        if features == ["logits"] and task is not None and not supervised_task(task).crosses_tokenizers:
            of_tokens = ["word tags"]
            option = argument("soft_label_columns", python="soft_labels")
            remedy = (
                f"give a student with the teacher's vocabulary, or write the teacher's predictions and give {option}"
            )
        if of_tokens:
            problems.append(
                f"stage {stage.name} compares the {', '.join(of_tokens)} of single tokens, and teacher and student "
                f"have different tokenizers ({difference}); {remedy}"
            )
    return problems


def teacher_features(teacher: Teacher, inputs: Batch, request: FeatureRequest) -> Features:
    """Runs a teacher on its own tokens if the batch has them, else on the student's; token logits are moved.

    Args:
      teacher: the teacher.
      inputs: the student's inputs, and those in `TeacherRows.batch` for another tokenizer.
      request: the teacher's features.
    """
    import tensorflow as tf

    from pocketbert.data.teacher_rows import TEACHER_PREFIX
    from pocketbert.distillation.predictions import logits_by_name
    from pocketbert.layers.embeddings import padding_after_texts

    own = {name.removeprefix(TEACHER_PREFIX): inputs[name] for name in inputs if name.startswith(TEACHER_PREFIX)}
    with padding_after_texts(teacher):
        features = teacher.features(own or inputs, request, training=False)
    moved = {name: partners for name, partners in own.items() if not name.startswith("input_")}
    if not moved:
        return features
    width = tf.shape(inputs["input_word_ids"])[1]
    logits = logits_by_name(features["logits"])
    return {**features, "logits": [moved_logits(logits[name], moved[name], width) for name in logits]}


def moved_logits(logits: tf.Tensor, partners: tf.Tensor, width: tf.Tensor | int) -> tf.Tensor:
    """Moves the teacher's token logits to the student's tokens: their softmax is the moved, renormalized probability.

    A student's token gets the sum of its partners' probabilities, log Σ exp z, and 0 without a partner. One partner's
    logit stays the same bit for bit. Probabilities without a partner are dropped.

    Args:
      logits: [B, T], the teacher's, at temperature 1.
      partners: int32 [B, T], positions of the student's tokens, or -1; also for padding.
      width: S, the student's tokens per row.
    Returns:
      float32 [B, S].
    """
    import tensorflow as tf

    goes = partners[:, tf.newaxis, :] == tf.range(width)[:, tf.newaxis]
    logits = tf.where(goes, tf.cast(logits, tf.float32)[:, tf.newaxis, :], -float("inf"))
    return tf.maximum(tf.reduce_logsumexp(logits, axis=2), _IMPOSSIBLE)
