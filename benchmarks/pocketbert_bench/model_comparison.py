"""Compare two networks on the same labelled examples: the paired difference, by class and slice, and what changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pocketbert.data.assets import fetch_asset, model_names
from pocketbert.data.examples import Examples, LabelledData
from pocketbert.data.model_paths import find_model
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.notation import argument
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.mistakes import Mistake
from pocketbert.tasks.predictor import Predictor, model_predictor
from pocketbert.tasks.scores import Scores
from pocketbert_bench import host
from pocketbert_bench.paired_scores import remembering
from pocketbert_export.bundles.bundle import BUNDLE_FILE, Bundle
from pocketbert_export.checks.label_order import examples_for, in_order_of
from pocketbert_export.glue.scoring import labelled_evaluator

# Examples of a class or a slice that has a row; texts of each list of changed answers.
LEAST_EXAMPLES, MOST_CHANGED = 30, 20
_CONFIDENCE, _RESAMPLES = 0.95, 400


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartLoss:
    """Points that the second network loses on a part of the examples.

    Attributes:
      column: `label`, or the column of the slice.
      value: the class, or the value in the column.
      examples: number of examples.
      points: points lost: of the share of right answers for a class, of the metric for a slice.
      interval: its interval; all intervals of a comparison hold together in 95 % of cases (Bonferroni).
    """

    column: str
    value: str
    examples: int
    points: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.column} {self.value!r} {_change(self.points, self.interval)} on {self.examples:,} examples"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Two networks on the same examples; the second one is compared with the first.

    Attributes:
      metric: the compared metric.
      examples: number of examples.
      scores: the metric of both.
      points_lost: points that the second network loses.
      interval: its paired 95 % interval.
      newly_wrong: number of answers that only the first network has right; None for scores and embeddings.
      newly_right: number of answers that only the second network has right.
      wrong_texts: at most 20 of the former, the most certain first, with the answers of the second network.
      right_texts: at most 20 of the latter, with the answers of the first network.
      parts: classes and slices with at least 30 examples, the largest loss first.
      small_parts: number of classes and slices with fewer examples.
      size_mb: size of both files of weights, in MB of 10⁶ bytes.
      latency_ms: median latency of both; None unless both are bundles with a common length.
      length: tokens of the latency.
    """

    metric: str
    examples: int
    scores: tuple[float, float]
    points_lost: float
    interval: tuple[float, float]
    newly_wrong: int | None
    newly_right: int | None
    wrong_texts: tuple[Mistake, ...]
    right_texts: tuple[Mistake, ...]
    parts: tuple[PartLoss, ...]
    small_parts: int
    size_mb: tuple[float, float]
    latency_ms: tuple[float, float] | None
    length: int | None

    def __str__(self) -> str:
        """A few lines; the first one has the outcome and the worst part."""
        first, second = self.scores
        lines = [
            f"{self.metric} {100 * first:.1f} and {100 * second:.1f} on {self.examples:,} examples: the second network "
            f"{_change(self.points_lost, self.interval)}"
        ]
        if self.parts:
            lines[0] += f"; worst: {self.parts[0]}"
        if self.newly_wrong is not None:
            lines.append(f"{self.newly_wrong:,} answers become wrong, and {self.newly_right:,} right")
        if self.latency_ms is not None:
            before, after = self.latency_ms
            lines.append(f"{before:.2f} and {after:.2f} ms at {self.length} tokens: {before / after:.2f} times faster")
        lines.append(f"{self.size_mb[0]:.1f} and {self.size_mb[1]:.1f} MB")
        lines += map(str, self.parts[1:])
        if self.small_parts:
            lines.append(f"{self.small_parts} classes and slices have fewer than {LEAST_EXAMPLES} examples")
        return "\n".join(lines)


def _change(points_lost: float, interval: tuple[float, float]) -> str:
    low, high = interval
    if points_lost > 0:
        return f"loses {points_lost:.1f} points ({low:.1f} to {high:.1f})"
    return f"gains {-points_lost:.1f} points ({-high:.1f} to {-low:.1f})"


