"""Score two networks on the same examples, and on each class and slice among them."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pocketbert.data.examples import Examples, LabelledData
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.tasks.predictor import Predictor
from pocketbert_export.quantization.scored_texts import Loss
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.rows import TokenRows

# A class or slice with so many examples has a row.
LEAST_EXAMPLES = 30
CLASS_COLUMN = "label"
_CONFIDENCE, _RESAMPLES = 0.95, 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartLoss:
    """The second network's loss on a part of the examples.

    Attributes:
      column: `label`, or the slice's column.
      value: the class, or the value in the column.
      examples: number of examples.
      points: points lost: in right answers for a class, in the metric for a slice.
      interval: its interval; all intervals in a comparison hold together in 95 % of cases (Bonferroni).
    """

    column: str
    value: str
    examples: int
    points: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.column} {self.value!r} {in_words(self.points, self.interval)} on {self.examples:,} examples"


class PairedScores:
    """Two networks' answers to the same examples.

    Args:
      networks: the reference, and the network to compare with it.
      data: the examples, with labels in the order of their logits.
      metric: the compared metric.
    Attributes:
      right: for each network float64 `[N]`, how right each answer is; None if answers are not right or wrong.
    """

    def __init__(self, networks: Sequence[Predictor], data: LabelledData, metric: str) -> None:
        self._labels, self._classes = networks[0].task.config.labels, data.classes
        self.right: list[np.ndarray | None] = []
        self._metrics, self._is_mean = [], True
        # Each network has its own tokenizer: a trimmed vocabulary has other ids.
        for network in networks:
            rows = network.task.rows(data, network.tokenizer, network.max_length, **network.windows)
            outputs = network.forward(rows.encoded)
            value, right = rows.score(outputs, metric)
            self.right.append(right)
            self._metrics.append(rows.resampled(outputs, metric))
            self._is_mean &= right is not None and bool(np.isclose(right.mean(), value, rtol=0, atol=1e-6))
        self._count = len(data)

    def loss(self) -> Loss:
        """Returns the second network's loss in points, with the paired 95 % interval."""
        return self._loss(np.arange(self._count), _CONFIDENCE, of_right=self._is_mean)

    def parts(self, slices: Mapping[str, Sequence[str]] = {}) -> tuple[list[PartLoss], int]:
        """Returns classes and slices with at least 30 examples, the largest loss first; and the number of smaller ones.

        Args:
          slices: column → each example's value.
        """
        parts = self._places(slices)
        large = {name: places for name, places in parts.items() if len(places) >= LEAST_EXAMPLES}
        level = 1 - (1 - _CONFIDENCE) / max(len(large), 1)
        losses = []
        for (column, value, is_class), places in large.items():
            loss = self._loss(places, level, of_right=is_class or self._is_mean)
            part = PartLoss(
                column=column, value=value, examples=len(places), points=loss.points, interval=loss.interval
            )
            losses.append(part)
        return sorted(losses, key=lambda part: -part.points), len(parts) - len(large)

    def _places(self, slices: Mapping[str, Sequence[str]]) -> dict[tuple[str, str, bool], np.ndarray]:
        """Column, value, and whether it is a class → its examples' indices; a class that is a slice, too, once."""
        parts: dict[tuple[str, str, bool], np.ndarray] = {}
        if self._classes is not None and self.right[0] is not None:
            parts = {
                (CLASS_COLUMN, label, True): np.flatnonzero(self._classes == index)
                for index, label in enumerate(self._labels)
            }
        # A slice by the label column has the classes again, perhaps in another case.
        classes = {label.casefold(): places for (_, label, _), places in parts.items()}
        for column, values in slices.items():
            array = np.asarray(values)
            for value in np.unique(array):
                places = np.flatnonzero(array == value)
                if not np.array_equal(places, classes.get(str(value).casefold(), ())):
                    parts[column, str(value), False] = places
        return {name: places for name, places in parts.items() if len(places)}

    def _loss(self, places: np.ndarray, level: float, *, of_right: bool) -> Loss:
        """Points lost on some examples, in the metric or in right answers, with the paired interval at a level."""
        first, second = self.right
        if of_right and first is not None and second is not None:
            return mean_loss(100 * (first[places] - second[places]), level)
        reference, metric = self._metrics

        def points(chosen: np.ndarray) -> float:
            return 100 * (reference(chosen) - metric(chosen))

        return resampled_loss(points, places, level)


