"""Score a file on calibration texts by the task's metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import LabelledData
from pocketbert.tasks.registry import get_task
from pocketbert.tasks.scores import score_interval
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_export.checks import outputs as checks
from pocketbert_export.checks.validation_set import ValidationSet, gate_metric
from pocketbert_export.quantization.calibration import outputs_of
from pocketbert_runtime.bundles.length_buckets import bucket_by_length

Metric: TypeAlias = Callable[[np.ndarray], float]


class Loss(NamedTuple):
    """Loss in a metric against the float file.

    Attributes:
      points: the measured loss.
      interval: its 95 % interval over the texts, the same for both files; see `score_interval`.
    """

    points: float
    interval: tuple[float, float]


def paired(reference: Metric, metric: Metric, count: int) -> Loss:
    """Computes a metric's loss against a reference.

    Args:
      reference: computes the reference's metric on the texts at some indices, int64 [N], with repetitions.
      metric: the same for the compared network.
      count: number of texts.
    """

    def points_lost(indices: np.ndarray) -> float:
        return 100 * (reference(indices) - metric(indices))

    return Loss(points_lost(np.arange(count)), score_interval(count, points_lost))


class ScoredTexts:
    """Scores files against a float file on calibration texts, with or without labels.

    Attributes:
      labelled: whether there is a metric.
      count: number of scored texts or pairs.
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
        self.count = self._asked.count
        self._buckets = bucket_by_length(self._asked.encoded, lengths, tokenizer.pad_token_id)
        self._reference = self._metric_of(content) if self.labelled else None

    def loss(self, content: bytes) -> Loss | None:
        """Returns the metric's loss in points; None without labels."""
        return None if self._reference is None else paired(self._reference, self._metric_of(content), self.count)

    def _metric_of(self, content: bytes) -> Metric:
        """Computes a file's metric on the texts at some indices."""
        assert self._metric is not None
        order = np.concatenate([bucket.indices for bucket in self._buckets])
        return self._asked.resampled(self._metric, checks.join(outputs_of(content, self._buckets)), order)