def compare(
    first: Model | Bundle | str | os.PathLike[str],
    second: Model | Bundle | str | os.PathLike[str],
    data: LabelledData | TaskData,
    *,
    metric: str | None = None,
    slices: Mapping[str, Sequence[str]] = {},
    latency: bool = True,
    **windows: int | None,
) -> ModelComparison:
    """Compares two models or bundles of the same task on labelled examples.

    Example:
      ```python
      print(pb.compare("runs/reviews/model", "runs/small/bundle", data))
      ```

    Args:
      first: a model, a bundle, or the folder of one.
      second: the one that may lose.
      data: labelled examples, in the order of the first network's labels, or a run's data, whose dev split is compared.
      metric: the compared metric; None for that of `data` or of the task.
      slices: name → value of each example. Each value with at least 30 examples has a row.
      latency: whether to measure two bundles, in turns with one thread.
      **windows: `max_length`, and options of windows for long paragraphs.

    Raises:
      UserError: the networks have different tasks or labels, or the examples have no labels.
    """
    opened = open_network(first), open_network(second)
    networks = [
        network.predictor(**windows) if isinstance(network, Bundle) else model_predictor(network, "a model", **windows)
        for network in opened
    ]
    tasks = [network.task.config for network in networks]
    _check_tasks(networks[0].task, networks[1].task)
    main = (data.main_metric or None) if isinstance(data, TaskData) else None
    examples = examples_for(tasks[0], data)
    assert examples is not None
    for column, values in slices.items():
        if len(values) != len(examples):
            raise UserError(
                f"{argument('slices')}: {column} must have a value for each of the {len(examples)} examples; received "
                f"{len(values)}"
            )
    in_order = [examples, examples]
    if isinstance(examples, Examples) and tasks[0].labels:
        in_order[1] = in_order_of(tasks[1], tasks[0], examples)
    accepted = networks[0].task.selection_metrics(examples)
    if metric is not None and metric not in accepted:
        raise UserError(
            f"{argument('metric')} must be one of {', '.join(accepted)} for {tasks[0].kind}; received {metric!r}"
        )
    name = metric or main
    scored = _Scored(networks[0], in_order[0], name), _Scored(networks[1], in_order[1], name)
    points, interval = _loss(scored, np.arange(len(examples)), _CONFIDENCE)
    parts = _parts(networks[0].task, examples, slices)
    large = {name: indices for name, indices in parts.items() if len(indices) >= LEAST_EXAMPLES}
    level = 1 - (1 - _CONFIDENCE) / max(len(large), 1)
    losses = []
    for (column, value, is_class), indices in large.items():
        lost, ends = _loss(scored, indices, level, by_class=is_class)
        losses.append(PartLoss(column=column, value=value, examples=len(indices), points=lost, interval=ends))
    wrong, right = _only(scored[1].wrong, scored[0].wrong), _only(scored[0].wrong, scored[1].wrong)
    answered = scored[0].wrong is not None
    length, medians = _latencies(*opened) if latency else (None, None)
    return ModelComparison(
        metric=scored[0].scores.main_metric,
        examples=len(examples),
        scores=(scored[0].scores.score, scored[1].scores.score),
        points_lost=points,
        interval=interval,
        newly_wrong=len(wrong) if answered else None,
        newly_right=len(right) if answered else None,
        wrong_texts=tuple(wrong[:MOST_CHANGED]),
        right_texts=tuple(right[:MOST_CHANGED]),
        parts=tuple(sorted(losses, key=lambda part: -part.points)),
        small_parts=len(parts) - len(large),
        size_mb=(_size_mb(opened[0]), _size_mb(opened[1])),
        latency_ms=medians,
        length=length,
    )


class _Scored:
    """Answers of a network.

    Attributes:
      scores: its scores.
      wrong: index → wrong answer, the most certain first; None if answers are not right or wrong.
      metric: computes the metric of the examples at some indices.
      right: float64 `[N]`, how right each answer is, 0 to 1; None if answers are not right or wrong.
      is_mean: whether the metric is the mean of `right`.
    """

    def __init__(self, predictor: Predictor, data: LabelledData, metric: str | None) -> None:
        network = remembering(predictor)
        evaluator = labelled_evaluator(network, data, metrics=(metric,) if metric else None)
        self.scores: Scores = evaluator.scores(metric)
        rows = network.task.rows(data, network.tokenizer, network.max_length, **network.windows)
        outputs = network.forward(rows.encoded)
        name = self.scores.main_metric
        value, self.right = rows.score(outputs, name)
        self.metric: Callable[[np.ndarray], float] = rows.resampled(outputs, name)
        self.is_mean = self.right is not None and bool(np.isclose(self.right.mean(), value, rtol=0, atol=1e-6))
        self.wrong: dict[int, Mistake] | None = None
        if self.right is not None:
            self.wrong = {mistake.index: mistake for mistake in evaluator.mistakes(None)}


