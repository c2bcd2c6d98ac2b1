"""Tasks with one answer per text or pair."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.separate_pairs import separate_rows
from pocketbert_runtime.answers.text_windows import windowed_logits
from pocketbert_runtime.forward import Forward, check_finite_answers
from pocketbert_runtime.rows import token_rows
from pocketbert_runtime.task_config import TaskConfig


class TextAnswers(Answers):
    """Answers from `logits` for each text or pair."""

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.separates_pairs = config.pairs == "separate"

    @abc.abstractmethod
    def describe(self, logits: np.ndarray, **options: Any) -> list[dict[str, Any]]:
        """Converts logits [N, ...] to the dictionaries from `predict`."""

    def predict(
        self,
        inputs: Sequence[Any],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        windows: bool = False,
        stride: int | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """Predicts for texts or pairs; for the other options see `describe`.

        `windows` reads a longer text in windows with `max_length` tokens, `stride` tokens apart (see `text_windows`),
        and averages their probabilities or scores.
        """
        if windows and len(inputs):
            logits = windowed_logits(self, inputs, forward, tokenizer, max_length, stride)
        else:
            logits = self.logits(inputs, forward, tokenizer, max_length)
        return self.describe(logits, **options)

    def logits(
        self,
        inputs: Sequence[Any],
        forward: Forward,
        tokenizer: Any,
        max_length: int,
        *,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Returns the logits, float32 [N, ...], in input order; for the arguments see `predict`."""
        if not len(inputs):
            return np.zeros((0, *((len(self.config.labels),) if self.config.labels else ())), np.float32)
        texts, pairs = texts_and_pairs(inputs)
        make_rows = separate_rows if self.separates_pairs else token_rows
        rows = make_rows(texts, pairs, tokenizer, max_length, show_progress=show_progress)
        return check_finite_answers(forward(rows, show_progress=show_progress))["logits"]
