"""Tagged texts as token rows: their labels, and scores for a network's tags."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.readers.tagged_texts import TaggedTexts
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import tag_scores
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake, listed, most_certain
from pocketbert_runtime.answers.probabilities import probabilities_of
from pocketbert_runtime.answers.tag_rows import TagRows
from pocketbert_runtime.answers.tags import WordSpan, spans_of
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.windows import WindowOptions

if TYPE_CHECKING:
    from pocketbert.tasks.token_classification import TokenClassification

_UNLABELLED = -1


class TaggedRows(TagRows):
    """Windows of tagged texts as rows; see `Rows`.

    Args:
      task: the task.
      data: the texts.
      tokenizer: the network's tokenizer.
      options: window options.
      truncated: keep only each text's first window.
    Attributes:
      data: the texts.
      encoded: the rows, without labels.
      decided: int64 indices of tokens with a word's tag.
    """

    encoded: EncodedExamples

    def __init__(
        self,
        task: TokenClassification,
        data: TaggedTexts,
        tokenizer: Any,
        options: WindowOptions,
        *,
        truncated: bool = False,
    ) -> None:
        super().__init__(task, data.texts, data.words, tokenizer, options, truncated=truncated)
        self._task, self.data = task, data
        self.encoded = EncodedExamples.of(self.encoded)

    @property
    def gold(self) -> list[list[str]]:
        """The data's tags."""
        assert self.data.tags is not None
        return self.data.tags

    def labelled_rows(self) -> EncodedExamples:
        """The rows with labels; see `TokenClassification.encode`."""
        labels = self._task.config.labels
        index = {label: position for position, label in enumerate(labels)}
        flat = np.full(len(self.encoded.word_ids), _UNLABELLED, np.int32)
        for tags, places in zip(self.gold, self._places, strict=True):
            unknown = set(tags) - index.keys()
            if unknown:
                raise UserError(
                    f"to train, the labels must be IOB2 tags; the model's labels {', '.join(labels)[:200]} lack "
                    f"{', '.join(sorted(unknown))[:200]} of {self.data.source}; fine-tune a new head"
                )
            flat[places[places >= 0]] = [index[tag] for tag, token in zip(tags, places, strict=True) if token >= 0]
        return self.encoded.with_labels(self._padded(flat, _UNLABELLED))

    def soft_rows(self) -> np.ndarray:
        """The data's soft labels, float32 [rows, max_length, tags]: 0 except for each word's first token."""
        assert self.data.soft_labels is not None
        flat = np.zeros((len(self.encoded.word_ids), len(self._task.config.labels)), np.float32)
        for soft, places in zip(self.data.soft_labels, self._places, strict=True):
            flat[places[places >= 0]] = soft[places >= 0]
        return self._padded(flat, 0)

    def _padded(self, flat: np.ndarray, padding: float) -> np.ndarray:
        """Reshapes all rows' values [tokens, ...] to [rows, max_length, ...]."""
        lengths, longest = self.encoded.lengths, self.encoded.max_length
        padded = np.full((len(lengths), longest, *flat.shape[1:]), padding, flat.dtype)
        padded[np.arange(longest) < lengths[:, np.newaxis]] = flat
        return padded

    def certainty(self, outputs: Outputs) -> np.ndarray:
        """Each text's least certain word tag: its probability, float64 [N]; 1 for texts without words."""
        probability = probabilities_of(outputs[self._task.output_names[0]]).max(axis=1)
        return np.array([probability[places[places >= 0]].min(initial=1.0) for places in self._places])

    def answers(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Predictions as `predict` writes them, with the text and its labelled spans as `true_spans`."""
        rows = []
        for text, words, gold, spans in zip(
            self.data.texts, self.data.words, self.gold, self.spans(outputs), strict=True
        ):
            true_spans = []
            for first, last, label in spans_of(gold):
                start, end = int(words[first, 0]), int(words[last, 1])
                true_spans.append({"text": text[start:end], "label": label, "start": start, "end": end})
            rows.append({"text": text, "spans": spans, "true_spans": true_spans})
        return rows

    def mistakes(self, outputs: Outputs, most: int | None = MOST_MISTAKES) -> list[Mistake]:
        """Texts with wrong spans, ordered by the most certain wrong tag."""
        probability = probabilities_of(outputs[self._task.output_names[0]]).max(axis=1)
        predicted = self.tags(outputs)
        certainty = np.zeros(len(predicted))
        for index, (gold, tags, places) in enumerate(zip(self.gold, predicted, self._places, strict=True)):
            differ = np.array(
                [position >= 0 and a != b for a, b, position in zip(gold, tags, places, strict=True)], bool
            )
            certainty[index] = probability[places[differ]].max(initial=0.0)
        wrong = np.array([span_set(gold) != span_set(tags) for gold, tags in zip(self.gold, predicted, strict=True)])
        return [
            Mistake(
                index=index,
                text=self.data.texts[index],
                pair=None,
                label=self._in_words(index, self.gold[index]),
                prediction=self._in_words(index, predicted[index]),
                probability=float(certainty[index]),
            )
            for index in most_certain(wrong, certainty, most)
        ]

    def _in_words(self, index: int, tags: Sequence[str]) -> str:
        text, words = self.data.texts[index], self.data.words[index]
        spans = [f"{text[words[first, 0] : words[last, 1]]} ({label})" for first, last, label in spans_of(tags)]
        return listed(spans, "no span")

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray]:
        """See `Rows.score`. A text counts its correct spans, minus its wrong ones."""
        predicted = self.tags(outputs)
        right = [
            2 * len(gold_spans & predicted_spans) - len(predicted_spans)
            for gold_spans, predicted_spans in zip(map(span_set, self.gold), map(span_set, predicted), strict=True)
        ]
        return tag_scores([metric], self.gold, predicted)[metric], np.asarray(right, np.float64)

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """See `Rows.resampled`."""
        return resampled_tags(metric, self.gold, self.tags(outputs))


def resampled_tags(metric: str, gold: list[list[str]], predicted: list[list[str]]) -> Callable[[np.ndarray], float]:
    """Computes a metric on the texts at some indices from counts per text: micro averages are ratios between sums.

    Args:
      metric: a name in `TAG_METRICS`.
      gold: word tags for each text.
      predicted: as `gold`.
    """
    counts = np.array([_counts(metric, *texts) for texts in zip(gold, predicted, strict=True)], np.float64)

    def resampled(indices: np.ndarray) -> float:
        right, total = counts[indices].sum(axis=0)
        return float(right / total) if total else 0.0

    return resampled


def _counts(metric: str, gold: list[str], predicted: list[str]) -> tuple[int, int]:
    """One text's numerator and denominator for a metric in `TAG_METRICS`."""
    if metric == "accuracy":
        return sum(map(operator.eq, gold, predicted)), len(gold)
    right, spans = span_set(gold), span_set(predicted)
    hits = len(right & spans)
    shares = {"f1": (2 * hits, len(right) + len(spans)), "precision": (hits, len(spans)), "recall": (hits, len(right))}
    return shares[metric]


def span_set(tags: Sequence[str]) -> set[WordSpan]:
    """The spans in a text's tags."""
    return {*spans_of(tags)}
