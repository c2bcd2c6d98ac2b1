"""A network's predictions for texts, for all tasks."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from pocketbert_runtime.answers.base import Answers
from pocketbert_runtime.answers.texts import TextAnswers
from pocketbert_runtime.errors import UserError, did_you_mean
from pocketbert_runtime.forward import Forward, Outputs, check_finite_answers
from pocketbert_runtime.heads_config import without_labels
from pocketbert_runtime.notation import argument
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_form import TaskForm
from pocketbert_runtime.windows import WindowOptions


class Predictor:
    """Predicts with a network.

    Args:
      task: the network's task.
      forward: runs the network.
      tokenizer: the network's tokenizer.
      max_length: maximum tokens per input or window.
      **windows: options in the task's `window_options`.
    """

    def __init__(self, task: Answers, forward: Forward, tokenizer: Any, max_length: int, **windows: Any) -> None:
        self.task, self.tokenizer, self.max_length, self.windows = task, tokenizer, max_length, windows
        self._forward = forward

    def forward(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the network's outputs; raises `UserError` if a value is not finite."""
        return check_finite_answers(self._forward(encoded, show_progress=show_progress))

    def predict(self, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """Predicts for texts, text pairs, or pairs of question and paragraph; see the task's `predict`.

        `max_length` and `stride` need `windows=True`; a window has at most the predictor's tokens. With
        `soft_labels=True`, answers have each label's probability with all digits, as `distill` reads them.

        Raises:
          UserError: an option is unknown; `windows` for another task than classes, several labels or scores;
            `soft_labels` for a task without labels, or with `top_k`; or see the task's `predict`.
        """
        names = _option_names(self.task)
        if unknown := [name for name in options if name not in names]:
            raise UserError(
                f"predict has the options {', '.join(sorted(names))} for {self.task.kind}; received {unknown[0]!r}"
                f"{did_you_mean(unknown[0], names)}; leave it out"
            )
        if options.get("soft_labels"):
            option = argument("soft_labels", True)
            if lacking := without_labels(self.task.config):
                raise UserError(f"{option} is for labels; received it for {lacking}; leave it out")
            if options.get("top_k"):
                top = argument("top_k", options["top_k"])
                raise UserError(f"{option} writes all labels; received {top}, too; leave one of them out")
        if options.get("windows") and not isinstance(self.task, TextAnswers):
            raise UserError(
                f"windows are for one answer per text; received them for {self.task.kind}; leave "
                f"{argument('windows', True)} out"
            )
        length = options.pop("max_length", None) or self.max_length
        if length != self.max_length and not options.get("windows"):
            raise UserError(f"max_length needs {argument('windows', True)}; received {length} alone; leave it out")
        if options.get("stride") is not None and isinstance(self.task, TextAnswers) and not options.get("windows"):
            raise UserError(
                f"stride needs {argument('windows', True)}; received {options['stride']} alone; leave it out"
            )
        if length > self.max_length:
            raise UserError(f"windows must have at most {self.max_length} tokens; received max_length={length}")
        return self.task.predict(inputs, self.forward, self.tokenizer, length, **self.windows, **options)

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, show_progress: bool = False
    ) -> np.ndarray:
        """Returns logits, float32 `[n, labels]`, or `[n]` for a task without labels; longer texts are truncated.

        Args:
          texts: sentences, or first sentences in pairs.
          pairs: each pair's second sentence, or None.
          show_progress: print progress to stderr.
        Raises:
          UserError: the task has no such logits, or they are not finite.
        """
        if not isinstance(self.task, TextAnswers):
            raise UserError(f"logits need a task with one answer per text; received {self.task.kind}; call predict")
        inputs: Sequence[Any] = texts if pairs is None else list(zip(texts, pairs, strict=True))
        return self.task.logits(inputs, self.forward, self.tokenizer, self.max_length, show_progress=show_progress)


def _option_names(task: Answers) -> set[str]:
    """Names the options of `Predictor.predict` for a task: its own, and those of the task's methods."""
    names = {"windows", "max_length", "stride", "soft_labels", *task.window_options}
    methods = [
        vars(kind).get(name)
        for part in (task, *task.parts.values())
        for kind in type(part).__mro__
        for name in ("predict", "describe")
    ]
    for method in filter(None, methods):
        parameters = inspect.signature(method).parameters.values()
        names |= {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
    return names


def fitting_windows(
    task: TaskForm, windows: dict[str, int | None], default: int, longest: int, room: str
) -> tuple[int, dict[str, int | None]]:
    """Resolves the maximum sequence length and the other window options.

    Args:
      task: the task.
      windows: `max_length` and other options, if any; for a task without `window_options` only `max_length`.
      default: default for `max_length`; for a task without `window_options` it is `longest`.
      longest: the network's maximum length.
      room: that limit's name in the message.
    Raises:
      UserError: the rows are too long, or the window options contradict each other.
    """
    if not task.window_options:
        return min(windows.get("max_length") or longest, longest), {}
    options = WindowOptions(**{"max_length": default, **windows})  # type: ignore[arg-type]
    if options.max_length > longest:
        raise UserError(f"windows must fit into {room}; received {options.max_length}")
    return options.max_length, {name: value for name, value in windows.items() if name != "max_length"}
