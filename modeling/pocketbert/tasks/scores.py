"""A model's scores and their uncertainty, with baselines and a teacher: every report starts with them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pocketbert.progress import log_info
from pocketbert.report.outcome import VERDICT_WORDS, Verdict

# 95 % of a normal distribution lie within so many standard deviations.
_NORMAL_95 = 1.959964
_RESAMPLES = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A simple method, trained on the same examples.

    Attributes:
      name: the method's name in messages.
      score: its main metric, as a fraction.
      remedy: what you can do if this method beats the model.
    """

    name: str
    score: float
    remedy: str = "use more examples, or use this method"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """A model's scores, with a constant baseline and simple methods.

    Attributes:
      main_metric: the most important metric's name.
      metrics: name → value, as fractions.
      baseline: `answer`, the constant answer, and its `metrics`; None if no constant answer is right.
      positive_label: positive class for F1; None if F1 is not among the metrics.
      classes: from `class_results` (classification) or `label_results` (multi-label); else None.
      examples: number of examples; 0 if unknown.
      interval: 95 % confidence interval for the main metric, or None.
      baselines: simple methods on the same examples.
      teacher: the teacher's main metric on the same examples, or None without one.
      float_model: for a bundle, its float model's main metric on the same examples; else None.
      notes: signs of weak training, to explain a verdict `not learned`.
      cause: a warning about the teacher, or the distance to it, to explain a weak score; else None.
      data_notes: warnings about the data.
      foreign: whether the network does not know the data's language, to explain a weak score.
      folds: each fold's main metric, if the metrics are means over folds; else empty.
      pairs: whether each example has two texts. A sentence encoder knows each text, but not the pair. After training on
        few pairs, prefer a simple method unless the model is clearly above it.
      decisions: thresholds from `decisions.described_decisions`, or `heads` with these by head; None for defaults.
    """

    main_metric: str
    metrics: Mapping[str, float]
    baseline: Mapping[str, Any] | None
    positive_label: str | None = None
    classes: Mapping[str, Any] | None = None
    examples: int = 0
    interval: tuple[float, float] | None = None
    baselines: tuple[Baseline, ...] = ()
    teacher: float | None = None
    float_model: float | None = None
    notes: tuple[str, ...] = ()
    cause: str | None = None
    data_notes: tuple[str, ...] = ()
    foreign: bool = False
    folds: tuple[float, ...] = ()
    pairs: bool = False
    decisions: Mapping[str, Any] | None = None

    @property
    def score(self) -> float:
        """The main metric."""
        return self.metrics[self.main_metric]

    @property
    def standard_error(self) -> float:
        """The main metric's standard error: half the interval's width, over 1.96; 0 without an interval."""
        return 0.0 if self.interval is None else (self.interval[1] - self.interval[0]) / (2 * _NORMAL_95)

    @property
    def verdict(self) -> Verdict:
        """Compares the model with its baselines.

        - `not learned`: neither the model, its teacher nor a simple method is two standard errors above the constant
          answer, and the model is not two below it. Further below, it has learned something else, such as another label
          order.
        - `below the baseline`: a simple method is more than one standard error above the model, or the model does not
          exceed the constant answer.
        - `no better than the baseline`: for pairs, the model is not one standard error above each simple method.
        """
        constant = self._constant
        methods = [method.score for method in self.baselines]
        doubt = 2 * self.standard_error
        teacher = constant if self.teacher is None else self.teacher
        learned = max(self.score, teacher, *methods) - constant > doubt
        if self.interval is not None and not learned and self.score >= constant - doubt:
            return "not learned"
        if self.score <= constant or any(score - self.score > self.standard_error for score in methods):
            return "below the baseline"
        if self.pairs and any(self.score - score < self.standard_error for score in methods):
            return "no better than the baseline"
        return "good"

    @property
    def sentence(self) -> str:
        """The main metric for the model and the constant baseline, as a sentence."""
        main = self.main_metric
        sentence = f"{main} {self.score:.4f}"
        if main == "f1" and self.positive_label:
            sentence += f" for {self.positive_label!r}"
        if self.baseline is None:
            return sentence
        return f"{sentence}; the baseline, {self.baseline['answer']}, has {self.baseline['metrics'][main]:.4f}"

    @property
    def headline(self) -> str:
        """The outcome in one line: verdict, score, interval, baselines and teacher."""
        parts = [f"{self.main_metric} {self.score:.3f}"]
        if self.folds:
            parts[0] += f" ± {statistics.stdev(self.folds):.3f} over {len(self.folds)} folds"
        if self.examples:
            parts[0] += f" on {self.examples} examples"
        if self.interval is not None:
            parts[0] += f" (95 % interval {self.interval[0]:.3f} to {self.interval[1]:.3f})"
        if self.float_model is not None:
            parts.append(f"the float model has {self.float_model:.3f}")
        if self.teacher is not None:
            parts.append(f"the teacher has {self.teacher:.3f}")
        parts += [f"{name} has {score:.3f}" for name, score in self._every_baseline()]
        if self.verdict != "good":
            parts[0] = f"{VERDICT_WORDS[self.verdict]}: {parts[0]}"
        return "; ".join(parts)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the outcome, the most important first."""
        main = self.main_metric
        if self.foreign:
            return list(self.data_notes)
        if self.cause:
            return [self.cause, *self.data_notes]
        if self.verdict == "not learned":
            return [
                f"not learned from this many examples: {self.sentence}, and the score is uncertain by "
                f"{2 * self.standard_error:.4f}; check the labels, or use more examples",
                *self.data_notes,
            ]
        warnings = []
        best = max(self.baselines, key=lambda method: method.score, default=None)
        if best is not None and self.verdict == "no better than the baseline":
            warnings.append(
                f"no better than the baseline: {main} {self.score:.4f}, {best.name} has {best.score:.4f}, and the "
                f"score is uncertain by {2 * self.standard_error:.4f}; {best.remedy}"
            )
        if self.verdict == "below the baseline":
            if best is not None and best.score > self.score:
                warnings.append(
                    f"below the baseline: {main} {self.score:.4f}, but {best.name} has {best.score:.4f}; {best.remedy}"
                )
            else:
                against = "the baseline" if self.baseline else "0"
                warnings.append(
                    f"the model does not beat {against}: {self.sentence}; check the labels, or try more examples, more "
                    "epochs or another learning rate"
                )
        return [*warnings, *self.notes, *self.data_notes]

    def log(self, whose: str) -> None:
        """Logs the outcome and its warnings after `whose`, except data warnings: they are logged before training."""
        log_info(f"{whose}: {self.headline}")
        for warning in self.warnings:
            if warning not in self.data_notes:
                log_info(f"warning: {warning}")

    def outcome(self) -> dict[str, Any]:
        """The outcome as JSON values, for records and reports."""
        return {
            "metric": self.main_metric,
            "score": self.score,
            "examples": self.examples,
            "interval": None if self.interval is None else list(self.interval),
            "baselines": [{"name": name, "score": score} for name, score in self._every_baseline()],
            "teacher": self.teacher,
            "float_model": self.float_model,
            "verdict": self.verdict,
            "headline": self.headline,
            "warnings": self.warnings,
            **({"folds": list(self.folds)} if self.folds else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """The fields for result.json, with the outcome and the warnings."""
        names = ("metrics", "baseline", "positive_label", "classes", "warnings", "decisions")
        fields = {name: getattr(self, name) for name in names}
        return {
            "outcome": self.outcome(),
            **{name: value for name, value in fields.items() if value is not None or name == "baseline"},
        }

    @property
    def _constant(self) -> float:
        return self.baseline["metrics"][self.main_metric] if self.baseline else 0.0

    def _every_baseline(self) -> list[tuple[str, float]]:
        """Names and scores, the constant answer first."""
        constant = [(self.baseline["answer"], self._constant)] if self.baseline else []
        return constant + [(method.name, method.score) for method in self.baselines]


def score_interval(
    examples: int, metric: Callable[[np.ndarray], float], *, right: int | None = None, correlation: bool = False
) -> tuple[float, float]:
    """95 % confidence interval for a metric over examples.

    Args:
      examples: number of examples, at least 1.
      metric: computes the metric on the examples at some indices, int64 [examples], with repetitions.
      correlation: whether the metric is a correlation. It is 0 for constant predictions in every resample; its standard
        error is then 1 / sqrt(examples), as for independent values.
      right: number of right answers if the metric is their share; None for other metrics.
    Returns:
      Lower and upper end. For a share: Wilson's score interval (Wilson 1927), also for shares 0 and 1. For other
      metrics: percentiles over 200 bootstrap resamples (Efron 1979), always the same ones.
    """
    if right is not None:
        share, scaled = right / examples, _NORMAL_95**2 / examples
        centre = (share + scaled / 2) / (1 + scaled)
        half = _NORMAL_95 / (1 + scaled) * np.sqrt(share * (1 - share) / examples + scaled / (4 * examples))
        return max(0.0, float(centre - half)), min(1.0, float(centre + half))
    random = np.random.default_rng(0)
    values = [metric(random.integers(0, examples, examples)) for _ in range(_RESAMPLES)]
    low, high = np.percentile(values, [2.5, 97.5])
    if correlation and low == high:
        half = _NORMAL_95 / np.sqrt(examples)
        return float(low - half), float(high + half)
    return float(low), float(high)
