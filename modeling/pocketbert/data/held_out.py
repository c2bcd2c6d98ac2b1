"""A part of a user's examples set aside, to choose by where there is no development file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.questions import QuestionFile
from pocketbert.errors import UserError

PART = 0.1

Given = TypeVar("Given", Examples, QuestionFile)


def hold_out(examples: Given, part: float = PART, seed: int = 0) -> tuple[Given, Given]:
    """Draws examples to set aside; those with the same first text, or the same paragraph, stay together.

    Args:
      examples: sentences, pairs or questions.
      part: of all examples, about so many.
      seed: of the draw.

    Returns:
      Those to train on, and those set aside.

    Raises:
      UserError: there are fewer than two different texts.
    """
    texts: Iterable[str]
    texts = (each.context for each in examples) if isinstance(examples, QuestionFile) else examples.texts
    groups: dict[int, int] = {}
    group_of = np.asarray([groups.setdefault(hash(text), len(groups)) for text in texts])
    if len(groups) < 2:
        raise UserError(
            f"to set a part aside there must be at least two different texts; {examples.source} has {len(groups)}; "
            "give a development file"
        )
    order = np.random.default_rng(seed).permutation(len(groups))
    sizes = np.bincount(group_of)[order]
    # At least one, and never all.
    count = int(np.clip(np.searchsorted(np.cumsum(sizes), part * len(group_of)) + 1, 1, len(groups) - 1))
    aside = np.isin(group_of, order[:count])
    return examples.select(np.flatnonzero(~aside)), examples.select(np.flatnonzero(aside))
