"""Pictures on the pages, as SVG files that do not depend on the day."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pocketbert_bench import results
from pocketbert_bench.charts import OURS
from studies.runner import RESULTS
from studies.tables.render import ROOT
from studies.tasks.recipe_scores import MODEL
from studies.tasks.recipes import BASELINE, NETWORKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GRID = "#e5e7eb"
# In 1/72 inch², for one MB.
_AREA = 8.0
# Of a chart, in inches.
_HEIGHT = 2.1


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of a page.

    Attributes:
      path: path in the checkout.
      result: name of the result file.
      draw: function of result file and path, which writes the picture.
    """

    path: str
    result: str
    draw: Callable[[results.ResultFile, Path], None]

    def write(self) -> None:
        """Draws the picture from the committed result file."""
        self.draw(results.read(RESULTS / f"{self.result}.json"), ROOT / self.path)


class Point(NamedTuple):
    """A value with its standard deviation."""

    value: float
    spread: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart.

    Attributes:
      title: its heading.
      places: names on the horizontal axis, at equal distances.
      lines: name of a line → one point per place; None where nothing is measured.
    """

    title: str
    places: Sequence[str]
    lines: Mapping[str, Sequence[Point | None]]


@contextmanager
def svg(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of `width` x `height` inches that is written to an SVG file at the end."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pocketbert"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None})


def draw_panels(path: Path, axis: str, panels: Sequence[Panel], *, columns: int = 3, width: float = 2.8) -> None:
    """Draws charts of `width` inches in rows; all have the same lines and horizontal axis."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with svg(path, columns * width, rows * _HEIGHT + 0.6) as figure:
        charts = figure.subplots(rows, columns, squeeze=False).flat
        for chart, panel in zip(charts, panels, strict=False):
            for (name, line), colour in zip(panel.lines.items(), OURS, strict=False):
                points = {position: point for position, point in enumerate(line) if point}
                values = [point.value for point in points.values()]
                spreads = [point.spread for point in points.values()]
                chart.errorbar(list(points), values, spreads, color=colour, marker="o", markersize=3, label=name)
            chart.set_title(panel.title, fontsize=9)
            chart.set_xticks(range(len(panel.places)), panel.places, fontsize=8)
            chart.tick_params(axis="y", labelsize=8)
            chart.grid(axis="y", color=_GRID)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8)
        figure.supxlabel(axis, fontsize=9)


class RecipePoint(NamedTuple):
    """A recipe: latency ÷ that of `dynamic_wi8`, points lost and MB."""

    recipe: str
    ratio: float
    points: float
    size_mb: float


def recipe_points(content: results.ResultFile) -> list[RecipePoint]:
    """Recipes of the 6x384 network with a latency and a score on SST-2."""
    network = NETWORKS[0]
    ratios = {ratio.name: ratio.value for ratio in content.ratios} | {f"{network} {BASELINE}": 1.0}
    sizes = {run.recipe: run.size_bytes for run in content.measurements if run.model == network}
    scores = [score for score in content.accuracies if score.task == "sst2"]
    trained = {score.examples: score.value for score in scores if score.label == MODEL}
    points = []
    for score in scores:
        ratio, size = ratios.get(f"{network} {score.recipe}"), sizes.get(score.recipe)
        if ratio is not None and size is not None:
            points.append(RecipePoint(score.recipe, ratio, 100 * (trained[score.examples] - score.value), size / 1e6))
    return points


def draw_recipes(content: results.ResultFile, path: Path) -> None:
    """Draws points lost by latency; the area of a circle is the size of the file."""
    points = recipe_points(content)
    with svg(path, 7.0, 4.0) as figure:
        axes: Any = figure.add_subplot()
        ratios = [point.ratio for point in points]
        middle = (min(ratios) * max(ratios)) ** 0.5
        for number, point in enumerate(points):
            axes.scatter(point.ratio, point.points, s=_AREA * point.size_mb, color=OURS[number % len(OURS)], alpha=0.6)
            # Labels of points in the same place stand below each other.
            near = sum(
                abs(point.ratio / other.ratio - 1) < 0.1 and abs(point.points - other.points) < 0.05
                for other in points[:number]
            )
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
        axes.grid(color=_GRID)
