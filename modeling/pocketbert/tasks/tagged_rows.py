"""Tagged texts as rows of tokens: windows, tags and spans from a network's outputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.readers.iob import OUTSIDE, WordSpan, iob2, prefixed, spans_of
from pocketbert.data.readers.tagged_texts import TaggedTexts
from pocketbert.data.readers.word_splitting import continues
from pocketbert.errors import UserError
from pocketbert.tasks.metrics import tag_scores
from pocketbert.tasks.mistakes import MOST_MISTAKES, Mistake, listed, most_certain
from pocketbert_runtime.answers.probabilities import probabilities_of
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.windows import WindowOptions

if TYPE_CHECKING:
    from pocketbert.tasks.token_classification import TokenClassification

TEXTS_A_CALL = 4096
_UNLABELLED = -1


class TaggedRows:
    """Windows of texts as rows; see `Rows`.

    Args:
      task: the task.
      data: the texts.
      tokenizer: tokenizer of the network.
      options: options of the windows.
      truncated: whether each text has its first window alone.

    Attributes:
      data: the texts.
      encoded: the rows, without labels.
      decided: int64, places of the tokens that carry the tag of a word.
    """

    def __init__(
        self,
        task: TokenClassification,
        data: TaggedTexts,
        tokenizer: Any,
        options: WindowOptions,
        *,
        truncated: bool = False,
    ) -> None:
        self._task, self.data = task, data
        frame = tokenizer.frame
        room = options.max_length - frame.num_special_tokens(pairs=False)
        step = min(options.stride or options.max_length // 3, room)
        word_ids, lengths = [], []
        # For each word the place of its first token among all rows' tokens; -1 without a token.
        self._places: list[np.ndarray] = []
        total = 0
        for words, ids, starts in _tokenized(data, tokenizer, room if truncated else None):
            # The first token that starts inside the word.
            first = np.searchsorted(starts, words[:, 0])
            inside = first < len(starts)
            inside[inside] = starts[first[inside]] < words[inside, 1]
            begins = np.arange(1 - min(room - len(ids), 0) // step) * step
            ends = np.minimum(begins + room, len(ids))
            # The window with the most tokens on the shorter side of each token; the first one for ties.
            left, right = first[:, np.newaxis] - begins, ends - 1 - first[:, np.newaxis]
            window = np.minimum(left, right).argmax(axis=1)
            offsets = total + np.cumsum([0, *(ends - begins + 2)])
            self._places.append(np.where(inside, offsets[window] + 1 + first - begins[window], -1))
            for begin, end in zip(begins, ends, strict=True):
                word_ids.append(np.concatenate([[frame.first], ids[begin:end], [frame.last]]))
            lengths += (ends - begins + 2).tolist()
            total = int(offsets[-1])
        ids_of_rows = np.concatenate(word_ids).astype(np.int32)
        self.encoded = EncodedExamples(
            word_ids=ids_of_rows,
            type_ids=np.zeros_like(ids_of_rows),
            offsets=np.cumsum([0, *lengths]).astype(np.int64),
            labels=None,
            max_length=options.max_length,
            pad_token_id=int(tokenizer.pad_token_id),
        )
        every = np.concatenate([*self._places, np.zeros(0, np.int64)])
        self.decided = every[every >= 0]

    def __len__(self) -> int:
        return len(self.data)

    @property
    def gold(self) -> list[list[str]]:
        """The tags of the data."""
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
        """The soft labels of the data, float32 [rows, max_length, tags]: 0 except for first tokens of words."""
        assert self.data.soft_labels is not None
        flat = np.zeros((len(self.encoded.word_ids), len(self._task.config.labels)), np.float32)
        for soft, places in zip(self.data.soft_labels, self._places, strict=True):
            flat[places[places >= 0]] = soft[places >= 0]
        return self._padded(flat, 0)

    def _padded(self, flat: np.ndarray, padding: float) -> np.ndarray:
        """Values [tokens, ...] of all rows, as [rows, max_length, ...]."""
        lengths, longest = self.encoded.lengths, self.encoded.max_length
        padded = np.full((len(lengths), longest, *flat.shape[1:]), padding, flat.dtype)
        padded[np.arange(longest) < lengths[:, np.newaxis]] = flat
        return padded

    def tags(self, outputs: Outputs) -> list[list[str]]:
        """The predicted IOB2 tags of the words of each text; `O` for words without a token.

        Models with other schemes have the same spans, and sequences that IOB2 does not allow get a meaning; see
        `iob.spans_of`.
        """
        names = [prefixed(label) for label in self._task.config.labels]
        best = outputs[self._task.output_names[0]].argmax(axis=-1)
        return [
            iob2(spans, len(places))
            for places, spans in zip(self._places, self._word_spans([names[label] for label in best]), strict=True)
        ]

    def _word_spans(self, tags: Sequence[str]) -> Iterator[list[WordSpan]]:
        """The spans of each text, from the tag of each token of all rows."""
        for text, words, places in zip(self.data.texts, self.data.words, self._places, strict=True):
            # These words are parts of the token of a word before them.
            is_part = (places < 0) & continues(text, words)
            units = np.flatnonzero(~is_part)
            ends = np.append(units[1:], len(places)) - 1
            unit_tags = [tags[position] if position >= 0 else OUTSIDE for position in places[units]]
            # Behind a unit there are only parts of it.
            yield [WordSpan(int(units[first]), int(ends[last]), label) for first, last, label in spans_of(unit_tags)]

    def spans(self, outputs: Outputs) -> list[list[dict[str, Any]]]:
        """The predicted spans of each text; see `TokenClassification.predict`."""
        probability = probabilities_of(outputs[self._task.output_names[0]]).max(axis=1)
        spans = []
        for text, words, places, tags in zip(
            self.data.texts, self.data.words, self._places, self.tags(outputs), strict=True
        ):
            of_text = []
            for first, last, label in spans_of(tags):
                # Words beyond the length have no token.
                tokens = places[first : last + 1]
                start, end = words[first, 0], words[last, 1]
                mean = round(float(probability[tokens[tokens >= 0]].mean()), 6)
                of_text.append(
                    {"text": text[start:end], "label": label, "start": int(start), "end": int(end), "probability": mean}
                )
            spans.append(of_text)
        return spans

    def word_probabilities(self, outputs: Outputs) -> list[dict[str, Any]]:
        """The `words` of each text, and the `probabilities` of their tags; None for words without a token."""
        labels = self._task.config.labels
        probabilities = probabilities_of(outputs[self._task.output_names[0]])
        return [
            {
                "words": words.tolist(),
                "probabilities": [
                    dict(zip(labels, probabilities[token].tolist(), strict=True)) if token >= 0 else None
                    for token in places
                ],
            }
            for words, places in zip(self.data.words, self._places, strict=True)
        ]

    def certainty(self, outputs: Outputs) -> np.ndarray:
        """Probability of the least certain tag of a word of each text, float64 [N]; 1 for texts without words."""
        probability = probabilities_of(outputs[self._task.output_names[0]]).max(axis=1)
        return np.array([probability[places[places >= 0]].min(initial=1.0) for places in self._places])

    def answers(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Predictions as `predict` writes them, with the text, and with its labelled spans as `true_spans`."""
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
        """Texts with wrong spans; the most certain wrong tag of a word orders them."""
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
    """Computes a metric of the texts at some indices from each text's counts: micro averages are ratios of sums.

    Args:
      metric: a name in `TAG_METRICS`.
      gold: tags of the words of each text.
      predicted: as `gold`.
    """
    counts = np.array([_counts(metric, *texts) for texts in zip(gold, predicted, strict=True)], np.float64)

    def resampled(indices: np.ndarray) -> float:
        right, total = counts[indices].sum(axis=0)
        return float(right / total) if total else 0.0

    return resampled


