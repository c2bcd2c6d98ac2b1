"""What a model scores on labelled examples, beside what one constant answer scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pocketbert.progress import log_info


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a model.

    Attributes:
      main_metric: the metric that counts most.
      metrics: name → value, as fractions of one.
      baseline: `answer`, the constant answer, and its `metrics`; None where no constant answer is right.
      positive_label: the class that F1 is about; None where it is not among the metrics.
      classes: of a classification, as `pocketbert.tasks.metrics.class_results` gives it, of a multi-label task as
        `label_results` does; else None.
    """

    main_metric: str
    metrics: Mapping[str, float]
    baseline: Mapping[str, Any] | None
    positive_label: str | None = None
    classes: Mapping[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """The main metric of the model and of the baseline."""
        main = self.main_metric
        found = f"{main} {self.metrics[main]:.4f}"
        if main == "f1" and self.positive_label:
            found += f" for {self.positive_label!r}"
        if self.baseline is None:
            return found
        return f"{found}; the baseline, {self.baseline['answer']}, has {self.baseline['metrics'][main]:.4f}"

    @property
    def warnings(self) -> list[str]:
        """What makes the scores worthless: the model is no better than the baseline."""
        main = self.main_metric
        if self.metrics[main] > (self.baseline["metrics"][main] if self.baseline else 0.0):
            return []
        against = "the baseline" if self.baseline else "0"
        return [
            f"the model does not beat {against}: {self.sentence}; check the labels, or try more examples, more epochs "
            "or another learning rate"
        ]

    def log(self, whose: str) -> None:
        """Says the main metric and the warnings; `whose` begins the line."""
        log_info(f"{whose}: {self.sentence}")
        for warning in self.warnings:
            log_info(f"warning: {warning}")

    def to_json(self) -> dict[str, Any]:
        """The fields that a result shows, and the warnings."""
        shown = {name: getattr(self, name) for name in ("metrics", "baseline", "positive_label", "classes", "warnings")}
        return {name: value for name, value in shown.items() if value is not None or name == "baseline"}
