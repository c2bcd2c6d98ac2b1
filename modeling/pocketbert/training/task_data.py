"""A task's data with all that a run needs of them."""

from __future__ import annotations

import dataclasses

from pocketbert.data.task_data import TaskData
from pocketbert.tasks.registry import supervised_task


def with_metrics(data: TaskData) -> TaskData:
    """The same with the task's own metrics where none are given."""
    if data.metrics:
        return data
    task = supervised_task(data.task)
    return dataclasses.replace(data, metrics=task.metrics, main_metric=data.main_metric or task.main_metric)