def check_classes(data: LabelledData) -> None:
    """Raises a `UserError` if examples have no single class, or no class is large enough to limit its loss."""
    if data.classes is None:
        raise UserError(
            f"{argument('max_class_points_lost')} is for {data.unit} with one class each; received {data.source}; "
            "leave it out"
        )
    largest = int(max(np.bincount(data.classes), default=0))
    if largest < LEAST_EXAMPLES:
        raise UserError(
            f"{argument('max_class_points_lost')} needs at least {LEAST_EXAMPLES} dev examples of a class; received at "
            f"most {largest}; pass more examples, or leave it out"
        )


def small_classes(data: LabelledData, labels: Sequence[str]) -> list[str]:
    """Lists the classes with too few examples to limit their loss; see `check_classes`."""
    assert data.classes is not None
    counts = np.bincount(data.classes, minlength=len(labels))
    return [label for label, count in zip(labels, counts, strict=True) if count < LEAST_EXAMPLES]


def slice_values(slices: Mapping[str, Mapping[str, str]], data: LabelledData) -> dict[str, list[str]]:
    """Looks up each example's value in the slice columns.

    Args:
      slices: column → example id, its line or row number as a text → value.
      data: the examples.
    Raises:
      UserError: the examples are no table, or one has no value.
    """
    if not slices:
        return {}
    if not isinstance(data, Examples):
        raise UserError(f"slices need a table of texts; received {data.source}; leave them out")
    for column, values in slices.items():
        if missing := [name for name in data.ids if name not in values]:
            raise UserError(
                f"slices must have a value for the line or row number of each example, as a text; {column} has none "
                f"for {missing[0]!r}" + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
            )
    return {column: [values[name] for name in data.ids] for column, values in slices.items()}


def paired_loss(first: Predictor, second: Predictor, data: LabelledData, metric: str) -> Loss:
    """Returns the second network's loss in metric points on the same examples; see `PairedScores`."""
    return PairedScores((first, second), data, metric).loss()


def mean_loss(points: np.ndarray, level: float) -> Loss:
    """Averages the points that each example loses, with an interval.

    As if one more example lost and one more gained 100 points, each at half weight: otherwise the interval is too short
    where few answers differ (Agresti and Min 2005, "Simple improved confidence intervals for comparing matched
    proportions").
    """
    count, total = len(points) + 2, points.sum()
    variance = (np.square(points).sum() + 100**2 - total**2 / count) / count**2
    half = _normal(level) * variance**0.5
    return Loss(float(points.mean()), (float(total / count - half), float(total / count + half)))


def resampled_loss(points: Callable[[np.ndarray], float], places: np.ndarray, level: float) -> Loss:
    """Returns points lost on the examples at `places`; the interval has the bootstrap's standard error (Efron 1979)."""
    random = np.random.default_rng(0)
    lost = points(places)
    half = _normal(level) * np.std([points(random.choice(places, len(places))) for _ in range(_RESAMPLES)])
    return Loss(lost, (float(lost - half), float(lost + half)))


def in_words(points_lost: float, interval: tuple[float, float]) -> str:
    """Describes a loss or a gain in words."""
    low, high = interval
    if points_lost < 0:
        return f"gains {-points_lost:.1f} points ({-high:.1f} to {-low:.1f})"
    return f"loses {points_lost:.1f} points ({low:.1f} to {high:.1f})"


def remembering(predictor: Predictor) -> Predictor:
    """Wraps a predictor so that it computes repeated rows only once, also those of several calls together."""
    calls: list[tuple[TokenRows, Outputs]] = []

    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        ends = list(itertools.accumulate((len(rows) for rows, _ in calls), initial=0))
        for first, start in enumerate(ends):
            last = bisect.bisect_left(ends, start + len(encoded))
            if last < len(ends) and _are_rows([rows for rows, _ in calls[first:last]], encoded):
                parts = [outputs for _, outputs in calls[first:last]]
                return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        calls.append((encoded, predictor.forward(encoded, show_progress=show_progress)))
        return calls[-1][1]

    return Predictor(predictor.task, forward, predictor.tokenizer, predictor.max_length, **predictor.windows)


def _are_rows(parts: Sequence[TokenRows], encoded: TokenRows) -> bool:
    """Whether these parts, one after another, have the same rows."""
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return np.array_equal(lengths, np.diff(encoded.offsets)) and all(
        np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(encoded, name))
        for name in ("word_ids", "type_ids")
    )


def _normal(level: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf((1 + level) / 2))
