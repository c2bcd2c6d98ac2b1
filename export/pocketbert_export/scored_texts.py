"""The task's metric of a file on calibration texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert.tasks.registry import get_task
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_export import checks
from pocketbert_export.calibration import outputs_of
from pocketbert_export.length_buckets import bucket_by_length
from pocketbert_export.validation_set import ValidationSet, gate_metric


class ScoredTexts:
    """Scores files against a float file.

    Args:
      content: content of the float file.
      task: task of the model; None for a bare encoder.
      data: calibration texts, with or without labels.
      tokenizer: tokenizer of the model.
      lengths: sequence lengths of the files.

    Attributes:
      labelled: whether there is a metric.
    """

    def __init__(
        self,
        content: bytes,
        task: TaskConfig | None,
        data: LabelledData,
        tokenizer: Tokenizer,
        lengths: Sequence[int],
    ) -> None:
        self._asked = ValidationSet(None if task is None else get_task(task), data, tokenizer, max(lengths))
        self._metric = gate_metric(task, None, data)
        self.labelled = self._asked.labelled and self._metric is not None
        self._buckets = bucket_by_length(self._asked.encoded, lengths, tokenizer.pad_token_id)
        self._reference = self._score(content) if self.labelled else 0.0

    def points_lost(self, content: bytes) -> float | None:
        """Loss of the metric in points; None without labels."""
        return 100 * (self._reference - self._score(content)) if self.labelled else None

    def _score(self, content: bytes) -> float:
        assert self._metric is not None
        order = np.concatenate([bucket.indices for bucket in self._buckets])
        return self._asked.score(self._metric, checks.join(outputs_of(content, self._buckets)), order).metric
