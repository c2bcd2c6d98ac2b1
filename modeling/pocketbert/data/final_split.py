"""Three splits: one to train on, one to choose with, and one that only the final score reads."""

from __future__ import annotations

import dataclasses

from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.errors import UserError
from pocketbert.progress import log_info

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
      data: the examples; its dev split is not changed. Augmented examples are left out, since they may stem from
        examples of the final split.
      final: data of the same task whose dev split is the final one; examples with texts of `data` are left out. None
        draws 15 % of the training examples, at least 100.
      seed: random seed.

    Raises:
      UserError: there are fewer than 500 training examples or 100 final ones, or the tasks differ.
    """
    count = len(data.train)
    if count < _FEWEST:
        raise UserError(
            f"a choice among models needs at least {_FEWEST} training examples; received {count} in "
            f"{data.train.source}; label more, or fine-tune and export one model with pocketbert bundle"
        )
    data = dataclasses.replace(data, augmented=None)
    if final is None:
        train, rows = train_dev_split(data.train, max(SHARE, LEAST / count), seed, stratify=True)
        return ThreeSplits(data=dataclasses.replace(data, train=train), final=dataclasses.replace(data, dev=rows))
    if (final.task.kind, final.task.labels) != (data.task.kind, data.task.labels):
        raise UserError(
            f"the final examples must have the labels {', '.join(data.task.labels) or 'of the training examples'}; "
            f"received {', '.join(final.task.labels) or final.task.kind}"
        )
    known = {hash(text) for part in (data.train, data.dev) for text in part.split_keys}
    new = [index for index, text in enumerate(final.dev.split_keys) if hash(text) not in known]
    if len(new) < len(final.dev):
        log_info(f"{len(final.dev) - len(new)} of {len(final.dev)} final examples have texts of the others: left out")
    if len(new) < LEAST:
        raise UserError(f"final scores need at least {LEAST} new examples; received {len(new)} in {final.dev.source}")
    return ThreeSplits(data=data, final=dataclasses.replace(data, dev=final.dev.select(new)))
