"""Format the scores of an experiment's result file as cells of a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from pocketbert_bench import results

NOTHING = "–"
# Model, label without seed, task.
Key = tuple[str, str, str]
# Seed (empty for a single run) → value.
Values = Mapping[str, float]


def scores(accuracies: Iterable[results.Accuracy]) -> dict[Key, dict[str, float]]:
    """Values by model, label without seed, and task; one value per seed."""
    found: dict[Key, dict[str, float]] = {}
    for each in accuracies:
        label, separator, seed = each.label.rpartition(", seed ")
        found.setdefault((each.model, label if separator else each.label, each.task), {})[seed] = each.value
    return found


def cell(values: Iterable[float], seeds: int, *, unit: float = 100.0, digits: str = ".1f", failed: int = 0) -> str:
    """Formats mean and standard deviation in percent, and the number of seeds if some are missing or failed.

    Args:
      values: one value per finished seed.
      seeds: intended number of seeds.
      unit: factor for the values.
      digits: format of a number.
      failed: number of failed runs, for example diverged ones.
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
    """Formats the mean difference over the common seeds in percent, and its standard deviation for several seeds.

    Returns:
      The mean with its sign and, for more than one seed, the standard deviation; empty without common seeds.
    """
    differences = [100 * (ours[seed] - others[seed]) for seed in ours if seed in others]
    if not differences:
        return ""
    spread = f" ± {statistics.stdev(differences):.1f}" if len(differences) > 1 else ""
    return f"{statistics.fmean(differences):+.1f}{spread}"
