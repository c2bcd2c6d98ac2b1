"""The page of a compression: the answer, score against latency, and every candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.report import render
from pocketbert.report.outcome import points, view
from pocketbert_bench.compression.constraints import Constraints

# The plot area of `chart` is 292 x 176, with its upper left corner at (56, 16).
_LEFT, _TOP, _WIDTH, _HEIGHT = 56, 16, 292, 176


def page(result: Mapping[str, Any], constraints: Constraints) -> str:
    """Renders a self-contained HTML page.

    Args:
      result: fields of `CompressResult`.
      constraints: the limits.
    """
    rows, metric = result["leaderboard"], result["main_metric"]
    (winner,) = [row for row in rows if row["chosen"]]
    low, high = result["interval"]
    points, least, most = result["points_lost"]
    milliseconds, fastest, slowest = result["latency_ms"]
    return render(
        "compression.html",
        package="pocketbert_bench",
        title="Compression",
        sentence=result["sentence"],
        tiles=[
            (f"{100 * result['metrics'][metric]:.1f} %", metric, f"95 % interval {100 * low:.1f} to {100 * high:.1f}"),
            (f"{points:.1f}", "points lost", f"against your model; 95 % interval {least:.1f} to {most:.1f}"),
            (
                f"{milliseconds:.2f} ms",
                f"{result['length']} tokens, {constraints.threads} thread",
                f"95 % interval {fastest:.2f} to {slowest:.2f}; your model {result['teacher_latency_ms']:.2f}",
            ),
            (
                f"{result['size_mb']:.1f} MB",
                winner["recipe"],
                f"model.tflite; peak memory {result['memory_mb']:.0f} MB",
            ),
        ],
        limits=constraints.text,
        final=view("The bundle on the final split", result["outcome"]),
        notes=[note for note in result["notes"] if note not in result["outcome"]["warnings"]],
        others=_others(result),
        metric=metric,
        plot=_plot([row for row in rows if row["score"] is not None], constraints.max_latency_ms),
        rows=[
            [
                row["structure"],
                row["method"],
                row["recipe"],
                f"{row['latency_ms']:.2f}",
                f"{row['size_mb']:.1f}",
                row["failure"] if row["score"] is None else f"{100 * row['score']:.1f}",
                row["epochs"],
                f"{row['seconds']:.0f}",
                "winner" if row["chosen"] else "",
            ]
            for row in rows
        ],
    )


def front(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that no other one beats in both score and latency, from fast to slow."""
    best: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["latency_ms"], -row["score"])):
        if not best or row["score"] > best[-1]["score"]:
            best.append(row)
    return best


def _others(result: Mapping[str, Any]) -> list[list[str]]:
    """What another limit of the latency gives: the front's other candidates and the teacher, against the winner."""
    rows = [row for row in result["leaderboard"] if row["score"] is not None]
    (winner,) = [row for row in rows if row["chosen"]]
    others = [
        (row["latency_ms"], row["score"], f"{row['structure']}, {row['method']}")
        for row in front(rows)
        if row is not winner
    ]
    others.append((result["teacher_latency_ms"], result["teacher_dev_score"], "your model itself"))
    return [[f"{latency:.2f}", points(score - winner["score"]), name] for latency, score, name in others]


def _plot(rows: Sequence[Mapping[str, Any]], limit: float | None) -> dict[str, Any]:
    """Coordinates of a circle for each candidate, of the front as steps, and of the limit."""
    latencies = [row["latency_ms"] for row in rows]
    scores = [row["score"] for row in rows]
    right = max([*latencies, *([limit] if limit else [])])
    bottom, top = min(scores), max(scores)

    def x_of(value: float) -> float:
        return round(_LEFT + _WIDTH * value / right, 1)

    def y_of(value: float) -> float:
        return round(_TOP + _HEIGHT * (1 - ((value - bottom) / (top - bottom) if top > bottom else 0.5)), 1)

    best, line = front(rows), ""
    for row in best:
        x, y = x_of(row["latency_ms"]), y_of(row["score"])
        line += f" H{x} V{y}" if line else f"M{x} {y}"
    return {
        "points": [
            {
                "x": x_of(row["latency_ms"]),
                "y": y_of(row["score"]),
                "colour": "#b45309" if row["chosen"] else "#0f766e",
                "radius": 5 if row["chosen"] else 3,
                "text": f"{row['structure']}, {row['method']}: {100 * row['score']:.1f}, {row['latency_ms']:.2f} ms",
            }
            for row in rows
        ],
        "line": line + f" H{_LEFT + _WIDTH}",
        "limit": x_of(limit) if limit else None,
        "ticks": [{"y": y_of(value), "text": f"{100 * value:.1f}"} for value in sorted({bottom, top})],
        "places": [
            {"x": _LEFT, "text": "0 ms", "anchor": "start"},
            {"x": _LEFT + _WIDTH, "text": f"{right:.2f} ms", "anchor": "end"},
        ],
    }
