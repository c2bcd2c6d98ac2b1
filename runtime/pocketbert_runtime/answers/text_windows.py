"""Long texts in overlapping windows, and one answer from all windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.inputs import texts_and_pairs
from pocketbert_runtime.answers.probabilities import probabilities_of, sigmoid_of
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, check_finite_answers
from pocketbert_runtime.notation import argument
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm


def window_rows(
    texts: Sequence[str], tokenizer: Any, max_length: int, stride: int | None = None
) -> tuple[TokenRows, np.ndarray]:
    """Divides single texts into windows like paragraphs in `pocketbert_runtime.windows`, without a question.

    Args:
      texts: at least one text.
      tokenizer: the network's tokenizer.
      max_length: tokens per window, with special tokens.
      stride: tokens between the starts of two windows; None for a third of `max_length`.
    Returns:
      The windows as rows, and each one's text index, int64 [windows], ascending. A longer text's last window has its
        last tokens, and may be shorter.
    Raises:
      UserError: the stride would leave out tokens, or there is no room for a token.
    """
    room = max_length - tokenizer.frame.num_special_tokens(pairs=False)
    if room < 1:
        raise UserError(
            f"a window must have room for a token; received {argument('max_length', max_length)}; pass a larger one"
        )
    step = min(max_length // 3 or 1, room) if stride is None else stride
    if not 1 <= step <= room:
        raise UserError(
            f"{argument('stride')} must lie between 1 and {room}, the tokens of a window; received {stride}; pass a "
            "smaller one, so that no token is left out"
        )
    frame, rows, index = tokenizer.frame, [], []
    for number, ids in enumerate(tokenizer.id_rows(texts)):
        for start in range(0, max(len(ids) - room + step, 1), step):
            rows.append([frame.first, *ids[start : start + room], frame.last])
            index.append(number)
    word_ids = np.concatenate([np.asarray(row, np.int32) for row in rows])
    encoded = TokenRows(
        word_ids=word_ids,
        type_ids=np.zeros_like(word_ids),
        offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        max_length=max_length,
        pad_token_id=int(tokenizer.pad_token_id),
    )
    return encoded, np.asarray(index, np.int64)


def windowed_logits(
    task: TaskForm,
    inputs: Sequence[Any],
    forward: Forward,
    tokenizer: Any,
    max_length: int,
    stride: int | None = None,
) -> np.ndarray:
    """Returns logits, float64 [N, ...], for the mean probability, or score, over each text's windows.

    Args:
      task: classes, several labels or a score for each text.
      inputs: at least one single text, as for `predict`.
      forward: runs the network.
      tokenizer: the network's tokenizer.
      max_length: tokens per window; a text with one window keeps its own logits.
      stride: see `window_rows`.
    Raises:
      UserError: the inputs are pairs, the windows do not fit (see `window_rows`), or an output is not finite.
    """
    texts, pairs = texts_and_pairs(inputs)
    if pairs is not None or task.separates_pairs:
        raise UserError(f"windows are for single texts; received pairs of texts; leave {argument('windows', True)} out")
    encoded, index = window_rows(texts, tokenizer, max_length, stride)
    logits = check_finite_answers(forward(encoded))["logits"].astype(np.float64)
    counts = np.bincount(index).reshape(-1, *[1] * (logits.ndim - 1))
    sums = np.zeros((len(counts), *logits.shape[1:]))
    np.add.at(sums, index, _probabilities(task, logits))
    of_first = logits[np.searchsorted(index, np.arange(len(counts)))]
    return np.where(counts == 1, of_first, _logits_of(task, sums / counts))


def _probabilities(task: TaskForm, logits: np.ndarray) -> np.ndarray:
    """Softmax for classes, sigmoids for several labels; scores as they are."""
    if task.has_independent_labels:
        return sigmoid_of(logits)
    return probabilities_of(logits) if task.has_classes else logits


def _logits_of(task: TaskForm, probabilities: np.ndarray) -> np.ndarray:
    """Logits for these probabilities; infinite for 0 and 1."""
    with np.errstate(divide="ignore"):
        if task.has_independent_labels:
            return np.log(probabilities) - np.log1p(-probabilities)
        return np.log(probabilities) if task.has_classes else probabilities
