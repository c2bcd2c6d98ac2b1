"""Answers to questions on paragraphs, from a model directory or a bundle alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.questions import Question
from pocketbert.data.windows import WindowOptions, Windows
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.tasks.answers import MAX_ANSWER_TOKENS, N_BEST, Answered
from pocketbert.training.question_answering import WindowLogits, as_examples, fill, model_logits, read_answers
from pocketbert_export.bundle import Bundle
from pocketbert_export.length_buckets import place

# Windows that a model answers at once, and that are made ready for a bundle at once.
_WINDOWS_A_CALL = 32


class SpanPredictor:
    """Answers questions; `model_span_predictor` and `bundle_span_predictor` make one.

    Args:
      task: spans; its `null_threshold` says when a question has no answer.
      tokenizer: what turns text into inputs.
      windows: how paragraphs are cut.
      logits: answers windows.
    """

    def __init__(self, task: TaskConfig, tokenizer: Any, windows: WindowOptions, logits: WindowLogits) -> None:
        self.task, self.windows = task, windows
        self._tokenizer = tokenizer
        self._logits_unchecked = logits

    def answers(
        self,
        questions: Iterable[Question],
        *,
        n_best: int = N_BEST,
        max_answer_tokens: int = MAX_ANSWER_TOKENS,
        progress_total: int | None = None,
    ) -> Iterator[tuple[Question, Answered]]:
        """As `pocketbert.training.question_answering.read_answers`."""
        return read_answers(
            questions,
            self._tokenizer,
            self.windows,
            self._logits,
            with_null=self.task.null_threshold is not None,
            n_best=n_best,
            max_answer_tokens=max_answer_tokens,
            progress_total=progress_total,
        )

    def _logits(self, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        start, end = self._logits_unchecked(windows)
        check_finite(start, end)
        return start, end


def check_finite(*answers: np.ndarray) -> None:
    """Raises `UserError` where an answer is NaN or infinite."""
    if not all(np.isfinite(each).all() for each in answers):
        raise UserError(
            "a model's answers must be finite; received NaN or infinity; its weights are damaged, or its training "
            "diverged: fine-tune it again, and export it again"
        )


def model_span_predictor(model: Model, **windows: Any) -> SpanPredictor:
    """Answers with a float model.

    Args:
      model: with a head for spans and a tokenizer.
      **windows: fields of `WindowOptions`; windows are no longer than the model's positions.

    Raises:
      UserError: a window that the positions do not reach.
    """
    assert model.task is not None
    positions = model.config.max_position_embeddings
    options = WindowOptions(**{"max_length": min(WindowOptions.max_length, positions), **windows})
    if options.max_length > positions:
        raise UserError(f"windows must fit into the model's {positions} positions; received {options.max_length}")
    return SpanPredictor(model.task, model.tokenizer, options, model_logits(model, _WINDOWS_A_CALL))


def bundle_span_predictor(bundle: Bundle, **windows: Any) -> SpanPredictor:
    """Answers with a bundle on LiteRT; each window goes to the shortest signature that holds it.

    Args:
      bundle: of spans.
      **windows: fields of `WindowOptions`; windows are as long as the longest signature.

    Raises:
      UserError: a window that no signature holds.
    """
    assert bundle.task is not None
    longest = bundle.lengths[-1]
    options = WindowOptions(**{"max_length": longest, **windows})
    if options.max_length > longest:
        raise UserError(f"windows must fit into the bundle's longest length, {longest}; received {options.max_length}")
    return SpanPredictor(bundle.task, bundle.tokenizer(), options, _bundle_logits(bundle))


def _bundle_logits(bundle: Bundle) -> WindowLogits:
    pad_token_id = bundle.tokenizer().pad_token_id

    def answer(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
        encoded = as_examples(windows, bundle.lengths[-1], pad_token_id)
        logits = np.empty((2, len(windows.word_ids)), np.float32)
        for first in range(0, len(encoded), _WINDOWS_A_CALL):
            rows = np.arange(first, min(first + _WINDOWS_A_CALL, len(encoded)))
            inputs, _ = encoded.batch(rows)
            for placed in place({name: inputs[name] for name in INPUT_NAMES}, bundle.lengths, pad_token_id):
                outputs = bundle.run(placed.inputs, placed.length)
                fill(logits, windows, rows[placed.indices], outputs["start_logits"], outputs["end_logits"])
        return logits[0], logits[1]

    return answer
