"""One way from inputs to answers, for a float model and a bundle, whatever the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.windows import WindowOptions
from pocketbert.errors import UserError
from pocketbert.tasks.base import Evaluator, Forward, Outputs, SupervisedTask
from pocketbert.tasks.forward import check_finite_answers
from pocketbert.tasks.registry import listed, supervised_kinds, supervised_task
from pocketbert.tasks.texts import TextTask


class Predictor:
    """Answers inputs with a network.

    Args:
      task: the network's.
      forward: runs it.
      tokenizer: its own.
      max_length: the most tokens of an input, or of a window.
      **windows: the task's `window_options`.
    """

    def __init__(self, task: SupervisedTask, forward: Forward, tokenizer: Any, max_length: int, **windows: Any) -> None:
        self.task, self.tokenizer, self.max_length, self.windows = task, tokenizer, max_length, windows
        self._forward = forward

    def forward(self, encoded: EncodedExamples, *, show_progress: bool = False) -> Outputs:
        """The network's outputs.

        Raises:
          UserError: one is not finite.
        """
        return check_finite_answers(self._forward(encoded, show_progress=show_progress))

    def predict(self, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """Answers texts, pairs of texts, or pairs of question and paragraph; see the task's `predict`."""
        return self.task.predict(inputs, self.forward, self.tokenizer, self.max_length, **self.windows, **options)

    def evaluator(self, data: Any, **options: Any) -> Evaluator:
        """What scores the network on labelled data, as in training; see `SupervisedTask.evaluator`."""
        return self.task.evaluator(self.forward, data, self.tokenizer, self.max_length, **self.windows, **options)

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, show_progress: bool = False
    ) -> np.ndarray:
        """The logits of texts; longer ones are truncated.

        Args:
          texts: sentences, or the first sentences of pairs.
          pairs: the second sentences, as many, or None.
          show_progress: on stderr.

        Returns:
          float32 `[n, labels]`, or `[n]` of a task without labels, in the order of the texts.

        Raises:
          UserError: the task has no such logits, or they are not finite.
        """
        if not isinstance(self.task, TextTask):
            raise UserError(f"logits are of tasks on texts; received {self.task.kind}; call predict")
        inputs: Sequence[Any] = texts if pairs is None else list(zip(texts, pairs, strict=True))
        return self.task.logits(inputs, self.forward, self.tokenizer, self.max_length, show_progress=show_progress)


def model_predictor(model: Any, source: str = "the model", **windows: int | None) -> Predictor:
    """Predicts with a float model's first head.

    Args:
      model: a `pocketbert.Model` with a supervised task and a tokenizer.
      source: what to call it in messages.
      **windows: `max_length` and the task's `window_options`; a task without those ignores them.

    Raises:
      UserError: it has no such task or no tokenizer, or windows that do not fit.
    """
    task = predicting_task(model.task, source)
    if model.tokenizer is None:
        raise UserError(f"{source} must have a vocabulary to read text; it has none; put vocab.txt beside its weights")
    positions = model.config.max_position_embeddings
    default = min(task.default_max_length or positions, positions)
    max_length, windows = fitting_windows(task, windows, default, positions, f"the model's {positions} positions")
    return Predictor(task, model.forward, model.tokenizer, max_length, **windows)


def predicting_task(config: Any, source: str) -> SupervisedTask:
    """The task of a network that is to predict.

    Raises:
      UserError: it has none that predicts.
    """
    rule = f"{source} must have a task of kind {listed(supervised_kinds())} to predict; it has"
    return supervised_task(config, rule, "fine-tune it first")


def fitting_windows(
    task: SupervisedTask, windows: dict[str, int | None], default: int, longest: int, room: str
) -> tuple[int, dict[str, int | None]]:
    """The most tokens of a row, and the task's other window options.

    Args:
      task: without `window_options` it has the longest rows.
      windows: `max_length` and others, as far as they are given.
      default: the length where none is given.
      longest: the length that the network holds.
      room: for the message, what they must fit into.

    Raises:
      UserError: rows that are too long, or windows that cannot be.
    """
    if not task.window_options:
        return longest, {}
    options = WindowOptions(**{"max_length": default, **windows})  # type: ignore[arg-type]
    if options.max_length > longest:
        raise UserError(f"windows must fit into {room}; received {options.max_length}")
    return options.max_length, {name: value for name, value in windows.items() if name != "max_length"}
