"""Scores of an experiment's result file as cells of a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from pocketbert_bench import results

NOTHING = "–"
# Model, label without seed, task.
Key = tuple[str, str, str]
# Seed, empty where there is one run, → value.
Values = Mapping[str, float]


def scores(accuracies: Iterable[results.Accuracy]) -> dict[Key, dict[str, float]]:
    """The values of each model, way of making it and task, a value a seed."""
    found: dict[Key, dict[str, float]] = {}
    for each in accuracies:
        label, separator, seed = each.label.rpartition(", seed ")
        found.setdefault((each.model, label if separator else each.label, each.task), {})[seed] = each.value
    return found


def cell(values: Iterable[float], seeds: int, *, unit: float = 100.0, digits: str = ".1f", failed: int = 0) -> str:
    """Mean and standard deviation, in hundredths; how many seeds, where some are missing or failed.

    Args:
      values: of the seeds that there are.
      seeds: how many there will be.
      unit: what the values are multiplied by.
      digits: how a number is written.
      failed: how many seeds' runs failed, since they diverged for example.
    """
    given = [unit * value for value in values]
    if not given:
        return f"{failed} failed" if failed else NOTHING
    text = f"{statistics.fmean(given):{digits}}"
    if len(given) > 1:
        text += f" ± {statistics.stdev(given):{digits}}"
    if len(given) == seeds:
        return text
    return f"{text} ({len(given)} of {seeds}{f', {failed} failed' if failed else ''})"


def difference(ours: Values, others: Values) -> str:
    """Of the seeds that both have, the mean and standard deviation of their differences, in hundredths.

    Returns:
      The mean with its sign; where there is more than one seed, its spread; empty where there is none.
    """
    differences = [100 * (ours[seed] - others[seed]) for seed in ours if seed in others]
    if not differences:
        return ""
    spread = f" ± {statistics.stdev(differences):.1f}" if len(differences) > 1 else ""
    return f"{statistics.fmean(differences):+.1f}{spread}"
