"""What a model scores on labelled examples, beside what one constant answer scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.glue import GLUE
from pocketbert.tasks.metrics import class_results, compute, label_results


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a model.

    Attributes:
      main_metric: the metric that counts most.
      metrics: name → value, as fractions of one.
      baseline: `answer`, the constant answer, and its `metrics`; None where no constant answer is right.
      positive_label: the class that F1 is about; None where it is not among the metrics.
      classes: of a classification, as `pocketbert.tasks.metrics.class_results` gives it, of a multi-label task as
        `label_results` does; else None.
    """

    main_metric: str
    metrics: Mapping[str, float]
    baseline: Mapping[str, Any] | None
    positive_label: str | None = None
    classes: Mapping[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """The main metric of the model and of the baseline."""
        main = self.main_metric
        found = f"{main} {self.metrics[main]:.4f}"
        if main == "f1" and self.positive_label:
            found += f" for {self.positive_label!r}"
        if self.baseline is None:
            return found
        return f"{found}; the baseline, {self.baseline['answer']}, has {self.baseline['metrics'][main]:.4f}"

    @property
    def warnings(self) -> list[str]:
        """What makes the scores worthless: the model is no better than the baseline."""
        main = self.main_metric
        if self.metrics[main] > (self.baseline["metrics"][main] if self.baseline else 0.0):
            return []
        against = "the baseline" if self.baseline else "0"
        return [
            f"the model does not beat {against}: {self.sentence}; check the labels, or try more examples, more epochs "
            "or another learning rate"
        ]

    def to_json(self) -> dict[str, Any]:
        """The fields that a result shows, and the warnings."""
        shown = {name: getattr(self, name) for name in ("metrics", "baseline", "positive_label", "classes", "warnings")}
        return {name: value for name, value in shown.items() if value is not None or name == "baseline"}


def score_answers(
    task: TaskConfig,
    names: Sequence[str],
    main_metric: str,
    labels: np.ndarray,
    predictions: np.ndarray,
    groups: Sequence[str] | None = None,
) -> Scores:
    """The scores of answers to texts.

    Args:
      task: classification, multi_label or regression, under the data's name.
      names: the metrics, of `pocketbert.tasks.metrics`.
      main_metric: the one of them that counts most.
      labels: `[N]`, class indices in the order of the task's labels, or scores; of multi_label 0 and 1 `[N, labels]`.
      predictions: of the same kind.
      groups: the group of each example, or None.
    """
    positive = positive_class(task)
    by_class = task.kind == "classification"
    return Scores(
        main_metric=main_metric,
        metrics=compute(names, labels, predictions, groups, positive=positive),
        baseline=constant_baseline(task, names, labels, groups),
        positive_label=task.labels[positive] if "f1" in names and by_class else None,
        classes=class_results(task.labels, labels, predictions)
        if by_class
        else label_results(task.labels, labels, predictions)
        if task.kind == "multi_label"
        else None,
    )


def constant_baseline(
    task: TaskConfig, names: Sequence[str], labels: np.ndarray, groups: Sequence[str] | None = None
) -> dict[str, Any]:
    """What one constant answer scores, for `Scores`.

    It is the most frequent label or, of scores, their mean, which correlates with nothing. In a multi-label task every
    text gets as many of the most frequent labels as have the highest micro-F1.

    Args:
      task: as for `score_answers`, and so the others.
      names: the metrics.
      labels: what is right.
      groups: the group of each example, or None.
    """
    constant: Any
    if task.kind == "multi_label":
        constant = _best_constant_labels(labels)
        chosen = [repr(label) for label, always in zip(task.labels, constant, strict=True) if always]
        answer = f"always {' and '.join(chosen)}" if chosen else "never a label"
    elif task.kind == "classification":
        most_frequent = np.bincount(labels.astype(np.int64), minlength=len(task.labels)).argmax()
        constant, answer = float(most_frequent), f"always {task.labels[most_frequent]!r}"
    else:
        constant, answer = float(np.mean(labels, dtype=np.float64)), "always the mean"
    answers = np.full(labels.shape, constant)
    return {"answer": answer, "metrics": compute(names, labels, answers, groups, positive=positive_class(task))}


def _best_constant_labels(labels: np.ndarray) -> np.ndarray:
    """The answer `[labels]` of 0 and 1 that has the highest micro-F1 if every text gets it."""
    counts = labels.sum(axis=0, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    size = np.arange(1, len(order) + 1)
    # 2 · true positives / (predicted + there).
    micro_f1 = 2 * np.cumsum(counts[order]) / np.maximum(size * len(labels) + counts.sum(), 1)
    constant = np.zeros(len(order), np.int32)
    if counts.any():
        constant[order[: 1 + int(micro_f1.argmax())]] = 1
    return constant


def positive_class(task: TaskConfig) -> int:
    """The class that F1 is about: class 1 of the GLUE task whose name and labels the task has, else the second."""
    glue = GLUE.get(task.name)
    if glue is None or not glue.task.labels or set(glue.task.labels) != set(task.labels):
        return 1
    return task.labels.index(glue.task.labels[1])
