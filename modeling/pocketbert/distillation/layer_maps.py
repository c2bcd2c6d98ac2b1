"""Which layer of the teacher each layer of the student learns from: n = g(m) (TinyBERT, sections 3.1 and 4.6).

A map is the tuple g(1), …, g(M) of a student with M layers and a teacher with N; layers count from 1, and 0, the
embedding output, is always matched with 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pocketbert.errors import UserError, raise_if_any

if TYPE_CHECKING:
    import tensorflow as tf

    from pocketbert.training.objective import Features
    from pocketbert.training.stage import Stage

LayerMap = tuple[int, ...]


def uniform(student_layers: int, teacher_layers: int) -> LayerMap:
    """Every k-th layer, k = N / M, the last one being the teacher's last.

    TinyBERT, section 4.2: g(m) = 3m for 12 → 4 layers. Departure: the paper has no N that is not a multiple of M;
    there g(m) is m·N/M rounded to the nearest, halves up: 6 → 4 gives 2, 3, 5, 6.

    Raises:
      UserError: the student has more layers than the teacher.
    """
    _check(student_layers, teacher_layers)
    # floor(m·N/M + 1/2) in whole numbers: Python's round takes halves to the even neighbour.
    return tuple(
        (2 * layer * teacher_layers + student_layers) // (2 * student_layers) for layer in range(1, student_layers + 1)
    )


def first(student_layers: int, teacher_layers: int) -> LayerMap:
    """The teacher's first layers: g(m) = m, the paper's bottom strategy.

    Raises:
      UserError: the student has more layers than the teacher.
    """
    _check(student_layers, teacher_layers)
    return tuple(range(1, student_layers + 1))


def last(student_layers: int, teacher_layers: int) -> LayerMap:
    """The teacher's last layers: g(m) = m + N - M, the paper's top strategy.

    Raises:
      UserError: the student has more layers than the teacher.
    """
    _check(student_layers, teacher_layers)
    return tuple(range(teacher_layers - student_layers + 1, teacher_layers + 1))


def explicit(layers: Sequence[int], student_layers: int, teacher_layers: int) -> LayerMap:
    """A map given as a list, checked.

    Args:
      layers: g(1) to g(M); the same layer may stand more than once.
      student_layers: M.
      teacher_layers: N.

    Raises:
      UserError: not one layer for each of the student's, or layers that the teacher does not have.
    """
    problems = []
    shown = ",".join(map(str, layers))
    if len(layers) != student_layers:
        problems.append(
            f"there must be one of the teacher's layers for each of the student's {student_layers}; received "
            f"{len(layers)}: {shown}"
        )
    outside = [layer for layer in layers if not 1 <= layer <= teacher_layers]
    if outside:
        problems.append(
            f"layers must lie in 1 to {teacher_layers}, the teacher's; received {','.join(map(str, outside))}"
        )
    raise_if_any(problems, "layer map")
    return tuple(layers)


_STRATEGIES = {"uniform": uniform, "top": last, "bottom": first}


def named(mapping: str, student_layers: int, teacher_layers: int) -> LayerMap:
    """The map that a name or a list stands for, as options write it.

    Args:
      mapping: `uniform`, `top`, `bottom` (TinyBERT, table 4), or layers such as `3,6,9,12`.
      student_layers: M.
      teacher_layers: N.

    Raises:
      UserError: no such name, or a list that does not fit.
    """
    if mapping in _STRATEGIES:
        return _STRATEGIES[mapping](student_layers, teacher_layers)
    try:
        layers = [int(text) for text in mapping.split(",")]
    except ValueError:
        raise UserError(
            f"layer map: it must be one of {', '.join(_STRATEGIES)}, or layers with commas between them such as "
            f"3,6,9,12; received {mapping!r}"
        ) from None
    return explicit(layers, student_layers, teacher_layers)


def layer_targets(stage: Stage, teacher: Features, names: Iterable[str]) -> dict[str, tf.Tensor]:
    """The teacher's features as targets, one for each name and layer: `hidden_states_3`, `attention_logits_3`.

    A layer requested twice occurs once.
    """
    return {
        f"{name}_{layer}": tensor
        for name in names
        if name in stage.teacher_features
        for layer, tensor in zip(stage.teacher_features[name], teacher[name], strict=True)
    }


def layer_pairs(
    name: str, stage: Stage, student: Features, targets: Mapping[str, tf.Tensor]
) -> Iterator[tuple[int, tf.Tensor, tf.Tensor]]:
    """The student's layer, its feature and its target, for each layer of a feature that the stage asks for.

    The stage asks teacher and student for as many layers, in the order in which they are matched.
    """
    if name in stage.student_features:
        layers = stage.student_features[name], stage.teacher_features[name]
        for own, teachers, learned in zip(*layers, student[name], strict=True):
            yield own, learned, targets[f"{name}_{teachers}"]


def _check(student_layers: int, teacher_layers: int) -> None:
    if not 1 <= student_layers <= teacher_layers:
        raise UserError(
            f"layer map: a student has at least one layer and at most as many as its teacher; received "
            f"{student_layers} for a teacher of {teacher_layers}; choose a student of fewer layers, or name one of the "
            "teacher's layers for each of the student's"
        )
