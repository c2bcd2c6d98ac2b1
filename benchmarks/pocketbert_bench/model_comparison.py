"""Compare two networks on the same labelled examples: paired difference, by class and slice, and changed answers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pocketbert.data.examples import LabelledData
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.heads_config import same_heads
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.data_checks import cut_warning
from pocketbert.tasks.metrics import listed_metrics
from pocketbert.tasks.mistakes import Mistake
from pocketbert.tasks.predictor import Predictor, model_predictor
from pocketbert.tasks.registry import supervised_task
from pocketbert_bench import host
from pocketbert_bench.compression.measurements import round_ratio
from pocketbert_bench.formats import faster
from pocketbert_bench.paired_scores import LEAST_EXAMPLES, PairedScores, PartLoss, in_words, remembering
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.predictors import NO_MORE_POSITIONS, limit_remedy, open_network
from pocketbert_export.checks.label_order import examples_for, with_label_names
from pocketbert_export.glue.scoring import labelled_evaluator
from pocketbert_runtime.forward import Outputs
from pocketbert_runtime.heads_config import described_heads
from pocketbert_runtime.label_names import are_placeholders, label_positions
from pocketbert_runtime.rows import TokenRows

MOST_CHANGED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Two networks on the same examples; the second one is compared with the first.

    Attributes:
      metric: the compared metric.
      examples: number of examples.
      scores: both networks' metric.
      points_lost: the second network's loss in points.
      interval: its paired 95 % interval.
      newly_wrong: number of answers only the first network has right; None for scores and embeddings.
      newly_right: number of answers only the second network has right.
      wrong_texts: at most 20 newly wrong ones, the most certain first, with the second network's answers.
      right_texts: at most 20 newly right ones, with the first network's answers.
      parts: classes and slices with at least 30 examples, the largest loss first.
      small_parts: number of classes and slices with fewer examples.
      size_mb: both weight files' sizes, in MB of 10⁶ bytes.
      latency_ms: both latencies, by the ratio between their rounds; None unless both are bundles with a common length.
      length: tokens per text in the latency measurement.
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
            f"{in_words(self.points_lost, self.interval)}"
        ]
        if self.parts:
            lines[0] += f"; worst: {self.parts[0]}"
        if self.newly_wrong is not None:
            lines.append(f"{self.newly_wrong:,} answers become wrong, and {self.newly_right:,} right")
        if self.latency_ms is not None:
            before, after = self.latency_ms
            lines.append(f"{before:.2f} and {after:.2f} ms at {self.length} tokens: {faster(before / after, 2)}")
        lines.append(f"{self.size_mb[0]:.1f} and {self.size_mb[1]:.1f} MB")
        lines += map(str, self.parts[1:])
        if self.small_parts:
            lines.append(f"{self.small_parts} classes and slices have fewer than {LEAST_EXAMPLES} examples")
        return "\n".join(lines)


def compare(
    first: Model | Bundle | str | os.PathLike[str],
    second: Model | Bundle | str | os.PathLike[str],
    data: LabelledData | TaskData,
    *,
    metric: str | None = None,
    labels: Sequence[str] | None = None,
    slices: Mapping[str, Sequence[str]] = {},
    latency: bool = True,
    **windows: int | None,
) -> ModelComparison:
    """Compares two models or bundles with the same task on labelled examples.

    Example:
      ```python
      print(pb.compare("runs/reviews/model", "runs/small/bundle", data))
      ```

    Args:
      first: a model, a bundle, or its folder.
      second: the network to compare with it.
      data: labelled examples, in the order of the first network's labels, or a run's data, for its dev split.
      metric: the compared metric; None for the metric from `data` or the task.
      labels: names for placeholder labels LABEL_0, LABEL_1, …, in the order of the logits.
      slices: name → each example's value. Each value with at least 30 examples has a row.
      latency: whether to measure two bundles, in turns with one thread.
      **windows: `max_length`, and window options for long paragraphs.
    Raises:
      UserError: the networks have different tasks or labels, or the examples have no labels.
    """
    opened = _opened(first), _opened(second)
    networks = _in_one_order(*(remembering(_predictor(network, windows)) for network in opened), labels=labels)
    examples = _checked_examples(networks[0].task, data, metric, slices)
    cuts = [
        cut_warning(network.task, [examples], network.tokenizer, network.max_length, _limit_remedy(read, windows))
        for network, read in zip(networks, opened, strict=True)
    ]
    for cut in dict.fromkeys(filter(None, cuts)):
        log_info(f"compare: warning: {cut}")
    name = metric or (data.main_metric if isinstance(data, TaskData) else "") or None
    scores, wrong = [], []
    for network in networks:
        evaluator = labelled_evaluator(network, examples, metrics=(name,) if name else None)
        scores.append(evaluator.scores(name))
        wrong.append({mistake.index: mistake for mistake in evaluator.mistakes(None)})
        # The second network may have another task name, and with it another metric.
        name = scores[0].main_metric
    paired = PairedScores(networks, examples, scores[0].main_metric)
    loss, (parts, small_parts) = paired.loss(), paired.parts(slices)
    newly_wrong = [mistake for index, mistake in wrong[1].items() if index not in wrong[0]]
    newly_right = [mistake for index, mistake in wrong[0].items() if index not in wrong[1]]
    answered = all(right is not None for right in paired.right)
    length, medians = _latencies(*opened) if latency else (None, None)
    return ModelComparison(
        metric=scores[0].main_metric,
        examples=len(examples),
        scores=(scores[0].score, scores[1].score),
        points_lost=loss.points,
        interval=loss.interval,
        newly_wrong=len(newly_wrong) if answered else None,
        newly_right=len(newly_right) if answered else None,
        wrong_texts=tuple(newly_wrong[:MOST_CHANGED]) if answered else (),
        right_texts=tuple(newly_right[:MOST_CHANGED]) if answered else (),
        parts=tuple(parts),
        small_parts=small_parts,
        size_mb=(_size_mb(opened[0]), _size_mb(opened[1])),
        latency_ms=medians,
        length=length,
    )


def _in_one_order(first: Predictor, second: Predictor, *, labels: Sequence[str] | None) -> tuple[Predictor, Predictor]:
    """Both networks, with the first one's label names and order."""
    configs = [with_label_names(network.task.config, labels) for network in (first, second)]
    if configs[0].kind != configs[1].kind:
        raise UserError(f"both networks must have the same task; received {configs[0].kind} and {configs[1].kind}")
    if not same_heads(*configs):
        raise UserError(
            "both networks must have the same heads, with labels in the same order; received "
            f"{' and '.join(map(described_heads, configs))}"
        )
    order = label_positions(configs[0].labels, configs[1].labels)
    if order is None:
        remedy = (
            f"; name placeholders with {argument('labels')}"
            if any(are_placeholders(config.labels) for config in configs)
            else ""
        )
        raise UserError(
            f"both networks must have the same labels; received {', '.join(configs[0].labels)} and "
            f"{', '.join(configs[1].labels)}{remedy}"
        )

    def forward(encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        outputs = second.forward(encoded, show_progress=show_progress)
        return {name: values[..., order] for name, values in outputs.items()} if order else outputs

    decisions = configs[1].decisions and configs[1].decisions.in_order(order)
    changes: dict[str, Any] = {"labels": configs[0].labels, "name": configs[0].name, "decisions": decisions}
    tasks = supervised_task(configs[0]), supervised_task(dataclasses.replace(configs[1], **changes))
    return (
        Predictor(tasks[0], first.forward, first.tokenizer, first.max_length, **first.windows),
        Predictor(tasks[1], forward, second.tokenizer, second.max_length, **second.windows),
    )


def _checked_examples(
    task: SupervisedTask, data: LabelledData | TaskData, metric: str | None, slices: Mapping[str, Sequence[str]]
) -> LabelledData:
    """The examples with labels in the networks' order."""
    examples = examples_for(task.config, data)
    assert examples is not None
    task.check_data(examples)
    if not examples.labelled:
        raise UserError(f"compare needs {examples.missing_labels}; pass labelled examples")
    accepted = task.selection_metrics(examples)
    if metric is not None and metric not in accepted:
        raise UserError(
            f"{argument('metric')} must be one of {listed_metrics(accepted)} for {task.kind}; received {metric!r}"
        )
    for column, values in slices.items():
        if len(values) != len(examples):
            raise UserError(
                f"slices must have a value for each of the {len(examples)} examples; received {len(values)} for "
                f"{column}"
            )
    return examples


def _opened(network: Model | Bundle | str | os.PathLike[str]) -> Model | Bundle:
    return network if isinstance(network, Model | Bundle) else open_network(network)


def _predictor(network: Model | Bundle, windows: Mapping[str, int | None]) -> Predictor:
    if isinstance(network, Bundle):
        return network.predictor(**windows)
    return model_predictor(network, "the model", **windows)


def _limit_remedy(network: Model | Bundle, windows: Mapping[str, int | None]) -> str:
    """The remedy for texts longer than a network's limit, or the given one."""
    if windows.get("max_length"):
        return ""
    return limit_remedy(network.directory) if isinstance(network, Bundle) else NO_MORE_POSITIONS


def _size_mb(network: Model | Bundle) -> float:
    """Size in MB: a bundle's file, or a model's float32 weights."""
    if isinstance(network, Bundle):
        return network.model_path.stat().st_size / 1e6
    return float(4 * sum(np.prod(weight.shape) for weight in network.weights) / 1e6)


def _latencies(first: Model | Bundle, second: Model | Bundle) -> tuple[int | None, tuple[float, float] | None]:
    """The longest common length between two bundles, and their median latencies in turns; None for others."""
    if not isinstance(first, Bundle) or not isinstance(second, Bundle) or first.directory == second.directory:
        return None, None
    common = {*first.lengths} & {*second.lengths}
    if not common:
        log_info("latencies are not compared: the bundles have no common length")
        return None, None
    names = {first.directory: "first", second.directory: "second"}
    measured = host.bench_bundles(
        list(names), lengths=[max(common)], threads=[1], quick=True, weights="trained", names=names
    )
    if problems := [one.error for one in measured.measurements if one.error]:
        raise UserError(f"the bundles must run to be measured; received: {problems[0]}")
    of = {one.model: one for one in measured.measurements}
    median = float(np.median(of["second"].latency_us)) / 1e3
    # Other programs slow down both networks of a round.
    return max(common), (median * round_ratio(of["first"], of["second"]), median)
