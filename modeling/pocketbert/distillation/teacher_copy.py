"""The teacher's embedding and pretraining heads in a student that keeps its own layers (MobileBERT, section 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pocketbert.configs import PRETRAINING_HEADS
from pocketbert.distillation.method import DistillationSpec

if TYPE_CHECKING:
    from pocketbert.model import Model


# What shapes the copied weights; the vocabulary is compared in every method.
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
    """Copies what stands outside of the layers.

    That is the embedding; the masked-LM head with its norm, bias and extra table; the next-sentence classifier; and the
    pooler where both have one. The embedding's norm is copied where both models have the same kind, as the authors' TF1
    code does, which goes by names.

    Args:
      teacher: gives the weights.
      student: its weights are set.
      any_norm: copy the embedding norm's scale and shift into another kind of norm too, as the authors' TF2 code does.
    """
    theirs = teacher.weights_by_path()
    norms = any_norm or teacher.config.norm == student.config.norm
    for path, variable in student.weights_by_path().items():
        copied = path.startswith(_COPIED) and (norms or not path.startswith(_EMBEDDING_NORM))
        if copied and path in theirs:
            variable.assign(theirs[path])


def copy_problems(spec: DistillationSpec) -> list[str]:
    """What keeps the teacher's embedding and heads from fitting into the student, each with its remedy."""
    sizes = [(name, getattr(spec.teacher, name), getattr(spec.student, name)) for name in _SHAPES]
    others = [f"{name} must be {size} and is {own}" for name, size, own in sizes if size != own]
    problems = []
    if others:
        problems.append(
            f"the teacher's embedding and heads are copied, so the student's {', its '.join(others)}; give a student "
            "with the teacher's, or a strategy that copies nothing (auxiliary, none)"
        )
    heads = PRETRAINING_HEADS if spec.teacher_heads is None else spec.teacher_heads
    missing = [kind for kind in PRETRAINING_HEADS if kind not in heads]
    if missing:
        problems.append(
            f"the teacher must have the heads of pretraining, {' and '.join(PRETRAINING_HEADS)}, for the student to "
            f"take; it lacks {' and '.join(missing)}; give a teacher as pretraining leaves it"
        )
    return problems
