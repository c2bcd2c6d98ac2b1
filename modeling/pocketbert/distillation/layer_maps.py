"""Layer maps: student layer m learns from teacher layer n = g(m) (TinyBERT, sections 3.1 and 4.6).

A map is the tuple g(1), …, g(M) for a student with M layers and a teacher with N layers. Layers count from 1. Layer 0,
the embedding output, always maps to 0.
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
    """Maps to every k-th layer, where k = N / M; the last layer maps to the last.

    TinyBERT, section 4.2: g(m) = 3m for 12 → 4 layers. Departure: in the paper, M always divides N. For other N, g(m)
    is m·N/M rounded to the nearest integer, halves up: 6 → 4 gives 2, 3, 5, 6.

    Raises:
      UserError: the student has more layers than the teacher.
    """
    _check(student_layers, teacher_layers)
    # floor(m·N/M + 1/2) in integers, because Python's `round` rounds halves to even.
    return tuple(
        (2 * layer * teacher_layers + student_layers) // (2 * student_layers) for layer in range(1, student_layers + 1)
    )


def first(student_layers: int, teacher_layers: int) -> LayerMap:
    """Maps to the first layers: g(m) = m, the paper's bottom strategy. Raises as `uniform`."""
    _check(student_layers, teacher_layers)
    return tuple(range(1, student_layers + 1))


def last(student_layers: int, teacher_layers: int) -> LayerMap:
    """Maps to the last layers: g(m) = m + N - M, the paper's top strategy. Raises as `uniform`."""
    _check(student_layers, teacher_layers)
    return tuple(range(teacher_layers - student_layers + 1, teacher_layers + 1))


def explicit(layers: Sequence[int], student_layers: int, teacher_layers: int) -> LayerMap:
    """Checks a map given as a list.

    Args:
      layers: g(1) to g(M); duplicates are allowed.
      student_layers: M.
      teacher_layers: N.
    Raises:
      UserError: the list does not have M layers, or has layers that the teacher lacks.
    """
    problems = []
    shown = ",".join(map(str, layers))
    if len(layers) != student_layers:
        problems.append(
            f"give one teacher layer for each of the student's {student_layers} layers; received {len(layers)}: {shown}"
        )
    outside = [layer for layer in layers if not 1 <= layer <= teacher_layers]
    if outside:
        problems.append(f"teacher layers must be 1 to {teacher_layers}; received {','.join(map(str, outside))}")
    raise_if_any(problems, "layer map")
    return tuple(layers)


_STRATEGIES = {"uniform": uniform, "top": last, "bottom": first}


def named(mapping: str, student_layers: int, teacher_layers: int) -> LayerMap:
    """Returns the map for an option's value.

    Args:
      mapping: `uniform`, `top`, `bottom` (TinyBERT, table 4), or a list of layers such as `3,6,9,12`.
      student_layers: M.
      teacher_layers: N.
    Raises:
      UserError: the name is unknown, or the list does not fit.
    """
    if mapping in _STRATEGIES:
        return _STRATEGIES[mapping](student_layers, teacher_layers)
    try:
        layers = [int(text) for text in mapping.split(",")]
    except ValueError:
        raise UserError(
            f"layer map: must be one of {', '.join(_STRATEGIES)}, or layers such as 3,6,9,12; received {mapping!r}"
        ) from None
    return explicit(layers, student_layers, teacher_layers)


def layer_targets(stage: Stage, teacher: Features, names: Iterable[str]) -> dict[str, tf.Tensor]:
    """Returns the teacher's features by name and layer: `hidden_states_3`, `attention_logits_3`; each layer once."""
    return {
        f"{name}_{layer}": tensor
        for name in names
        if name in stage.teacher_features
        for layer, tensor in zip(stage.teacher_features[name], teacher[name], strict=True)
    }


def layer_pairs(
    name: str, stage: Stage, student: Features, targets: Mapping[str, tf.Tensor]
) -> Iterator[tuple[int, tf.Tensor, tf.Tensor]]:
    """Yields the student's layer, its feature and its target, for each requested layer.

    The stage requests as many layers from the teacher as from the student, in matching order.
    """
    if name in stage.student_features:
        layers = stage.student_features[name], stage.teacher_features[name]
        for student_layer, teachers, learned in zip(*layers, student[name], strict=True):
            yield student_layer, learned, targets[f"{name}_{teachers}"]


def _check(student_layers: int, teacher_layers: int) -> None:
    if not 1 <= student_layers <= teacher_layers:
        raise UserError(
            f"layer map: the student must have at least one layer and at most as many as its teacher; received "
            f"{student_layers} for a teacher with {teacher_layers}; choose a student with fewer layers, or give one "
            "teacher layer for each student layer"
        )
