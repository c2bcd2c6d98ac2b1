"""HSK's loss from the paper (Liu et al. 2021, sections 2 and 4), in float64, one text after another without padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def kept_tokens(attention: np.ndarray | None, ids: np.ndarray, tokens: int | None, separator: int | None) -> list[int]:
    """Positions to keep: eq. 6 for attention [N, S, S] of one text, otherwise from the left.

    Args:
      attention: of the teacher's layer, or None.
      ids: of the text's own tokens.
      tokens: N_L; None for all.
      separator: id that is never kept, or None.
    """
    places = [index for index in range(len(ids)) if ids[index] != separator]
    if tokens is None:
        return list(range(len(ids)))
    if attention is not None:
        scores = [sum(float(head[0, index]) for head in attention) / len(attention) for index in range(len(ids))]
        # A stable sort leaves ties in the order of their positions.
        places = sorted(sorted(places, key=lambda index: -scores[index])[:tokens])
    return places[:tokens]


def masked(vector: np.ndarray, width: int, static: Sequence[int] | None) -> np.ndarray:
    """M ⊙ h (section 4.3.1): a static mask, or the activations with the largest magnitude."""
    indices = sorted(range(len(vector)), key=lambda i: -abs(float(vector[i])))[:width] if static is None else static
    mask = np.zeros(len(vector))
    mask[list(indices)] = 1
    return mask * vector


def loss(
    teacher: Sequence[np.ndarray],
    student: Sequence[np.ndarray],
    attention: Sequence[np.ndarray] | None,
    ids: np.ndarray,
    mask: np.ndarray,
    *,
    tokens: int | None,
    separator: int | None,
    width: int,
    static: Sequence[int] | None,
) -> float:
    """Eq. 3 over pairs: teacher [B, S, d], projected student [B, S, d], attention [B, N, S, S]."""
    total = 0.0
    for pair, (teacher_state, student_state) in enumerate(zip(teacher, student, strict=True)):
        squares: list[float] = []
        for text in range(len(ids)):
            length = int(mask[text].sum())
            scores = None if attention is None else attention[pair][text][:, :length, :length]
            for kept_token in kept_tokens(scores, ids[text, :length], tokens, separator):
                target = masked(teacher_state[text, kept_token].astype(np.float64), width, static)
                squares += [
                    (float(a) - float(b)) ** 2 for a, b in zip(student_state[text, kept_token], target, strict=True)
                ]
        total += sum(squares) / len(squares)
    return total
