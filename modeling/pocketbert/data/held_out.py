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

    Texts that have more examples than the part come last, the smaller first, so that one of them is not all of it.

    Args:
      examples: sentences, pairs or questions.
      part: of all examples, about so many: whole texts until there are enough, without the last if with it there would
        be more than twice as many.
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
    sizes, wanted = np.bincount(group_of), part * len(group_of)
    order = order[np.argsort(np.maximum(sizes[order], wanted), kind="stable")]
    totals = np.cumsum(sizes[order])
    enough, bearable = np.searchsorted(totals, wanted) + 1, np.searchsorted(totals, 2 * wanted, side="right")
    # At least one, and never all.
    count = int(np.clip(min(enough, bearable), 1, len(groups) - 1))
    aside = np.isin(group_of, order[:count])
    return examples.select(np.flatnonzero(~aside)), examples.select(np.flatnonzero(aside))
