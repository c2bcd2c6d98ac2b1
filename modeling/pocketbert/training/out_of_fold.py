"""Out-of-fold predictions: a model trained on other folds predicts each example."""

from __future__ import annotations

import dataclasses
import functools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.tasks.decisions import DecisionChoice, described_decisions
from pocketbert.tasks.interfaces import Rows
from pocketbert.tasks.mistakes import MOST_MISTAKES
from pocketbert.tasks.registry import supervised_task
from pocketbert.tasks.scores import Baseline, Scores, score_interval
from pocketbert.training.run_folder import spread
from pocketbert_runtime.answers.several import part_outputs
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.rows import TokenRows

if TYPE_CHECKING:
    from pocketbert.tasks.mistakes import Mistake


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoredFold:
    """A fold with outputs from a model trained on the other folds.

    Attributes:
      data: the model's training examples; `dev` is the fold.
      indices: int64 [n], positions of the fold's examples among all, ascending.
      outputs: the model's outputs for the fold.
    """

    data: TaskData
    indices: np.ndarray
    outputs: Outputs


class OutOfFold:
    """Scores the outputs for all folds.

    Args:
      folds: all folds; together they have each example once.
      data: the task with its metrics; `train` has all examples.
      tokenizer: the models' tokenizer.
      max_length: maximum sequence length for an example or a window.
      choice: thresholds to choose, or None. All outputs together choose `decisions`. Answers for a fold use thresholds
        from the other folds, so its score is not too good.
      **windows: options in the task's `window_options`.
    Attributes:
      decisions: the task with thresholds from all outputs; None without a `choice`.
    """

    def __init__(
        self,
        folds: Sequence[ScoredFold],
        data: TaskData,
        tokenizer: Any,
        max_length: int,
        choice: DecisionChoice | None = None,
        **windows: Any,
    ) -> None:
        self._folds, self._data, self._windows = folds, data, windows
        self._inputs = (tokenizer, max_length)
        self._task: Any = supervised_task(data.task)
        # Ordered by fold, so that the outputs follow one another.
        self._whole: Any = data.train.select(np.concatenate([fold.indices for fold in folds]))
        self._outputs = {name: np.concatenate([fold.outputs[name] for fold in folds]) for name in folds[0].outputs}
        self._tasks: list[Any] = [self._task] * len(folds)
        self.decisions: TaskConfig | None = None
        # Heads with thresholds, if there are several heads.
        self._heads: dict[str, OutOfFold] = {}
        if choice is not None:
            self._heads = {name: self._of_head(name, of_head) for name, of_head in self._task.choices(choice).items()}
            self._tasks = [supervised_task(self._chosen(choice, left_out=index)) for index in range(len(folds))]
            self.decisions = self._chosen(choice)
        self._rows: list[Any] = [
            task.rows(fold.data.dev, *self._inputs, **windows) for task, fold in zip(self._tasks, folds, strict=True)
        ]
        self._together = self._evaluator(self._task, self._whole, self._outputs)

    @functools.cached_property
    def _pooled(self) -> Scores:
        """Scores for all predictions together; each example has its fold's thresholds."""
        scores: Scores = self._together.scores(self._data.main_metric)
        if self.decisions is None:
            return scores
        if self._heads:
            values = self._together.metrics_by_head("of all folds")
            values |= {name: head._pooled.metrics for name, head in self._heads.items()}
            metrics = self._task.joined(self._data.metrics, values)
            by_head = {name: head._pooled.decisions for name, head in self._heads.items()}
            return dataclasses.replace(scores, metrics=metrics, decisions={"heads": by_head})
        labels, logits, groups = self._whole.labels, self._outputs["logits"], self._whole.groups
        answers = np.concatenate(
            [task.decide(fold.outputs["logits"]) for task, fold in zip(self._tasks, self._folds, strict=True)]
        )
        return dataclasses.replace(
            scores,
            metrics=self._task.compute(self._data.metrics, labels, answers, groups, logits),
            classes=self._task.class_results(labels, answers),
            decisions=_described(supervised_task(self.decisions), logits, labels),
        )

    @functools.cached_property
    def by_fold(self) -> list[dict[str, float]]:
        """Metrics for each fold."""
        return [evaluator.metrics(f"in fold {number}") for number, evaluator in enumerate(self._evaluators, 1)]

    @functools.cached_property
    def _evaluators(self) -> list[Any]:
        """One evaluator per fold, with thresholds from the other folds."""
        parts = zip(self._tasks, self._folds, strict=True)
        return [self._evaluator(task, fold.data.dev, fold.outputs) for task, fold in parts]

    def summary(self) -> dict[str, Any]:
        """Returns the metrics as JSON values.

        Returns:
          `folds` (each fold's number, examples and metrics, and the others' `decisions`, if any), `metrics`
          (`run_folder.spread` over the folds) and `pooled` (metrics for all out-of-fold predictions together).
        """
        by_fold = self.by_fold
        return {
            "folds": [
                {"fold": number, "examples": len(fold.indices), "metrics": metrics, **self._decisions_for(number - 1)}
                for number, (fold, metrics) in enumerate(zip(self._folds, by_fold, strict=True), 1)
            ],
            "metrics": {name: spread([metrics[name] for metrics in by_fold]) for name in by_fold[0]},
            "pooled": dict(self._pooled.metrics),
        }

    def scores(self) -> Scores:
        """Returns means over the folds with their interval, and class scores for all predictions together."""
        by_fold, main = self.by_fold, self._data.main_metric
        return dataclasses.replace(
            self._pooled,
            metrics={name: statistics.fmean(metrics[name] for metrics in by_fold) for name in by_fold[0]},
            interval=self._interval(),
            baselines=self._simple_methods(),
            folds=tuple(metrics[main] for metrics in by_fold),
        )

    def mistakes(self) -> list[Mistake]:
        """See `Evaluator.mistakes`."""
        if self.decisions is None:
            mistakes: list[Mistake] = self._together.mistakes()
            return mistakes
        # They have the outputs of their folds.
        assert self.by_fold
        mistakes = [mistake for evaluator in self._evaluators for mistake in evaluator.mistakes()]
        return sorted(mistakes, key=lambda mistake: -(mistake.probability or 0.0))[:MOST_MISTAKES]

    def predictions(self) -> str:
        """Returns one JSON object per line, in example order; see `Rows.answers` in the task's rows."""
        lines: dict[int, str] = {}
        for number, (fold, rows) in enumerate(zip(self._folds, self._rows, strict=True), 1):
            for index, answer in zip(fold.indices.tolist(), rows.answers(fold.outputs), strict=True):
                lines[index] = json.dumps({**answer, "fold": number}, ensure_ascii=False, allow_nan=False) + "\n"
        return "".join(lines[index] for index in sorted(lines))

    def _chosen(self, choice: DecisionChoice, left_out: int | None = None) -> TaskConfig:
        """Chooses the task's thresholds from all folds, or from all but one."""
        if self._heads:
            return self._with_heads(
                {
                    name: head.decisions if left_out is None else head._tasks[left_out].config
                    for name, head in self._heads.items()
                }
            )
        folds: list[Any] = [fold for index, fold in enumerate(self._folds) if index != left_out]
        logits = np.concatenate([fold.outputs["logits"] for fold in folds])
        chosen: TaskConfig = self._task.choose(choice, logits, np.concatenate([fold.data.dev.labels for fold in folds]))
        return chosen

    def _with_heads(self, heads: Mapping[str, TaskConfig | None]) -> TaskConfig:
        """Replaces these heads in the task."""
        config = self._task.config
        return dataclasses.replace(config, tasks=tuple(heads.get(part.name) or part for part in config.tasks))

    def _of_head(self, name: str, choice: DecisionChoice) -> OutOfFold:
        """Selects one head's outputs, for texts with a label for it."""
        metrics = self._task.own_metrics(self._data.metrics)[name]
        config: TaskConfig = self._task.parts[name].config

        def data_of(data: Any) -> TaskData:
            train, dev = data.train.parts[name], data.dev.parts[name]
            return TaskData(task=config, train=train, dev=dev, metrics=metrics, main_metric=metrics[0])

        whole: Any = self._data.train
        folds = []
        for fold in self._folds:
            dev: Any = fold.data.dev
            rows = dev.rows_of(name)
            outputs = {output: values[rows] for output, values in part_outputs(name, fold.outputs).items()}
            # The texts with a label for the head are numbered by themselves.
            indices = np.searchsorted(whole.rows_of(name), fold.indices[rows])
            folds.append(ScoredFold(data=data_of(fold.data), indices=indices, outputs=outputs))
        return OutOfFold(folds, data_of(self._data), *self._inputs, choice)

    def _decisions_for(self, index: int) -> dict[str, Any]:
        """Describes a fold's thresholds, chosen by the others; for rejected answers, also their coverage of it."""
        if self.decisions is None:
            return {}
        if self._heads:
            by_head = {name: head._decisions_for(index)["decisions"] for name, head in self._heads.items()}
            return {"decisions": {"heads": by_head}}
        fold: Any = self._folds[index]
        described = _described(self._tasks[index], fold.outputs["logits"], fold.data.dev.labels)
        return {"decisions": described["coverage"][0] if "coverage" in described else described}

    def _evaluator(self, task: Any, data: Any, outputs: Outputs) -> Any:
        def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
            return outputs

        return task.evaluator(forward, data, *self._inputs, metrics=self._data.metrics, **self._windows)

    def _interval(self) -> tuple[float, float]:
        """95 % interval for the mean over folds, from resampled examples; see `score_interval`."""
        main = self._data.main_metric
        right = [rows.score(fold.outputs, main)[1] for fold, rows in zip(self._folds, self._rows, strict=True)]
        if main == "accuracy" and not self._task.per_token and all(part is not None for part in right):
            # A share, which folds of almost equal sizes hardly change.
            return score_interval(self._pooled.examples, lambda indices: 0.0, right=int(np.concatenate(right).sum()))
        metrics = [rows.resampled(fold.outputs, main) for fold, rows in zip(self._folds, self._rows, strict=True)]
        return score_interval(self._pooled.examples, _mean_over(metrics, self._rows))

    def _simple_methods(self) -> tuple[Baseline, ...]:
        """Means over the folds for simple methods trained on the same examples."""
        main = self._data.main_metric
        by_fold: list[Mapping[str, Baseline]] = [
            {method.name: method for method in self._task.simple_methods(fold.data.train, fold.data.dev, main, None)}
            for fold in self._folds
        ]
        in_all = [name for name in by_fold[0] if all(name in methods for methods in by_fold)]
        return tuple(
            dataclasses.replace(by_fold[0][name], score=statistics.fmean(methods[name].score for methods in by_fold))
            for name in in_all
        )


def _described(task: Any, logits: np.ndarray, labels: np.ndarray) -> Mapping[str, Any]:
    """Describes a task's thresholds and their coverage of these examples; see `described_decisions`."""
    described = described_decisions(task.config, task.certainty(logits), task.decide(logits) == labels)
    assert described is not None
    return described


def _mean_over(metrics: Sequence[Callable[[np.ndarray], float]], rows: Sequence[Rows]) -> Callable[[np.ndarray], float]:
    """Returns a function: indices into all folds' examples, in order → mean metric over folds."""
    ends = np.cumsum([len(part) for part in rows])

    def mean(indices: np.ndarray) -> float:
        values = []
        for metric, start, end in zip(metrics, [0, *ends[:-1]], ends, strict=True):
            inside = indices[(indices >= start) & (indices < end)]
            # A small fold may have no example in a sample.
            values += [metric(inside - start)] if len(inside) else []
        return statistics.fmean(values)

    return mean
