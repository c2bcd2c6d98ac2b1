"""A search's page: score against cost, scores in order, and the best network as a graph per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.feedforward import INPUT, Node, parse
from pocketbert.report import render
from pocketbert.report.scatter import Scatter
from pocketbert.search.config import STAGES
from pocketbert.search.journal import Candidate, SearchJournal, front
from pocketbert.trials.scores import scores

_COLOURS = {1: "#0f766e", 2: "#b45309", 3: "#1d4ed8"}
_NODE_WIDTH, _ROW = 84, 34


def page(journal: SearchJournal, result: Mapping[str, Any], stages: Sequence[int], strategy: str) -> str:
    """Renders a self-contained HTML page."""
    metric, cost = result["main_metric"], result["cost"]
    scored = [candidate for candidate in journal.candidates if candidate.score is not None]
    best = result["best"]
    rows = []
    for stage in stages:
        stage_scores = scores(journal.of_stage(stage))
        best_score = f"{max(stage_scores):.4f}" if stage_scores else "-"
        rows.append([stage, STAGES[stage], len(journal.of_stage(stage)), best_score, journal.ended.get(stage)])
    return render(
        "search.html",
        title="Search",
        metric=metric,
        cost=_title(cost),
        strategy=strategy,
        count=len(scored),
        failed=result["failed"],
        best_score=f"{best['score']:.4f}",
        best_cost=_number(best["costs"][cost]),
        best_place=f"candidate {best['index']} of stage {best['stage']}",
        stages=rows,
        names=[(f"stage {stage}", _COLOURS[stage]) for stage in stages],
        costs=[
            {
                "title": _title(name),
                "plot": _scatter(
                    scored, [candidate.costs[name] for candidate in scored], front(journal.comparable, name), name
                ),
            }
            for name in best["costs"]
        ],
        order=_scatter(scored, [float(number) for number in range(1, len(scored) + 1)], [], cost),
        graphs=[_graph(number, text) for number, text in enumerate(best["genotype"], 1)],
        front=[
            [
                candidate["stage"],
                candidate["index"],
                f"{candidate['score']:.4f}",
                _number(candidate["costs"][cost]),
                list(candidate["genotype"]),
            ]
            for candidate in result["front"]
        ],
        retrained=[
            [candidate["stage"], candidate["index"], f"{candidate['score']:.4f}", f"{candidate['retrained']:.4f}"]
            for candidate in result["retrained"]
        ],
        tau=None if result["kendall_tau"] is None else f"{result['kendall_tau']:.2f}",
    )


def _title(cost: str) -> str:
    return cost.replace("_ms", " in ms").replace("_", " ")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"


def _scatter(scored: list[Candidate], xs: list[float], best_ones: Sequence[Candidate], cost: str) -> dict[str, Any]:
    """Coordinates for one point per candidate, and for the front as steps."""
    plot = Scatter(xs, scores(scored))
    return {
        "points": [
            {
                "x": plot.x(x),
                "y": plot.y(candidate.score or 0.0),
                "colour": _COLOURS[candidate.stage],
                "text": f"stage {candidate.stage}, candidate {candidate.index}: {candidate.score:.4f}, "
                f"{_title(cost)} {_number(candidate.costs[cost])}: {'; '.join(candidate.genotype)}",
            }
            for candidate, x in zip(scored, xs, strict=True)
        ],
        "line": plot.steps((candidate.costs[cost], candidate.score or 0.0) for candidate in best_ones),
        **plot.labels(_number, "{:.3f}".format),
    }


def _graph(number: int, text: str) -> dict[str, Any]:
    """Boxes and arrows for one layer's expression, from the input on the left to the result on the right."""
    expression = parse(text)
    boxes: list[dict[str, Any]] = []
    lines: list[dict[str, float]] = []
    height = expression.tree.height

    def place(node: Node, row: int) -> tuple[float, int]:
        """Places a node and its operands from `row` on; returns its y and the next free row."""
        free, ys = row, []
        for argument in node.arguments:
            y, free = place(argument, free)
            ys.append((argument, y))
        y = sum(y for _, y in ys) / len(ys) if ys else row * _ROW + 14.0
        free = max(free, row + 1)
        x = node.height * _NODE_WIDTH + 2
        boxes.append({"x": x, "y": y - 11, "text": "input" if node.operation == INPUT else node.operation})
        for argument, below in ys:
            lines.append({"x1": argument.height * _NODE_WIDTH + 70, "y1": below, "x2": x, "y2": y})
        return y, free

    _, rows = place(expression.tree, 0)
    fraction = "full width" if expression.divisor == 1 else f"1/{expression.divisor} of the width"
    return {
        "title": f"Layer {number}",
        "text": text,
        "note": f"{expression.stacks} stacked, {fraction}" if expression.stacks > 1 else fraction,
        "boxes": boxes,
        "lines": lines,
        "width": (height + 1) * _NODE_WIDTH,
        "height": rows * _ROW,
    }
