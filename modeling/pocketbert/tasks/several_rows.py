"""Texts as rows for several heads, and their scores."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import EncodedExamples, encode
from pocketbert.data.examples import Examples
from pocketbert.data.readers.tagged_texts import plain_texts
from pocketbert.data.shared_texts import SharedTexts
from pocketbert.tasks.interfaces import Evaluator
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake
from pocketbert.tasks.outputs import check_finite
from pocketbert.tasks.scores import Scores, score_interval
from pocketbert.tasks.tagged_rows import TaggedRows
from pocketbert.tasks.text_evaluator import TextEvaluator
from pocketbert.tasks.text_rows import TextRows
from pocketbert.tasks.texts import TextTask
from pocketbert.tasks.token_classification import TokenClassification, TokenEvaluator
from pocketbert_runtime.answers.several import output_name, part_of, part_outputs
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.windows import WindowOptions

if TYPE_CHECKING:
    from pocketbert.tasks.decisions import DecisionChoice
    from pocketbert.tasks.several import Several

# The mean over the heads' main metrics. No head has this name: it has underscores.
MEAN = "mean_of_heads"


class SeveralRows:
    """Texts, one row each; see `Rows`.

    Args:
      task: the task with the heads.
      data: texts with labels for all heads or some, or without labels.
      tokenizer: the network's tokenizer.
      max_length: tokens; longer texts are truncated for all heads.
    Attributes:
      encoded: the rows, without labels.
      parts: rows by head: texts with a label for it, or all texts without labels.
    """

    def __init__(self, task: Several, data: SharedTexts | Examples, tokenizer: Any, max_length: int) -> None:
        self._task = task
        self._inputs = data, tokenizer, max_length
        # Row indices by head; None if each head has all rows.
        self._rows = data.rows if isinstance(data, SharedTexts) else None
        self.parts: dict[str, TextRows | TaggedRows] = {}
        for name, part in task.parts.items():
            texts = data.parts[name] if isinstance(data, SharedTexts) else data
            if isinstance(part, TokenClassification):
                tagged = plain_texts(texts.texts, texts.source) if isinstance(texts, Examples) else texts
                options = WindowOptions(max_length=max_length)
                self.parts[name] = TaggedRows(part, tagged, tokenizer, options, truncated=True)
            else:
                assert isinstance(part, TextTask) and isinstance(texts, Examples)
                self.parts[name] = TextRows(part, texts, tokenizer, max_length)
        # All have the same tokens.
        encoded = next(iter(self.parts.values())).encoded
        if self._rows is not None:
            encoded = encode(data.first_texts(len(data)), tokenizer, max_length, show_progress=False)
        self.encoded: EncodedExamples = encoded.unlabelled()

    def __len__(self) -> int:
        return len(self.encoded)

    def decided_by(self, task: Several) -> SeveralRows:
        """The same rows and heads, with other thresholds."""
        rows = copy.copy(self)
        rows._task, rows.parts = task, dict(self.parts)
        for name, part in task.parts.items():
            if isinstance(part, TextTask):
                rows.parts[name] = cast(TextRows, self.parts[name]).decided_by(part)
        return rows

    def of_head(self, name: str, outputs: Outputs) -> Outputs:
        """Returns a head's outputs by its own names, for the rows in `parts`."""
        of_head = part_outputs(name, outputs)
        if self._rows is None:
            return of_head
        places = self._tokens(name) if isinstance(self.parts[name], TaggedRows) else self._rows[name]
        return {output: values[places] for output, values in of_head.items()}

    def _tokens(self, name: str) -> np.ndarray:
        """Indices into all tokens, for the tokens in a head's rows."""
        assert self._rows is not None
        offsets = self.encoded.offsets
        return np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in self._rows[name]])

    def row_of(self, name: str, index: int) -> int:
        """Converts a head's row index to an index into all rows."""
        return index if self._rows is None else int(self._rows[name][index])

    @property
    def decided(self) -> dict[str, np.ndarray]:
        """Indices of tokens with a word's tag, by output; see `Rows.decided`.

        A text without tags has none. A text without a label for another head still has that head's decisions.
        """
        return {
            output_name(name, output): rows.decided if self._rows is None else self._tokens(name)[rows.decided]
            for name, rows in self.parts.items()
            for output in self._task.parts[name].output_names
            if rows.decided is not None
        }

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Labels by head, as from its own `encode`; -1 or NaN for unlabelled rows, see `tasks.parts`."""
        labels = {}
        for name, rows in self.parts.items():
            is_tagged = isinstance(rows, TaggedRows)
            of_head = (rows.labelled_rows() if isinstance(rows, TaggedRows) else rows.encoded).labels
            assert of_head is not None
            if self._rows is not None:
                missing = np.int32(-1) if is_tagged else np.float32(np.nan)
                spread = np.full((len(self), *of_head.shape[1:]), missing)
                spread[self._rows[name]] = of_head
                of_head = spread
            labels[name] = of_head
        return labels

    @property
    def soft_labels(self) -> dict[str, np.ndarray]:
        """Soft labels by head, as from its own `encode_soft`."""
        data: Any = self._inputs[0]
        return {
            name: rows.soft_rows() if isinstance(rows, TaggedRows) else data.parts[name].soft_labels
            for name, rows in self.parts.items()
        }

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray | None]:
        """See `Rows.score`. For the mean over heads, a text counts the correct decisions by all heads."""
        names = self._task.own_metrics([metric])
        if metric != MEAN:
            names = {part_of(metric): names[part_of(metric)]}
        scored = [self.parts[name].score(self.of_head(name, outputs), metrics[0]) for name, metrics in names.items()]
        correct = [
            self._spread(name, right) for name, (_, right) in zip(names, scored, strict=True) if right is not None
        ]
        both = np.sum(correct, axis=0) if len(correct) == len(scored) else None
        return float(np.mean([score for score, _ in scored])), both

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """See `Rows.resampled`."""
        names = self._task.own_metrics([metric])
        if metric != MEAN:
            names = {part_of(metric): names[part_of(metric)]}
        of_heads = {
            name: self.parts[name].resampled(self.of_head(name, outputs), metrics[0]) for name, metrics in names.items()
        }
        return lambda rows: float(np.mean([of_head(self._in_part(name, rows)) for name, of_head in of_heads.items()]))

    def _spread(self, name: str, right: np.ndarray) -> np.ndarray:
        """Spreads a head's correct decisions over all rows; 0 for the others."""
        if self._rows is None:
            return right
        spread = np.zeros(len(self))
        spread[self._rows[name]] = right
        return spread

    def _in_part(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Converts row indices to indices into `parts`, without other heads' rows; all rows if a sample has none."""
        if self._rows is None:
            return rows
        places = np.full(len(self), -1)
        places[self._rows[name]] = np.arange(len(self._rows[name]))
        of_part = places[rows]
        of_part = of_part[of_part >= 0]
        return of_part if len(of_part) else np.arange(len(self._rows[name]))

    def certainty(self, outputs: Outputs) -> np.ndarray:
        """The least certain decision's probability among all heads, float64 [N], for unlabelled texts."""
        return np.min([rows.certainty(part_outputs(name, outputs)) for name, rows in self.parts.items()], axis=0)

    def described(self, outputs: Outputs, **options: Any) -> list[dict[str, Any]]:
        """All heads' answers to each text; see `HeadAnswers.predict`."""
        tagged = {name: rows for name, rows in self.parts.items() if isinstance(rows, TaggedRows)}
        return self._task.described(outputs, tagged, len(self), **options)

    def answers(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Predictions as in `TextRows.answers`, by head: `{"intent": {"label": …, "true_label": …}}`."""
        data, *inputs = self._inputs
        unlabelled = self if self._rows is None else SeveralRows(self._task, data.first_texts(len(self)), *inputs)
        answers = unlabelled.described(outputs)
        for name, rows in self.parts.items():
            for index, answer in enumerate(rows.answers(self.of_head(name, outputs))):
                del answer["text"]
                answers[self.row_of(name, index)][name] = answer
        return [{"text": text, **answer} for text, answer in zip(data.texts, answers, strict=True)]


class SeveralEvaluator:
    """Scores several heads with one network run; see `SupervisedTask.evaluator`. `choices` are by head."""

    def __init__(
        self,
        task: Several,
        forward: Forward,
        rows: SeveralRows,
        data: SharedTexts,
        metrics: Sequence[str],
        *,
        show_progress: bool = False,
        choices: Mapping[str, DecisionChoice] | None = None,
    ) -> None:
        self._task, self._forward, self._rows, self._data, self._metrics = task, forward, rows, data, metrics
        self._show_progress, self._choices = show_progress, choices or {}
        self._outputs: Outputs = {}
        needed = task.own_metrics(metrics)
        self._evaluators = {name: self._evaluator(name, needed[name]) for name in task.parts}

    def metrics(self, when: str) -> dict[str, float]:
        """See `Evaluator.metrics`."""
        return self._task.joined(self._metrics, self.metrics_by_head(when))

    def metrics_by_head(self, when: str) -> dict[str, dict[str, float]]:
        """Metrics by head and by the head's own names; see `metrics`."""
        self._run(when)
        return {name: evaluator.metrics(when) for name, evaluator in self._evaluators.items()}

    def scores(self, main_metric: str | None = None, metrics: Mapping[str, float] | None = None) -> Scores:
        """See `Evaluator.scores`; without `metrics`, computes them."""
        results = self.metrics("at the end")
        scores = self._task.with_baseline(self._data, metrics or results, self._metrics, main_metric)
        rows = self._rows.decided_by(type(self._task)(self.task)) if self._choices else self._rows
        interval = score_interval(len(rows), rows.resampled(self._outputs, scores.main_metric))
        return dataclasses.replace(scores, interval=interval, decisions=self._decisions())

    @property
    def task(self) -> TaskConfig:
        """See `Evaluator`."""
        return dataclasses.replace(self._task.config, tasks=tuple(part.task for part in self._evaluators.values()))

    def _decisions(self) -> Mapping[str, Any] | None:
        """The heads' thresholds, if any, for `Scores.decisions`."""
        described = {
            name: evaluator.decisions()
            for name, evaluator in self._evaluators.items()
            if isinstance(evaluator, TextEvaluator)
        }
        by_head = {name: decisions for name, decisions in described.items() if decisions is not None}
        return {"heads": by_head} if by_head else None

    def mistakes(self, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """See `Evaluator.mistakes`: about equally many per head; the head's name precedes the answers."""
        most_of_head = None if most is None else -(-most // len(self._evaluators))
        return [
            dataclasses.replace(
                mistake,
                index=self._rows.row_of(name, mistake.index),
                label=f"{name}: {mistake.label}",
                prediction=f"{name}: {mistake.prediction}",
            )
            for name, evaluator in self._evaluators.items()
            for mistake in evaluator.mistakes(most_of_head)
        ][:most]

    def _evaluator(self, name: str, metrics: Sequence[str]) -> Evaluator:
        """An evaluator for a head, on its outputs in the last run."""
        part, rows = self._task.parts[name], self._rows.parts[name]

        def of_head(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
            return self._rows.of_head(name, self._outputs)

        if isinstance(rows, TaggedRows):
            assert isinstance(part, TokenClassification)
            return TokenEvaluator(part, of_head, rows, metrics)
        data = self._data.parts[name]
        assert isinstance(part, TextTask) and isinstance(data, Examples)
        return TextEvaluator(part, of_head, rows.encoded, metrics, data, choice=self._choices.get(name))

    def _run(self, when: str) -> None:
        self._outputs = check_finite(when, self._forward(self._rows.encoded, show_progress=self._show_progress))