def _counts(metric: str, gold: list[str], predicted: list[str]) -> tuple[int, int]:
    """Numerator and denominator of a metric of `TAG_METRICS` for one text."""
    if metric == "accuracy":
        return sum(map(operator.eq, gold, predicted)), len(gold)
    right, spans = span_set(gold), span_set(predicted)
    hits = len(right & spans)
    shares = {"f1": (2 * hits, len(right) + len(spans)), "precision": (hits, len(spans)), "recall": (hits, len(right))}
    return shares[metric]


def span_set(tags: Sequence[str]) -> set[WordSpan]:
    """The spans of a text's tags."""
    return {*spans_of(tags)}


def _tokenized(
    data: TaggedTexts, tokenizer: Any, most: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Words, token ids and the tokens' starts in code points of each text, of at most the first `most` tokens."""
    for chunk in range(0, len(data), TEXTS_A_CALL):
        tokens = tokenizer.tokenize_with_offsets(data.texts[chunk : chunk + TEXTS_A_CALL])
        ids, starts = tokens.ids.values.numpy(), tokens.starts.values.numpy()
        splits = tokens.ids.row_splits.numpy()
        for words, begin, end in zip(data.words[chunk : chunk + TEXTS_A_CALL], splits, splits[1:], strict=False):
            end = end if most is None else min(end, begin + most)
            yield words, ids[begin:end], starts[begin:end]
