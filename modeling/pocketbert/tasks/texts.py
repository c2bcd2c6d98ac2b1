"""Base class for tasks with one answer per text or pair."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.data_warnings import count_truncated
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE
from pocketbert.data.readers.tables import read_table
from pocketbert.data.readers.text_pairs import single_texts
from pocketbert.errors import UserError
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.class_names import positive_class
from pocketbert.tasks.decisions import DecisionChoice
from pocketbert.tasks.metrics import AUROC, compute
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake, most_certain
from pocketbert.tasks.scores import Baseline, Scores, score_interval
from pocketbert.tasks.separate_pairs import encode_separately, require_pairs
from pocketbert.tasks.simple_methods import Vectors, pair_methods, word_method
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.tasks.text_rows import TextRows
from pocketbert_runtime.answers.texts import TextAnswers
from pocketbert_runtime.forward import Forward

_CORRELATIONS = ("matthews", "pearson", "spearman")


class TextTask(TextAnswers, SupervisedTask):
    """A task with `logits` for each text or pair."""

    scored_by_folds = True

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.first_token_only = config.pooling is None

    def encoder_config(self, encoder: EncoderConfig) -> EncoderConfig:
        """Removes the pooler for a mean-pooling head, since it would neither read nor train it."""
        return encoder.replace(pooler="none") if self.config.pooling == "mean" else encoder

    @property
    def num_logits(self) -> int | None:
        """One logit per label."""
        return len(self.config.labels) or None

    @abc.abstractmethod
    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Converts logits [N, ...] to predictions in the form used by `Examples.labels`."""

    def choose(self, choice: DecisionChoice, logits: np.ndarray, labels: np.ndarray) -> TaskConfig:
        """Chooses decisions on these examples. Only tasks without `choice_problems` have it."""
        raise NotImplementedError

    @abc.abstractmethod
    def constant_answer(self, labels: np.ndarray) -> tuple[Any, str]:
        """The baseline: the best constant prediction and its name in messages."""

    def class_results(self, labels: np.ndarray, predictions: np.ndarray) -> dict[str, Any] | None:
        """Scores per class, for `Scores.classes`; None for tasks without classes."""
        return None

    def positive_label(self, names: Sequence[str]) -> str | None:
        """The positive label for F1; None if F1 has none or is not among the metrics."""
        return None

    def temperature(self, logits: np.ndarray, labels: np.ndarray) -> float:
        """Returns the divisor for logits [N, ...] with the smallest loss; 1 for tasks without probabilities."""
        return 1.0

    def top_probability(self, logits: np.ndarray) -> float | None:
        """The best class's mean probability; None for tasks without classes."""
        return None

    def right(self, labels: np.ndarray, predictions: np.ndarray) -> np.ndarray | None:
        """Counts correct decisions per example, float64 [N]; None if predictions are not right or wrong."""
        return (labels == predictions).astype(np.float64)

    def certainty(self, logits: np.ndarray) -> np.ndarray | None:
        """Each decision's probability, float64 in the shape of `Examples.labels`; None if there is none."""
        return None

    def in_words(self, answer: Any) -> str:
        """Formats a label or prediction, a row in `Examples.labels`, for readers."""
        return self.config.labels[int(answer)] if self.config.labels else f"{float(answer):.3g}"

    def mistakes(self, data: Examples, logits: np.ndarray, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """Returns wrong answers, the most certain first; for scores, the largest errors first.

        Args:
          data: labelled examples.
          logits: the examples' logits [N, ...].
          most: maximum number; None for all.
        """
        labels, predictions = data.labels, self.decide(logits)
        assert labels is not None
        wrong, certainty = labels != predictions, self.certainty(logits)
        if certainty is None:
            order = np.abs(labels.astype(np.float64) - predictions)
        else:
            order = np.where(wrong, certainty, 0.0)
        rows = tuple(range(1, labels.ndim))
        worst = most_certain(wrong.any(axis=rows), order.max(axis=rows), most)
        return [
            Mistake(
                index=index,
                text=data.texts[index],
                pair=data.pairs[index] if data.pairs else None,
                label=self.in_words(labels[index]),
                prediction=self.in_words(predictions[index]),
                probability=None if certainty is None else float(order[index].max()),
            )
            for index in worst
        ]

    def simple_methods(self, train: Examples, dev: Examples, metric: str, vectors: Vectors | None) -> list[Baseline]:
        """See `SupervisedTask.simple_methods`: linear models on words and, for pairs, on separate vectors."""
        form, labels = self.linear_form, dev.labels
        assert form is not None and labels is not None

        def score(predictions: np.ndarray) -> float:
            return self.compute([metric], labels, predictions.astype(labels.dtype), dev.groups)[metric]

        if metric == AUROC:
            # These methods only decide; a ranking would beat them for that reason alone.
            return []
        methods = word_method(form, train, dev, score)
        if train.pairs is not None and vectors is not None:
            methods += pair_methods(form, train, dev, score, vectors)
        return methods

    @property
    def metrics(self) -> tuple[str, ...]:
        """GLUE's metrics if name, kind and number of labels are a GLUE task's; else the default."""
        glue = self._glue
        return glue.metrics if glue else self.default_metrics[0]

    @property
    def main_metric(self) -> str:
        """The one among `metrics` for selecting the best checkpoint."""
        glue = self._glue
        return glue.main_metric if glue else self.default_metrics[1]

    @property
    def _glue(self) -> Any:
        # With another kind or number of labels, a task with a GLUE name is a different task.
        glue, config = GLUE.get(self.config.name), self.config
        same = glue is not None and (glue.task.kind, len(glue.task.labels)) == (config.kind, len(config.labels))
        return glue if same else None

    def read(self, path: str | os.PathLike[str], **columns: Any) -> Examples:
        """Reads a .csv, .tsv or .jsonl file; for `columns` (default: text and label) see `read_table`."""
        default = {"text_column": "text", "label_column": "label"}
        labels = self.config.labels or None
        return read_table(path, **{**default, "labels": labels, "kind": self.config.rules.label_form, **columns})[0]

    def check_data(self, data: Any) -> None:
        """Checks for `Examples`."""
        if not isinstance(data, Examples):
            raise UserError(f"the examples must be the task's; received {data.source} for {self.kind}")
        if self.separates_pairs:
            require_pairs(data)

    def encode(
        self, data: Examples, tokenizer: Any, max_length: int, *, show_progress: bool = True, **_: Any
    ) -> EncodedExamples:
        """Encodes one row per example, or per text in separate pairs; longer examples are truncated."""
        encode_rows = encode_separately if self.separates_pairs else encode
        return encode_rows(data, tokenizer, max_length, show_progress=show_progress)

    def rows(
        self, data: Examples, tokenizer: Any, max_length: int, most: int | None = None, **windows: Any
    ) -> TextRows:
        """See `encode`."""
        return TextRows(self, data, tokenizer, max_length, most)

    def evaluator(
        self,
        forward: Forward,
        data: Examples,
        tokenizer: Any,
        max_length: int,
        *,
        metrics: Sequence[str] | None = None,
        choose_threshold: bool = False,
        show_progress: bool = False,
        choice: DecisionChoice | None = None,
        **options: Any,
    ) -> TextEvaluator:
        """See `SupervisedTask.evaluator`; each evaluation makes the `choice`, if there is one."""
        self.check_data(data)
        encoded, names = self.encode(data, tokenizer, max_length), metrics or self.metrics
        return TextEvaluator(self, forward, encoded, names, data, show_progress=show_progress, choice=choice)

    def count_truncated(self, data: Examples, tokenizer: Any, max_length: int) -> int:
        """Counts truncated texts or pairs; separate pairs have two texts."""
        read = single_texts(data) if self.separates_pairs else data
        return count_truncated(read.texts, read.pairs, tokenizer, max_length)

    def score(
        self,
        labels: np.ndarray,
        predictions: np.ndarray,
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
        groups: Sequence[str] | None = None,
        logits: np.ndarray | None = None,
    ) -> Scores:
        """Scores predictions.

        Args:
          labels: as in `Examples.labels`, with indices into the task's labels.
          predictions: in the same form.
          names: keys of `metrics.METRICS`; None for the task's metrics.
          main_metric: the most important metric; None for the task's, or the first.
          groups: each example's group, or None.
          logits: [N, ...], for AUROC.
        """
        names = names or self.metrics
        values = self.compute(names, labels, predictions, groups, logits)
        scores = self._with_baseline(labels, groups, values, names, main_metric)
        interval = self.interval(scores.main_metric, labels, predictions, groups, logits)
        return dataclasses.replace(scores, classes=self.class_results(labels, predictions), interval=interval)

    def interval(
        self,
        metric: str,
        labels: np.ndarray,
        predictions: np.ndarray,
        groups: Sequence[str] | None = None,
        logits: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """95 % confidence interval for a metric; see `score`."""
        names = None if groups is None else np.asarray(groups)

        def resampled(indices: np.ndarray) -> float:
            of_group = None if names is None else names[indices].tolist()
            scores = None if logits is None else logits[indices]
            return self.compute([metric], labels[indices], predictions[indices], of_group, scores)[metric]

        right = int((labels == predictions).sum()) if metric == "accuracy" and groups is None else None
        return score_interval(len(labels), resampled, right=right, correlation=metric in _CORRELATIONS)

    def compute(
        self,
        names: Sequence[str],
        labels: np.ndarray,
        predictions: np.ndarray,
        groups: Sequence[str] | None = None,
        logits: np.ndarray | None = None,
    ) -> dict[str, float]:
        """Computes metrics, as name → value; see `score`."""
        positive, classes = positive_class(self.config), self.config.labels
        return compute(names, labels, predictions, groups, positive=positive, classes=classes, logits=logits)

    def baseline(
        self, labels: np.ndarray, names: Sequence[str] | None = None, groups: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Scores the constant answer, for `Scores.baseline`; see `score`."""
        constant, answer = self.constant_answer(labels)
        constants = np.full(labels.shape, constant)
        return {"answer": answer, "metrics": self.compute(names or self.metrics, labels, constants, groups)}

    def with_baseline(
        self,
        data: Examples,
        metrics: Mapping[str, float],
        names: Sequence[str] | None = None,
        main_metric: str | None = None,
    ) -> Scores:
        assert data.labels is not None
        return self._with_baseline(data.labels, data.groups, metrics, names or self.metrics, main_metric)

    def _with_baseline(
        self,
        labels: np.ndarray,
        groups: Sequence[str] | None,
        metrics: Mapping[str, float],
        names: Sequence[str],
        main_metric: str | None,
    ) -> Scores:
        return Scores(
            main_metric=main_metric or (self.main_metric if self.main_metric in names else names[0]),
            metrics=metrics,
            baseline=self.baseline(labels, names, groups),
            examples=len(labels),
            positive_label=self.positive_label(names),
        )
