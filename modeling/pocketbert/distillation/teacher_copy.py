"""Copies the teacher's embedding and pretraining heads into a student (MobileBERT, section 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketbert.configs import PRETRAINING_HEADS
from pocketbert.distillation.method import DistillationSpec

if TYPE_CHECKING:
    from pocketbert.model import Model


# Fields that determine copied weights' shapes. All methods compare vocabularies.
_SHAPES = (
    "hidden_size",
    "embedding_size",
    "embedding_projection",
    "trigram",
    "max_position_embeddings",
    "position_offset",
    "type_vocab_size",
)
_EMBEDDING_NORM = "encoder.embeddings.norm."
_COPIED = ("encoder.embeddings.", "encoder.pooler.", *(f"heads.{kind}." for kind in PRETRAINING_HEADS))


def copy_embedding_and_heads(teacher: Model, student: Model, *, any_norm: bool) -> None:
    """Copies all weights outside the layers from teacher to student.

    These are the embedding; the MLM head with its norm, bias and extra embedding; the next-sentence classifier; and the
    pooler if both models have one. The embedding norm is copied if both models have the same kind, as in the authors'
    TF1 code, which matches names.

    Args:
      teacher: source of the weights.
      student: receives the weights.
      any_norm: also copy the embedding norm's scale and shift between different kinds, as in the authors' TF2 code.
    """
    teacher_weights = teacher.weights_by_path()
    norms = any_norm or teacher.config.norm == student.config.norm
    for path, variable in student.weights_by_path().items():
        copied = path.startswith(_COPIED) and (norms or not path.startswith(_EMBEDDING_NORM))
        if copied and path in teacher_weights:
            variable.assign(teacher_weights[path])


def copy_problems(spec: DistillationSpec) -> list[str]:
    """Returns problems with copying the teacher's embedding and heads, each with a remedy."""
    sizes = [(name, getattr(spec.teacher, name), getattr(spec.student, name)) for name in _SHAPES]
    others = [f"{name}={size}, received {received}" for name, size, received in sizes if size != received]
    problems = []
    if others:
        problems.append(
            f"to copy the teacher's embedding and heads, the student needs {'; '.join(others)}; give a student with "
            "these values, or a strategy that copies nothing (auxiliary, none)"
        )
    heads = PRETRAINING_HEADS if spec.teacher_heads is None else spec.teacher_heads
    missing = [kind for kind in PRETRAINING_HEADS if kind not in heads]
    if missing:
        problems.append(
            f"to copy its heads, the teacher needs {' and '.join(PRETRAINING_HEADS)}; it lacks "
            f"{' and '.join(missing)}; give a teacher from pretraining"
        )
    return problems