def _only(wrong: dict[int, Mistake] | None, other: dict[int, Mistake] | None) -> list[Mistake]:
    """Wrong answers of one network that the other one has right, the most certain first."""
    if wrong is None or other is None:
        return []
    return [mistake for index, mistake in wrong.items() if index not in other]


def _loss(
    scored: tuple[_Scored, _Scored], indices: np.ndarray, level: float, *, by_class: bool = False
) -> tuple[float, tuple[float, float]]:
    """Points lost on the examples at some indices, with the paired interval; for a class, of right answers."""
    first, second = scored
    means = by_class or (first.is_mean and second.is_mean)
    if means and first.right is not None and second.right is not None:
        return _mean_loss(100 * (first.right[indices] - second.right[indices]), level)

    def points(chosen: np.ndarray) -> float:
        return 100 * (first.metric(chosen) - second.metric(chosen))

    random = np.random.default_rng(0)
    lost = points(indices)
    half = _normal(level) * np.std([points(random.choice(indices, len(indices))) for _ in range(_RESAMPLES)])
    return lost, (float(lost - half), float(lost + half))


def _mean_loss(points: np.ndarray, level: float) -> tuple[float, tuple[float, float]]:
    """Mean of the points that each example loses, with its interval.

    As if two more examples had half a gain and half a loss each: otherwise the interval is too short where few answers
    differ (Agresti and Min 2005, "Simple improved confidence intervals for comparing matched proportions").
    """
    count = len(points) + 2
    total = points.sum()
    variance = (np.square(points).sum() + 100**2 - total**2 / count) / count**2
    half = _normal(level) * variance**0.5
    return float(points.mean()), (float(total / count - half), float(total / count + half))


def _normal(level: float) -> float:
    from scipy.stats import norm

    return float(norm.ppf((1 + level) / 2))


def _parts(
    task: SupervisedTask, examples: LabelledData, slices: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str, bool], np.ndarray]:
    """Column, value, and whether it is a class → indices of its examples."""
    parts = {}
    if examples.classes is not None and task.config.labels:
        classes = np.asarray(examples.classes)
        parts = {
            ("label", label, True): np.flatnonzero(classes == index) for index, label in enumerate(task.config.labels)
        }
    for column, values in slices.items():
        array = np.asarray(values)
        parts |= {(column, str(value), False): np.flatnonzero(array == value) for value in np.unique(array)}
    return {name: indices for name, indices in parts.items() if len(indices)}


def _check_tasks(first: SupervisedTask, second: SupervisedTask) -> None:
    if first.kind != second.kind:
        raise UserError(f"both networks must have the same task; received {first.kind} and {second.kind}")
    labels = first.config.labels, second.config.labels
    if {*labels[0]} != {*labels[1]}:
        raise UserError(
            f"both networks must have the same labels; received {', '.join(labels[0])} and {', '.join(labels[1])}"
        )


def open_network(network: Model | Bundle | str | os.PathLike[str]) -> Model | Bundle:
    """Opens a folder with a model or a bundle.

    Raises:
      UserError: the folder has neither, or is damaged.
    """
    if isinstance(network, Model | Bundle):
        return network
    folder = find_model(network, "either", model_names()) or fetch_asset(os.fspath(network))
    return Bundle.open(folder) if (folder / BUNDLE_FILE).exists() else from_pretrained(folder)


def _size_mb(network: Model | Bundle) -> float:
    """Size of a bundle's file, and of a model's float32 weights."""
    if isinstance(network, Bundle):
        return network.model_path.stat().st_size / 1e6
    return float(4 * sum(np.prod(weight.shape) for weight in network.weights) / 1e6)


def _latencies(first: Model | Bundle, second: Model | Bundle) -> tuple[int | None, tuple[float, float] | None]:
    """The longest common length of two bundles, and their median latencies in turns; None for others."""
    if not isinstance(first, Bundle) or not isinstance(second, Bundle) or first.directory == second.directory:
        return None, None
    common = {*first.lengths} & {*second.lengths}
    if not common:
        return None, None
    names = {first.directory: "first", second.directory: "second"}
    measured = host.bench_bundles(
        list(names), lengths=[max(common)], threads=[1], quick=True, weights="trained", names=names
    )
    medians = {one.model: float(np.median(one.latency_us)) / 1e3 for one in measured.measurements if not one.error}
    if len(medians) < len(names):
        return None, None
    return max(common), (medians["first"], medians["second"])
