"""The examples of GLUE tasks for studies, and the scores of their most frequent label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE, read_glue
from studies.shared_data import shared_data

if TYPE_CHECKING:
    from pocketbert.data.task_data import TaskData

# Of 67,349.
SST2_EXAMPLES = 4000


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
