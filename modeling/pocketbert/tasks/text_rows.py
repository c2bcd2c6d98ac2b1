"""Texts or pairs as rows, for the gate and paired comparisons; see `Rows`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.batches import encode
from pocketbert.data.examples import Examples, evenly
from pocketbert_runtime.forward import Outputs

if TYPE_CHECKING:
    from pocketbert.tasks.texts import TextTask


class TextRows:
    """Texts or pairs, one row each; separate pairs have two.

    Args:
      task: the texts' task; None for texts to run only.
      data: labelled or not.
      tokenizer: the network's tokenizer.
      max_length: tokens; longer texts are truncated.
      most: takes so many, evenly: a file may have one language or class after the other. None for all.
    """

    def __init__(
        self, task: TextTask | None, data: Examples, tokenizer: Any, max_length: int, most: int | None = None
    ) -> None:
        taken = data if most is None else data.select(evenly(len(data), most))
        encode_rows = encode if task is None else task.encode
        self.encoded = encode_rows(taken, tokenizer, max_length, show_progress=False)
        self._task, self._data, self._labels = task, taken, taken.labels
        self.decided = None

    def decided_by(self, task: TextTask) -> TextRows:
        """The same rows and task, with other thresholds."""
        rows = copy.copy(self)
        rows._task = task
        return rows

    def __len__(self) -> int:
        return len(self.encoded)

    def score(self, outputs: Outputs, metric: str) -> tuple[float, np.ndarray | None]:
        """See `Rows.score`."""
        assert self._task is not None and self._labels is not None
        right = self._task.right(self._labels, self._task.decide(outputs["logits"]))
        return self.resampled(outputs, metric)(np.arange(len(self))), right

    def resampled(self, outputs: Outputs, metric: str) -> Callable[[np.ndarray], float]:
        """See `Rows.resampled`."""
        assert self._task is not None and self._labels is not None
        task, labels, logits = self._task, self._labels, outputs["logits"]
        decided = task.decide(logits)
        return lambda rows: task.compute([metric], labels[rows], decided[rows], logits=logits[rows])[metric]

    def certainty(self, outputs: Outputs) -> np.ndarray:
        """Each text's least certain decision: its probability, float64 [N]; for tasks with labels."""
        assert self._task is not None
        decided = self._task.certainty(outputs["logits"])
        assert decided is not None
        return decided.reshape(len(self), -1).min(axis=1)

    def answers(self, outputs: Outputs) -> list[dict[str, Any]]:
        """Predictions as `predict` writes them, with the text, and with the example's label as `true_…`."""
        assert self._task is not None and self._labels is not None
        data, names = self._data, self._task.config.labels
        described = self._task.describe(outputs["logits"])
        rows = []
        for index, (answer, label) in enumerate(zip(described, self._labels, strict=True)):
            pair = {} if data.pairs is None else {"pair": data.pairs[index]}
            rows.append(
                {"text": data.texts[index], **pair, **answer, f"true_{next(iter(answer))}": _named(names, label)}
            )
        return rows


def _named(names: Sequence[str], label: Any) -> Any:
    """Converts a row in `Examples.labels` to a JSON value: a name, names or a score."""
    if label.ndim:
        return [name for name, is_given in zip(names, label, strict=True) if is_given]
    # Six digits, like a probability: float32 has no more.
    return names[int(label)] if names else round(float(label), 6)
