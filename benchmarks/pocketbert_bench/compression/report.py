"""The compression's page: the answer, score against latency, and every candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.report import render
from pocketbert.report.outcome import points, view
from pocketbert.report.scatter import Scatter
from pocketbert.trials.scores import front
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.formats import FILTERS
from pocketbert_bench.paired_scores import PartLoss
from pocketbert_export.bundles.bundle import read_verification
from pocketbert_export.bundles.model_card import CARD_FILE


def page(result: Mapping[str, Any], inputs: Inputs, bundle: Path) -> str:
    """Renders a self-contained HTML page.

    Args:
      result: fields of `CompressResult`.
      inputs: the compression's input.
      bundle: the bundle; the page shows its checks and model card.
    """
    rows, metric, constraints = result["leaderboard"], result["main_metric"], inputs.constraints
    (winner,) = [row for row in rows if row["chosen"]]
    low, high = result["interval"]
    lost, least, most = result["points_lost"]
    name = "points lost"
    if lost < 0:
        lost, least, most, name = -lost, -most, -least, "points gained"
    parts = [PartLoss(**part) for part in result["parts"]]
    milliseconds, fastest, slowest = result["latency_ms"]
    verification = read_verification(bundle)
    checks = verification["checks"]
    return render(
        "compression.html",
        package="pocketbert_bench",
        filters=FILTERS,
        title="Compression",
        sentence=result["sentence"],
        tiles=[
            (f"{100 * result['metrics'][metric]:.1f} %", metric, f"95 % interval {100 * low:.1f} to {100 * high:.1f}"),
            (f"{lost:.1f}", name, f"against your model; 95 % interval {least:.1f} to {most:.1f}"),
            (
                f"{milliseconds:.2f} ms",
                f"{inputs.where}, {constraints.threads} thread{'s' if constraints.threads > 1 else ''}",
                f"95 % interval {fastest:.2f} to {slowest:.2f}; your model {result['teacher_latency_ms']:.2f}",
            ),
            (
                f"{result['size_mb']:.1f} MB",
                winner["recipe"],
                f"model.tflite; peak memory {result['memory_mb']:.0f} MB" if result["memory_mb"] else "model.tflite",
            ),
            (f"{sum(check['passed'] for check in checks)} of {len(checks)}", "checks passed", "verification gate"),
        ],
        limits=constraints.text,
        folds=len(inputs.folds),
        parts=parts,
        class_rows=[
            [
                f"{part.column} {part.value}",
                f"{part.examples:,}",
                *(f"{points:.1f}" for points in (part.points, *part.interval)),
            ]
            for part in parts
        ],
        verification={bundle.name: verification},
        cards={bundle.name: (bundle / CARD_FILE).read_text(encoding="utf-8")},
        final=view("Means over the folds" if inputs.folds else "The bundle on the final split", result["outcome"]),
        notes=[note for note in result["notes"] if note not in result["outcome"]["warnings"]],
        others=_others(result),
        metric=metric,
        plot=_plot([row for row in rows if row["score"] is not None], constraints.max_latency_ms),
        rows=[
            [
                row["structure"],
                _training(row),
                row["recipe"] + (", trimmed vocabulary" if row["trimmed_vocabulary"] else ""),
                f"{row['latency_ms']:.2f}",
                f"{row['size_mb']:.1f}",
                row["failure"] if row["score"] is None else f"{100 * row['score']:.1f}",
                f"{row['epochs']:.2g}" if row["epochs"] < 10 else f"{row['epochs']:.0f}",
                f"{row['seconds']:.0f}",
                "winner" if row["chosen"] else row["stopped"],
            ]
            for row in rows
        ],
        commands=[
            (f"{row['structure']}, {row['method']}", row["model"], row["difference"], "\n".join(row["commands"]))
            for row in rows
            if row["commands"]
        ],
    )


def _training(row: Mapping[str, Any]) -> str:
    """How a candidate trained."""
    factor = row["learning_rate_factor"]
    return row["method"] if factor == 1 else f"{row['method']}, {factor:.2g} times the learning rate"


def _others(result: Mapping[str, Any]) -> list[list[str]]:
    """The effect of another latency limit: the front's other candidates and the teacher, against the winner."""
    rows = [row for row in result["leaderboard"] if row["score"] is not None]
    (winner,) = [row for row in rows if row["chosen"]]
    best = front(rows, lambda row: row["latency_ms"], lambda row: row["score"])
    others = [
        (row["latency_ms"], row["score"], f"{row['structure']}, {_training(row)}") for row in best if row is not winner
    ]
    others.append((result["teacher_latency_ms"], result["teacher_dev_score"], "your model itself"))
    return [[f"{latency:.2f}", points(score - winner["score"]), name] for latency, score, name in others]


def _plot(rows: Sequence[Mapping[str, Any]], limit: float | None) -> dict[str, Any]:
    """Coordinates for candidates as circles, the front as steps, and the limit."""
    latencies = [row["latency_ms"] for row in rows]
    plot = Scatter([0.0, *latencies, *([limit] if limit else [])], [row["score"] for row in rows])
    best = front(rows, lambda row: row["latency_ms"], lambda row: row["score"])
    return {
        "points": [
            {
                "x": plot.x(row["latency_ms"]),
                "y": plot.y(row["score"]),
                "colour": "#b45309" if row["chosen"] else "#0f766e",
                "radius": 5 if row["chosen"] else 3,
                "text": f"{row['structure']}, {_training(row)}: {100 * row['score']:.1f}, {row['latency_ms']:.2f} ms",
            }
            for row in rows
        ],
        "line": plot.steps((row["latency_ms"], row["score"]) for row in best),
        "limit": plot.x(limit) if limit else None,
        **plot.labels(lambda value: f"{value:.2f} ms" if value else "0 ms", lambda value: f"{100 * value:.1f}"),
    }
