"""How good a model is on development examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset, plan_batches
from pocketbert.errors import TrainingFailed
from pocketbert.model import Model
from pocketbert.tasks.metrics import compute, predictions_of
from pocketbert.training.scores import Scores, positive_class, score_answers


def check_finite(when: str, *outputs: np.ndarray | float) -> None:
    """Stops a run whose model gives numbers that are none.

    Args:
      when: for the error's message, for example `after step 7`.
      *outputs: the model's, or sums of what was made from them.

    Raises:
      TrainingFailed: one of them is not finite.
    """
    if not all(np.isfinite(each).all() for each in outputs):
        raise TrainingFailed(
            f"the outputs must stay finite; {when} some are not; try a lower learning rate, a longer warm-up, "
            "clipping, or float32"
        )


class Evaluator:
    """Scores a model with a head for classification, multi_label or regression, as often as it is asked to.

    Args:
      model: the model; its weights may change between calls.
      encoded: labelled examples.
      metrics: names for `pocketbert.tasks.metrics.compute`; F1 is about `pocketbert.training.scores.positive_class`.
      batch_size: examples a call of the model.
    """

    def __init__(self, model: Model, encoded: EncodedExamples, metrics: Sequence[str], batch_size: int) -> None:
        assert model.task is not None
        self._model, self._encoded, self._metrics = model, encoded, metrics
        self.task = model.task
        self._plan = plan_batches(encoded.lengths, batch_size=batch_size, seed=0, epoch=0, shuffle=False)
        self._batches = dataset(encoded, self._plan)
        self._forward = tf.function(
            lambda batch: self._model(batch[0], training=False)["logits"], input_signature=[self._batches.element_spec]
        )

    def metrics(self, when: str) -> dict[str, float]:
        """The metrics of the model as it is.

        Args:
          when: for the error's message, for example `after step 7`.

        Raises:
          TrainingFailed: an output is not finite.
        """
        assert self._encoded.labels is not None
        return compute(
            self._metrics,
            self._encoded.labels,
            self._predictions(when),
            self._encoded.groups,
            positive=positive_class(self.task),
        )

    def scores(self, main_metric: str, metrics: Mapping[str, float]) -> Scores:
        """The scores of the model as it is, with the baseline's and those of each class.

        Args:
          main_metric: the metric that counts most.
          metrics: what `metrics` gave for the same weights.
        """
        assert self._encoded.labels is not None
        predictions = self._predictions("at the end")
        found = score_answers(
            self.task, self._metrics, main_metric, self._encoded.labels, predictions, self._encoded.groups
        )
        return dataclasses.replace(found, metrics=metrics)

    def _predictions(self, when: str) -> np.ndarray:
        """As `pocketbert.tasks.metrics.predictions_of`, in the order of the examples."""
        logits = np.concatenate([self._forward(batch).numpy() for batch in self._batches])
        check_finite(when, logits)
        ordered = np.empty_like(logits)
        ordered[np.concatenate(self._plan)] = logits
        return predictions_of(self.task, ordered)
