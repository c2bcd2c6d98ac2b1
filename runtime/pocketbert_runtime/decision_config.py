"""Configuration for decisions by probability: label thresholds, and rejected answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pocketbert_runtime.errors import raise_if_any

_SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class DecisionConfig:
    """How probabilities become answers; a run chooses one of the two on its dev split.

    Attributes:
      thresholds: for several labels: one for each label, which is given if its probability reaches it; without them
        0.5. For two classes: one for each class, which sum to 1; the class above its threshold is the answer.
      reject_below: for one of several classes: the answer is None if the highest probability is below this.
    """

    thresholds: tuple[float, ...] | None = None
    reject_below: float | None = None

    def __post_init__(self) -> None:
        problems = []
        if (self.thresholds is None) == (self.reject_below is None):
            received = "none" if self.thresholds is None else "both"
            problems.append(f"there must be thresholds or reject_below; received {received}")
        if self.thresholds is not None:
            thresholds = self.thresholds if isinstance(self.thresholds, list | tuple) else (self.thresholds,)
            if all(_is_number(value) and 0 < value < 1 for value in thresholds):
                object.__setattr__(self, "thresholds", tuple(map(float, thresholds)))
            else:
                problems.append(f"thresholds must lie between 0 and 1; received {self.thresholds!r:.80}")
        if self.reject_below is not None and not (_is_number(self.reject_below) and 0 <= self.reject_below <= 1):
            problems.append(f"reject_below must lie in [0, 1]; received {self.reject_below!r:.80}")
        raise_if_any(problems, "DecisionConfig")

    def problems(self, kind: str, form: str, labels: tuple[str, ...], of_texts: bool) -> list[str]:
        """Returns why a task cannot decide so.

        Args:
          kind: the task's kind, for messages.
          form: `TaskRules.label_form`.
          labels: the task's labels.
          of_texts: whether there is one answer for a text.
        """
        if not of_texts or form == "regression":
            return [f"decisions are for one of several classes or several labels; received them for {kind!r}"]
        if self.thresholds is None:
            several = form == "multi_label"
            return [f"reject_below is for one of several classes; received it for {kind!r}"] if several else []
        problems = []
        if len(self.thresholds) != len(labels):
            problems.append(f"each label must have a threshold; received {len(self.thresholds)} for {len(labels)}")
        elif form == "classification" and len(labels) != 2:
            problems.append(f"thresholds are for two classes or several labels; received {len(labels)} classes")
        elif form == "classification" and not math.isclose(sum(self.thresholds), 1, abs_tol=_SAME):
            problems.append(f"the thresholds of two classes must sum to 1; received {self.thresholds}")
        return problems

    def in_order(self, positions: list[int]) -> DecisionConfig:
        """Reorders the labels: `positions` has each label's old place."""
        if self.thresholds is None:
            return self
        return DecisionConfig(thresholds=tuple(self.thresholds[position] for position in positions))


def decision_config(fields: DecisionConfig | Mapping[str, Any] | None) -> DecisionConfig | None:
    """Makes a configuration from its fields, as in JSON; raises a `UserError` for unknown fields or bad values."""
    if fields is None or isinstance(fields, DecisionConfig):
        return fields
    if not isinstance(fields, Mapping):
        raise_if_any([f"decisions must be an object; received {fields!r:.80}"], "DecisionConfig")
    names = DecisionConfig.__dataclass_fields__
    raise_if_any([f"the field {name!r} is unknown" for name in fields if name not in names], "DecisionConfig")
    return DecisionConfig(**fields)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
