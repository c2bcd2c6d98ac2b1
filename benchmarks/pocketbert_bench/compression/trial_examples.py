"""A trial's examples: some epochs on labelled ones, or as many steps on labelled and unlabelled texts."""

from __future__ import annotations

import dataclasses
import math

from pocketbert.data.examples import evenly, evenly_of_classes
from pocketbert.data.task_data import TaskData

BATCH = 32
# The first trial also traces graphs in its time; after fewer steps, scores compare nothing.
LEAST_STEPS = 10
# More examples would be tokenized for a large part of the time before the first step.
_EXAMPLES_A_SECOND = 500


def planned_epochs(usual: int, examples: int, seconds: float) -> float:
    """Plans epochs for some time, which a deadline may shorten: whole ones, or a part of a single one.

    Args:
      usual: epochs without a time limit.
      examples: number of training examples.
      seconds: the time.
    """
    possible = max(_EXAMPLES_A_SECOND * seconds, LEAST_STEPS * BATCH) / examples
    return min(usual, math.floor(possible) if possible >= 1 else possible)


def part_of(data: TaskData, epochs: float) -> TaskData:
    """Returns the data for some epochs: evenly chosen examples for a part of an epoch, otherwise all."""
    if epochs >= 1:
        return data
    count = math.ceil(epochs * len(data.train))
    return dataclasses.replace(data, train=data.train.select(evenly_of_classes(data.train, count)))


def trial_examples(data: TaskData, epochs: float, *, unlabelled: bool) -> tuple[TaskData, int]:
    """Returns a trial's examples, and its passes over them.

    A trial with unlabelled texts has as many steps as one without. At least half of its examples are unlabelled, if
    there are enough.

    Args:
      data: labelled examples, and unlabelled texts.
      epochs: passes over the labelled examples in a trial without unlabelled texts; see `part_of`.
      unlabelled: whether it reads unlabelled texts.
    """
    if not unlabelled:
        return dataclasses.replace(part_of(data, epochs), unlabelled=None, least_confidence=None), math.ceil(epochs)
    assert data.unlabelled is not None
    seen = math.ceil(epochs * len(data.train))
    labelled = min(len(data.train), math.ceil(seen / 2))
    others = max(min(len(data.unlabelled), seen - labelled), 1)
    train = data.train.select(evenly_of_classes(data.train, labelled))
    texts = data.unlabelled.select(evenly(len(data.unlabelled), others))
    return dataclasses.replace(data, train=train, unlabelled=texts), max(round(seen / (labelled + others)), 1)


def trial_steps(data: TaskData, epochs: float, *, unlabelled: bool) -> int:
    """Counts the steps in one trial stage; arguments as for `trial_examples`."""
    examples, passes = trial_examples(data, epochs, unlabelled=unlabelled)
    return passes * math.ceil((len(examples.train) + len(examples.unlabelled or ())) / BATCH)
