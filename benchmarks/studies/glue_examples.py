"""The examples of GLUE tasks for studies, and the scores of their most frequent label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.data.train_dev_split import train_dev_split
from studies.shared_data import shared_data

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData

# Of 67,349.
SST2_EXAMPLES = 4000
CHOOSING, APART = 1000, 4000
DEVELOPMENT_SPLIT, APART_SPLIT = "development set", f"{APART} training sentences kept apart"


def task_examples(task: str, sst2_examples: int = SST2_EXAMPLES) -> tuple[Examples, Examples]:
    """Training examples (for SST-2 a sample of `sst2_examples` sentences) and the development set."""
    train, dev = (read_glue(task, shared_data("glue"), split) for split in ("train", "dev"))
    return (draw(train, 0, sst2_examples) if task == "sst2" else train), dev


def task_data(task: str, sst2_examples: int = SST2_EXAMPLES) -> TaskData:
    """`task_examples` with the task's metrics."""
    from pocketbert.data.task_data import TaskData

    train, dev = task_examples(task, sst2_examples)
    glue = GLUE[task]
    return TaskData(task=glue.task, train=train, dev=dev, metrics=glue.metrics, main_metric=glue.main_metric)


def task_parts(task: str) -> tuple[Examples, Examples, dict[str, Examples]]:
    """Training examples, examples to choose an epoch, and examples to score by split; all disjoint.

    SST-2 has enough training sentences: `CHOOSING` of them choose the epoch, and `APART` others are scored next to the
    small development set. Many of these are phrases of training sentences, so they are easier. For other tasks, a tenth
    of the training examples chooses the epoch.
    """
    train, dev = task_examples(task)
    scored = {DEVELOPMENT_SPLIT: dev}
    if task != "sst2":
        return *train_dev_split(train), scored
    every = read_glue(task, shared_data("glue"), "train")
    choosing = draw(every, SST2_EXAMPLES, CHOOSING)
    return train, choosing, scored | {APART_SPLIT: draw(every, SST2_EXAMPLES + CHOOSING, APART)}


def majority_label_metrics(names: Iterable[str], train: Examples, scored: Examples) -> dict[str, float]:
    """Scores of always predicting the training examples' most frequent label."""
    from pocketbert.tasks.metrics import compute

    assert train.labels is not None and scored.labels is not None
    majority = np.bincount(train.labels).argmax()
    return compute(names, scored.labels, np.full(len(scored), majority))


def draw(train: Examples, start: int, count: int) -> Examples:
    """At most `count` examples from `start` on, of a fixed random order."""
    drawn = np.random.default_rng(0).permutation(len(train))[start : start + count]
    return train.select(np.sort(drawn))
