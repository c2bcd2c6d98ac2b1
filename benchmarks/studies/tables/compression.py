"""Tables of `pocketbert compress`."""

from __future__ import annotations

import numpy as np

from pocketbert_bench import results
from studies.bake_off import rows_of
from studies.compression_costs import LARGEST_TARGET, MEDIAN_TARGET, errors
from studies.compression_hour import LEAST_TRAINING, MOST_LOST, SEEDS
from studies.compression_limits import MOST_DIFFERENCE, MOST_MINUTES
from studies.tables.bake_off import method_name, sizes
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


def limits(content: results.ResultFile) -> str:
    """What each run used of its limits, and how many runs kept them."""
    columns = ("latency", "latency again", "size", "memory", "time")
    runs: dict[str, dict[str, float]] = {}
    for ratio in content.ratios:
        name, _, what = ratio.name.rpartition(", ")
        runs.setdefault(name, {})[what] = ratio.value
    rows = [
        [*name.split(", "), *(f"{100 * used[what]:.0f} %" if what in used else NOTHING for what in columns)]
        for name, used in runs.items()
    ]
    counts = []
    for what in columns:
        values = [used[what] for used in runs.values() if what in used]
        if what == "latency again":
            kept = [abs(value - 1) <= MOST_DIFFERENCE for value in values]
            counts.append(f"{what}: {sum(kept)}/{len(kept)} runs differ by at most {100 * MOST_DIFFERENCE:.0f} %")
            continue
        most = MOST_MINUTES if what == "time" else 1.0
        kept = [value <= most for value in values]
        counts.append(f"{what}: {sum(kept)}/{len(kept)} runs use at most {100 * most:.0f} %")
    heads = ["Task", "Teacher", ">Share", *(f">{what.capitalize()}" for what in columns)]
    return page(table(heads, rows), bullets([*counts, *content.notes]))


def hour(content: results.ResultFile) -> str:
    """Points lost, latency and time of each seed."""
    heads = ["Seed", ">Teacher", ">Compressed", ">Points lost", ">Limit, ms", ">ms", "Layers, heads, neurons"]
    heads += ["Method", ">Candidates", ">s", ">In training"]
    lines = []
    rows = rows_of(content)
    for row in rows:
        points, low, high = row["points_lost"]
        lines.append(
            [
                str(row["seed"]),
                f"{100 * row['teacher_score']:.1f}",
                f"{100 * row['score']:.1f}",
                f"{points:.1f} ({low:.1f} to {high:.1f})",
                f"{row['limit_ms']:.2f}",
                f"{row['latency_ms'][0]:.2f}",
                sizes(row),
                method_name(row["winner_method"]),
                str(row["candidates"]),
                f"{row['seconds']:.0f}",
                f"{100 * row['training_seconds'] / row['seconds']:.0f} %",
            ]
        )
    lost = float(np.mean([row["points_lost"][0] for row in rows]))
    training = min(row["training_seconds"] / row["seconds"] for row in rows)
    targets = [
        f"points lost: {lost:.2f} as a mean over {len(rows)} of {len(SEEDS)} seeds; the target is at most {MOST_LOST}",
        f"in training: at least {100 * training:.0f} %; the target is {100 * LEAST_TRAINING:.0f} %",
        f"commits: {', '.join(sorted({row['commit'][:8] for row in rows}))}",
    ]
    return page(table(heads, lines), bullets(targets))
