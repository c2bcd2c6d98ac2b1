"""Draw recipes for the docs: `python -m studies.tasks.draw_recipes`, from the committed result file.

The drawing shows the 6x384 network: latency relative to `dynamic_wi8` and points lost on SST-2; the area of a circle is
the size of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pocketbert_bench import results
from pocketbert_bench.charts import OURS
from studies.runner import RESULTS
from studies.tasks.recipe_scores import MODEL
from studies.tasks.recipes import BASELINE, NETWORKS

DRAWING = Path(__file__).resolve().parents[3] / "docs" / "results" / "recipes.svg"
# In 1/72 inch², for one MB.
_AREA = 8.0


class RecipePoint(NamedTuple):
    """A recipe: latency ÷ that of `dynamic_wi8`, points lost and MB."""

    recipe: str
    ratio: float
    points: float
    size_mb: float


def points(content: results.ResultFile) -> list[RecipePoint]:
    """Recipes with a latency and a score."""
    network = NETWORKS[0]
    ratios = {each.name: each.value for each in content.ratios} | {f"{network} {BASELINE}": 1.0}
    sizes = {each.recipe: each.size_bytes for each in content.measurements if each.model == network}
    scores = [each for each in content.accuracies if each.task == "sst2"]
    float_scores = {each.examples: each.value for each in scores if each.label == MODEL}
    found = []
    for score in scores:
        ratio, size = ratios.get(f"{network} {score.recipe}"), sizes.get(score.recipe)
        if ratio is not None and size is not None:
            lost = 100 * (float_scores[score.examples] - score.value)
            found.append(RecipePoint(score.recipe, ratio, lost, size / 1e6))
    return found


def draw(found: list[RecipePoint], path: Path) -> None:
    """Writes the drawing."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pocketbert"}):
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        ratios = [point.ratio for point in found]
        middle = (min(ratios) * max(ratios)) ** 0.5
        labelled: list[RecipePoint] = []
        for number, point in enumerate(found):
            axes.scatter(point.ratio, point.points, s=_AREA * point.size_mb, color=OURS[number % len(OURS)], alpha=0.6)
            # Labels of points in the same place stand below each other.
            near = sum(
                abs(point.ratio / other.ratio - 1) < 0.1 and abs(point.points - other.points) < 0.05
                for other in labelled
            )
            labelled.append(point)
            side = -1 if point.ratio > middle else 1
            axes.annotate(
                f"{point.recipe}, {point.size_mb:.0f} MB",
                (point.ratio, point.points),
                xytext=(side * (4 + (_AREA * point.size_mb) ** 0.5 / 2), -3 - 10 * near),
                textcoords="offset points",
                ha="right" if side < 0 else "left",
                fontsize=8,
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
        axes.set_xlabel(f"latency relative to {BASELINE}, 128 tokens, 1 thread (less is better)")
        axes.set_ylabel("points lost on SST-2 (less is better)")
        axes.set_axisbelow(True)
        axes.grid(color="#e5e7eb")
        figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(points(results.read(RESULTS / "tasks" / "recipes.json")), DRAWING)
