"""A network's wrong answers, the most certain first, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_MISTAKES = 20


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A wrong answer.

    Attributes:
      index: the example's index.
      text: the text, or the question.
      pair: the second text, or the part of the paragraph around the right answer; None without one.
      label: the right answer, in words.
      prediction: the network's answer, in words.
      probability: the network's probability for its answer; None for scores.
    """

    index: int
    text: str
    pair: str | None
    label: str
    prediction: str
    probability: float | None


def most_certain(wrong: np.ndarray, certainty: np.ndarray, most: int | None = MOST_MISTAKES) -> list[int]:
    """Returns wrong answers' indices, the most certain first.

    Args:
      wrong: bool `[N]`.
      certainty: float `[N]`.
      most: maximum number of indices; None for all.
    """
    places = np.flatnonzero(wrong)
    order = np.argsort(-certainty[places], kind="stable")[:most]
    return [int(index) for index in places[order]]


def excerpt(text: str, start: int, end: int, margin: int = 120) -> str:
    """Cuts a text around a span at spaces, with an ellipsis where the text continues."""
    first = 0 if start <= margin else text.find(" ", start - margin, start) + 1 or start
    last = len(text) if end + margin >= len(text) else text.rfind(" ", end, end + margin)
    last = end if last < 0 else last
    return ("… " if first else "") + text[first:last] + (" …" if last < len(text) else "")


def listed(names: Sequence[str], none: str) -> str:
    """Names with commas, or `none` if there are none."""
    return ", ".join(names) or none
