"""The metrics of each task."""

from __future__ import annotations

import pytest

from pocketbert.configs import TaskConfig
from pocketbert.tasks.registry import supervised_task

TWO, THREE = ("yes", "no"), ("yes", "no", "maybe")


@pytest.mark.parametrize(
    ("task", "metrics", "main"),
    [
        # GLUE's own (Wang et al. 2019, table 1); the label's names and order are the model's.
        (TaskConfig(kind="classification", name="cola", labels=TWO), ("matthews",), "matthews"),
        (TaskConfig(kind="classification", name="mrpc", labels=TWO), ("accuracy", "f1"), "f1"),
        (TaskConfig(kind="classification", name="rte", labels=TWO), ("accuracy",), "accuracy"),
        (TaskConfig(kind="regression", name="stsb"), ("pearson", "spearman"), "spearman"),
        (TaskConfig(kind="classification", name="mnli", labels=THREE), ("accuracy",), "accuracy"),
        # Names that mean something else here.
        (TaskConfig(kind="classification", name="cola", labels=THREE), ("accuracy",), "accuracy"),
        (TaskConfig(kind="regression", name="cola"), ("pearson", "spearman"), "spearman"),
        (TaskConfig(kind="span", name="mrpc"), ("exact_match", "f1"), "f1"),
        # Tasks of one's own.
        (TaskConfig(kind="classification", name="", labels=TWO), ("accuracy", "f1"), "accuracy"),
        (TaskConfig(kind="classification", name="xnli", labels=THREE), ("accuracy",), "accuracy"),
        (TaskConfig(kind="span", name="squad"), ("exact_match", "f1"), "f1"),
    ],
)
def test_metrics(task: TaskConfig, metrics: tuple[str, ...], main: str) -> None:
    task_object = supervised_task(task)
    assert (task_object.metrics, task_object.main_metric) == (metrics, main)
