"""Token classification: a tag for each word, and word spans such as names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Answers, Evidence
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.probabilities import probabilities_of
from pocketbert_runtime.answers.tag_rows import TEXTS_A_CALL, TagRows
from pocketbert_runtime.answers.words import split_words
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs, check_finite_answers
from pocketbert_runtime.windows import WindowOptions

TOKEN_LOGITS = "token_logits"


class TagAnswers(Answers):
    """Word spans. A word's first token carries its tag (Devlin et al. 2019, section 5.3)."""

    kind = "token_classification"
    output_names = (TOKEN_LOGITS,)
    per_token = True
    window_options = ("stride",)

    def predict(
        self,
        inputs: Sequence[Any],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        soft_labels: bool = False,
        **windows: Any,
    ) -> list[dict[str, Any]]:
        """Finds spans in texts; long texts are read in windows; see `Answers.predict`.

        Returns:
          `spans`: each has `text`, `label`, its offsets `start` and `end` in code points, and `probability`, the mean
            over its words. With `soft_labels`, also `words`, their offsets, and their tags' `probabilities`.
        """
        texts, pairs = texts_and_pairs(inputs)
        if pairs is not None:
            raise UserError(f"inputs must be texts; received a pair, {inputs[0]!r:.80}; pass one text each")
        answers, options = [], WindowOptions(max_length=max_length, **windows)
        for start in range(0, len(texts), TEXTS_A_CALL):
            chunk = texts[start : start + TEXTS_A_CALL]
            rows = TagRows(self, chunk, [split_words(text) for text in chunk], tokenizer, options)
            answers += described_rows(rows, check_finite_answers(forward(rows.encoded)), soft_labels=soft_labels)
        return answers

    def near_ties(
        self, expected: Mapping[str, Any], answer: Mapping[str, Any], tolerance: float, evidence: Evidence
    ) -> Collection[str]:
        """The spans, if each of the differing ones has a token whose two best tags nearly tie."""
        others, spans = ({_edges(span) for span in _spans(part)} for part in (expected, answer))
        best = np.sort(probabilities_of(evidence.outputs[self.output_names[0]]), axis=1)
        tied = evidence.offsets[best[:, -1] - best[:, -2] < 2 * tolerance]
        uncertain = all(((tied[:, 0] < end) & (tied[:, 1] > start)).any() for start, end, _ in others ^ spans)
        return ("spans",) if uncertain and others != spans else ()


def _spans(answer: Mapping[str, Any]) -> Sequence[Any]:
    spans = answer.get("spans")
    return spans if isinstance(spans, list) else ()


def _edges(span: Any) -> tuple[int, int, str]:
    """A span's start, end and label; no span of a text for another value."""
    values = span if isinstance(span, dict) else {}
    start, end, label = values.get("start"), values.get("end"), values.get("label")
    if type(start) is int and type(end) is int and isinstance(label, str):
        return start, end, label
    return -1, -1, ""


def described_rows(rows: TagRows, outputs: Outputs, *, soft_labels: bool) -> list[dict[str, Any]]:
    """Each text's spans as from `TagAnswers.predict`."""
    soft = rows.word_probabilities(outputs) if soft_labels else [{}] * len(rows)
    return [{"spans": spans, **words} for spans, words in zip(rows.spans(outputs), soft, strict=True)]
