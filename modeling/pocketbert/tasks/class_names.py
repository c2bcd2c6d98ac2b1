"""Class names in scores."""

from __future__ import annotations

from pocketbert.configs import TaskConfig
from pocketbert.data.readers.glue import GLUE


def positive_class(config: TaskConfig) -> int:
    """The positive class for F1: class 1 in the GLUE task with this name and these labels, else the second class."""
    glue = GLUE.get(config.name)
    if glue is None or not glue.task.labels or set(glue.task.labels) != set(config.labels):
        return 1
    return config.labels.index(glue.task.labels[1])
