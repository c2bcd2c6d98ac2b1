"""Texts as token rows, and their words' tags and spans from a network's outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.probabilities import check_labels, probabilities_of
from pocketbert_runtime.answers.tags import OUTSIDE, WordSpan, iob2, prefixed, spans_of
from pocketbert_runtime.answers.words import continues
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm
from pocketbert_runtime.windows import WindowOptions

TEXTS_A_CALL = 4096


class TagRows:
    """Text windows as rows.

    Args:
      task: the task.
      texts: the texts.
      words: the words' offsets in code points, int64 `[words, 2]` for each text.
      tokenizer: the network's tokenizer.
      options: window options.
      truncated: keep only each text's first window.
    Attributes:
      encoded: the rows.
      decided: int64 indices of tokens with a word's tag.
    """

    def __init__(
        self,
        task: TaskForm,
        texts: Sequence[str],
        words: Sequence[np.ndarray],
        tokenizer: Any,
        options: WindowOptions,
        *,
        truncated: bool = False,
    ) -> None:
        self._texts, self._words = texts, words
        self._labels, self._output = task.config.labels, task.output_names[0]
        frame = tokenizer.frame
        room = options.max_length - frame.num_special_tokens(pairs=False)
        step = min(options.stride or options.max_length // 3, room)
        word_ids, lengths = [], []
        # Per word, its first token's index into all rows' tokens; -1 without a token.
        self._places: list[np.ndarray] = []
        total = 0
        for words_of_text, ids, starts in _tokenized(texts, words, tokenizer, room if truncated else None):
            # The first token that starts inside the word.
            first = np.searchsorted(starts, words_of_text[:, 0])
            inside = first < len(starts)
            inside[inside] = starts[first[inside]] < words_of_text[inside, 1]
            begins = np.arange(1 - min(room - len(ids), 0) // step) * step
            ends = np.minimum(begins + room, len(ids))
            # Choose the window with the most tokens on the token's shorter side; the first one for ties.
            left, right = first[:, np.newaxis] - begins, ends - 1 - first[:, np.newaxis]
            window = np.minimum(left, right).argmax(axis=1)
            offsets = total + np.cumsum([0, *(ends - begins + 2)])
            self._places.append(np.where(inside, offsets[window] + 1 + first - begins[window], -1))
            for begin, end in zip(begins, ends, strict=True):
                word_ids.append(np.concatenate([[frame.first], ids[begin:end], [frame.last]]))
            lengths += (ends - begins + 2).tolist()
            total = int(offsets[-1])
        ids_of_rows = np.concatenate(word_ids).astype(np.int32)
        self.encoded = TokenRows(
            word_ids=ids_of_rows,
            type_ids=np.zeros_like(ids_of_rows),
            offsets=np.cumsum([0, *lengths]).astype(np.int64),
            max_length=options.max_length,
            pad_token_id=int(tokenizer.pad_token_id),
        )
        every = np.concatenate([*self._places, np.zeros(0, np.int64)])
        self.decided = every[every >= 0]

    def __len__(self) -> int:
        return len(self._texts)

    def tags(self, outputs: Outputs) -> list[list[str]]:
        """Each word's predicted IOB2 tag, from any scheme (see `tags.spans_of`); `O` for words without a token."""
        check_labels(self._labels, outputs[self._output])
        names = [prefixed(label) for label in self._labels]
        best = outputs[self._output].argmax(axis=-1)
        return [
            iob2(spans, len(places))
            for places, spans in zip(self._places, self._word_spans([names[label] for label in best]), strict=True)
        ]

    def _word_spans(self, tags: Sequence[str]) -> Iterator[list[WordSpan]]:
        """Yields each text's spans, from tags for all rows' tokens."""
        for text, words, places in zip(self._texts, self._words, self._places, strict=True):
            # These words continue the token of an earlier word.
            is_part = (places < 0) & continues(text, words)
            units = np.flatnonzero(~is_part)
            ends = np.append(units[1:], len(places)) - 1
            unit_tags = [tags[position] if position >= 0 else OUTSIDE for position in places[units]]
            # Only a unit's parts follow it.
            yield [WordSpan(int(units[first]), int(ends[last]), label) for first, last, label in spans_of(unit_tags)]

    def spans(self, outputs: Outputs) -> list[list[dict[str, Any]]]:
        """Predicts each text's spans; see `TokenClassification.predict`."""
        probability = probabilities_of(outputs[self._output]).max(axis=1)
        spans = []
        for text, words, places, tags in zip(self._texts, self._words, self._places, self.tags(outputs), strict=True):
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
        """Each text's `words` and their tags' `probabilities`; None for words without a token."""
        labels = self._labels
        probabilities = probabilities_of(outputs[self._output])
        return [
            {
                "words": words.tolist(),
                "probabilities": [
                    dict(zip(labels, probabilities[token].tolist(), strict=True)) if token >= 0 else None
                    for token in places
                ],
            }
            for words, places in zip(self._words, self._places, strict=True)
        ]


def _tokenized(
    texts: Sequence[str], words: Sequence[np.ndarray], tokenizer: Any, most: int | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields each text's words, its token ids, and their starts in code points; at most the first `most` tokens."""
    for first in range(0, len(texts), TEXTS_A_CALL):
        chunk = slice(first, first + TEXTS_A_CALL)
        ids, starts, _, splits = tokenizer.tokens(texts[chunk])
        for words_of_text, begin, end in zip(words[chunk], splits, splits[1:], strict=False):
            end = end if most is None else min(end, begin + most)
            yield words_of_text, ids[begin:end], starts[begin:end]
