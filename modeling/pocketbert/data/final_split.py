"""Three splits: one to train on, one to choose with, and one that only the final score reads."""

from __future__ import annotations

import dataclasses

from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError

SHARE, LEAST = 0.15, 100
_FEWEST = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreeSplits:
    """Data of a choice among models.

    Attributes:
      data: training examples, and the dev split for the choice.
      final: examples that no training and no choice reads.
    """

    data: TaskData
    final: TaskData


def three_splits(data: TaskData, *, final: TaskData | None = None, seed: int = 0) -> ThreeSplits:
    """Divides labelled data; examples with the same text stay together, and classes keep their shares.

    Args:
      data: the examples; its dev split is not changed.
      final: data whose dev split is the final one; None draws 15 % of the training examples, at least 100.
      seed: random seed.

    Raises:
      UserError: there are fewer than 500 examples.
    """
    if final is not None:
        return ThreeSplits(data=data, final=final)
    count = len(data.train)
    if count < _FEWEST:
        raise UserError(
            f"a choice among models needs at least {_FEWEST} training examples; received {count} in "
            f"{data.train.source}; label more, or fine-tune and export one model with pocketbert bundle"
        )
    train, rows = train_dev_split(data.train, max(SHARE, LEAST / count), seed, stratify=True)
    return ThreeSplits(
        data=dataclasses.replace(data, train=train), final=dataclasses.replace(data, train=train, dev=rows)
    )
