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
