"""Scores of a model with their uncertainty, beside baselines and a teacher: the first thing in every report."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pocketbert.progress import log_info
from pocketbert.report.outcome import VERDICT_WORDS, Verdict

# The normal distribution has 95 % of its mass within so many standard deviations.
_NORMAL_95 = 1.959964
_RESAMPLES = 200


@dataclasses.dataclass(frozen=True, kw_only=True)
class Baseline:
    """A simple method, trained on the same examples.

    Attributes:
      name: name of the method for messages.
      score: its main metric, as a fraction of one.
      remedy: what you can do if this method is better than the model.
    """

    name: str
    score: float
    remedy: str = "use more examples, or use this method"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of a model, of a constant baseline and of simple methods.

    Attributes:
      main_metric: name of the most important metric.
      metrics: name → value, as fractions of one.
      baseline: `answer`, the constant answer, and its `metrics`; None if no constant answer is right.
      positive_label: positive class of F1; None if F1 is not among the metrics.
      classes: result of `class_results` (classification) or `label_results` (multi-label); else None.
      examples: number of examples; 0 if unknown.
      interval: 95 % confidence interval of the main metric, or None.
      baselines: simple methods on the same examples.
      teacher: main metric of the teacher on the same examples, or None without one.
      float_model: for a bundle, main metric of its float model on the same examples; else None.
      notes: signs of weak training, which a verdict of `not learned` explains.
      cause: a warning about the teacher, or the distance to it, which explains a weak score; else None.
      data_notes: warnings about the data.
      foreign: whether the data are in a language that the network does not know, which explains a weak score.
      folds: main metric of each fold, if the metrics are means over folds; else empty.
      pairs: whether each example has two texts. An encoder of sentences knows each text, but not the pair, so after few
        pairs a simple method is the better choice unless the model is clearly above it.
      decisions: thresholds of the answers, as `decisions.described_decisions` gives them, or as `heads`, these by name
        of a head; None for the defaults.
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
        """Standard error of the main metric: half the interval's width, over 1.96; 0 without an interval."""
        return 0.0 if self.interval is None else (self.interval[1] - self.interval[0]) / (2 * _NORMAL_95)

    @property
    def verdict(self) -> Verdict:
        """Compares the model with its baselines.

        `not learned`: neither the model, its teacher nor a simple method is two standard errors above the constant
        answer, and the model is not two below it. A model that far below has learned something else, such as another
        order of labels.
        `below the baseline`: a simple method is more than one standard error above the model, or the model does not
        exceed the constant answer.
        `no better than the baseline`: for pairs, the model is not one standard error above each simple method.
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
        """The main metric of the model and the constant baseline as a sentence."""
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
        """Logs the outcome and its warnings after `whose`; those about the data have been logged before training."""
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
            # Outcomes without folds do not have it.
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
        """Names and scores: the constant answer first."""
        constant = [(self.baseline["answer"], self._constant)] if self.baseline else []
        return constant + [(method.name, method.score) for method in self.baselines]


def score_interval(
    examples: int, metric: Callable[[np.ndarray], float], *, right: int | None = None, correlation: bool = False
) -> tuple[float, float]:
    """95 % confidence interval of a metric over examples.

    Args:
      examples: number of examples, at least 1.
      metric: computes the metric of the examples at some indices, int64 [examples], with repetitions.
      correlation: whether the metric is a correlation. One of constant predictions is 0 in every resample; its
        standard error is then that of independent values, 1 / sqrt(examples).
      right: number of right answers if the metric is their share; None for other metrics.

    Returns:
      Lower and upper end. For a share: Wilson's score interval (Wilson 1927), which also holds for shares of 0 and 1.
      For other metrics: percentiles over 200 bootstrap resamples (Efron 1979), always the same ones.
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
