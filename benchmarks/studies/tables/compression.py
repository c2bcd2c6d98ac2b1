"""Tables of `pocketbert compress`."""

from __future__ import annotations

import numpy as np

from pocketbert_bench import results
from studies.compression_costs import LARGEST_TARGET, MEDIAN_TARGET, errors
from studies.tables.render import NOTHING, bullets, page, table


def costs(content: results.ResultFile) -> str:
    """Errors of predicted costs."""
    heads = ["Teacher", "Recipe", "Pooling", "Predicted", ">Structures", ">Median error", ">Largest error", "Met"]
    rows = []
    for ratio in content.ratios:
        of_ratio = errors(ratio)
        median, largest = float(np.median(of_ratio)), float(of_ratio.max())
        met = "yes" if median <= MEDIAN_TARGET and largest <= LARGEST_TARGET else "no"
        rows.append(
            [
                *ratio.name.split(", "),
                str(len(of_ratio)),
                f"{median:.1f} %",
                f"{largest:.1f} %",
                NOTHING if ratio.unit == "bytes" else met,
            ]
        )
    return page(table(heads, rows), bullets(content.notes))


def demo(content: results.ResultFile) -> str:
    """Accuracy of compressed models and of the demo's students."""
    models = list(dict.fromkeys(accuracy.model for accuracy in content.accuracies))
    by_seed: dict[str, dict[str, float]] = {}
    for accuracy in content.accuracies:
        by_seed.setdefault(accuracy.label, {})[accuracy.model] = accuracy.value
    rows = [[seed, *(f"{100 * scores[model]:.1f} %" for model in models)] for seed, scores in by_seed.items()]
    return page(table(["Seed", *(f">{model}" for model in models)], rows), bullets(content.notes))
