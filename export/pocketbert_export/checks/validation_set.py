"""The gate's validation set: rows of tokens from real texts or questions, and the task's metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples, LabelledData
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.tasks.base import SupervisedTask, Task
from pocketbert.tasks.interfaces import Rows
from pocketbert.tasks.metrics import listed_metrics
from pocketbert.tasks.registry import get_task
from pocketbert.tasks.text_rows import TextRows
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_export.checks.outputs import Outputs, ScoredOutputs
from pocketbert_runtime.bundles.length_buckets import Inputs

# With int8, about 2 % of 3,000 predictions differ. By chance alone, the metric's standard deviation is
# 60 ** 0.5 / 3000 = 0.26 points, so a drop by half a point stands out.
MOST_EXAMPLES = 3000


class ValidationSet:
    """Tokenized rows with labels, if known.

    Args:
      task: the bundle's task, under the data's name; None for a bare encoder.
      data: source for about `MOST_EXAMPLES` evenly spaced rows.
      tokenizer: the bundle's tokenizer.
      length: the bundle's longest length.
      windows: the task's `window_options`.
    Attributes:
      encoded: int32 `[n, s]` by name.
      count: number of texts or questions.
      source: where the examples come from.
      labelled: whether a metric can be computed.
    """

    def __init__(
        self, task: Task | None, data: LabelledData, tokenizer: Tokenizer, length: int, windows: Mapping[str, Any] = {}
    ) -> None:
        self._rows: Rows
        if isinstance(task, SupervisedTask):
            self._rows = task.rows(data, tokenizer, length, MOST_EXAMPLES, **windows)
        else:
            assert isinstance(data, Examples)
            self._rows = TextRows(None, data, tokenizer, length, MOST_EXAMPLES)
        self._task = task
        inputs = self._rows.encoded.inputs(np.arange(len(self._rows.encoded)))
        self.encoded: Inputs = {name: inputs[name] for name in INPUT_NAMES}
        self.count, self.source, self.labelled = len(self._rows), data.source, data.labelled

    def score(self, name: str, outputs: Outputs, order: np.ndarray) -> ScoredOutputs:
        """Computes the metric and marks the correct predictions.

        Args:
          name: the metric's name.
          outputs: by name, row after row without padding.
          order: `[n]`, index of each row.
        """
        return ScoredOutputs(*self._rows.score(self._in_order(outputs, order), name))

    def resampled(self, name: str, outputs: Outputs, order: np.ndarray) -> Callable[[np.ndarray], float]:
        """Computes the metric for the texts at some indices."""
        return self._rows.resampled(self._in_order(outputs, order), name)

    def decided(self, outputs: Outputs, order: np.ndarray) -> Outputs:
        """Returns the outputs that decide, such as those at each word's first token; for the arguments see `score`."""
        ordered = self._in_order(outputs, order)
        decided = self._rows.decided
        places = decided if isinstance(decided, Mapping) else {} if decided is None else dict.fromkeys(ordered, decided)
        return {name: values[places[name]] if name in places else values for name, values in ordered.items()}

    def _in_order(self, outputs: Outputs, order: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs in the examples' order; see `score`."""
        offsets = self._rows.encoded.offsets
        lengths = np.diff(offsets)[order]
        # Token positions for the outputs in row order.
        behind = np.cumsum(lengths)
        of_tokens = np.arange(behind[-1]) + np.repeat(offsets[order] - (behind - lengths), lengths)
        ordered = {}
        for output, values in outputs.items():
            per_token = self._task is not None and self._task.of_output(output).per_token
            ordered[output] = np.empty_like(values)
            ordered[output][of_tokens if per_token else order] = values
        return ordered


def gate_metric(task: TaskConfig | None, metric: str | None, examples: LabelledData | None) -> str | None:
    """Returns the gate's metric: the given one, otherwise the task's; None if the task has none.

    Raises:
      UserError: the task has no such metric, or the examples have no labels.
    """
    gate_task = None if task is None else get_task(task)
    gate_metrics = gate_task.gate_metrics if isinstance(gate_task, SupervisedTask) else ()
    if metric is None:
        return gate_task.main_metric if isinstance(gate_task, SupervisedTask) else None
    if metric not in gate_metrics:
        kind = "a model without a task" if task is None else f"{task.kind} with {len(task.labels)} labels"
        raise UserError(
            f"the metric must be one of {listed_metrics(gate_metrics) or 'none'} for {kind}; received {metric!r}"
        )
    if examples is None or not examples.labelled:
        where = "no examples" if examples is None else f"{examples.source}, which has none"
        raise UserError(f"a metric needs labelled examples; received {metric} with {where}; give some, or leave it out")
    return metric
