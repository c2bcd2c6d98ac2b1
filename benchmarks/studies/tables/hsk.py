"""Tables and curves of HSK's sweep."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pocketbert.data.readers.glue import GLUE
from pocketbert.distillation.methods.hsk_knowledge import Knowledge
from pocketbert_bench import results
from studies.sweep import noted
from studies.tables.charts import Panel, Picture, Point, draw_panels
from studies.tables.hsk_variants import (
    ALL,
    COMPRESSED,
    DEPTH,
    FULL,
    JOINT,
    LENGTH,
    PREDICTION,
    PRUNED,
    SEEDS,
    STUDENTS,
    SWEPT,
    TASKS,
    TEACHER_LAYERS,
    WIDTH,
    HSKVariant,
    tasks_of,
)
from studies.tables.render import (
    NOTHING,
    ScoreTable,
    Values,
    cell,
    counted_examples,
    finding,
    page,
    scored_heads,
    table,
    task_titles,
)
from studies.tables.sweeps import ONCE, percent

RESULT = "hsk/accuracy"
_FEW = JOINT[COMPRESSED]


class _Sweep(NamedTuple):
    """A figure of the paper with one dimension, and the name of its picture."""

    title: str
    axis: str
    curves: Mapping[str, Mapping[str, HSKVariant]]
    name: str


_SWEEPS = (
    _Sweep("Depth (figure 3)", "N_D", {f"L_top = {top}": points for top, points in DEPTH.items()}, "depth"),
    _Sweep("Length (figures 4 and 5)", "N_L", LENGTH, "length"),
    _Sweep("Width (figure 7)", "N_W/d", WIDTH, "width"),
)


def text(content: results.ResultFile) -> str:
    """Table 2, findings, joint compression, sweeps and separators."""
    scores = ScoreTable.of_main_metrics(content)
    parts = [_table_2(scores), _findings(scores), _joint(scores)]
    parts.append(["![Scores by the amount of knowledge, joint compression](hsk-joint.svg)"])
    for sweep in _SWEEPS:
        parts += [_sweep(scores, sweep), [f"![{sweep.title}: scores by amount](hsk-{sweep.name}.svg)"]]
    return page(*parts, _separators(noted(content, "separators")), [counted_examples(content, task_titles(TASKS))])


def _table_2(scores: ScoreTable) -> list[str]:
    rows = [(*row, *(cell(scores.values(*row, task).values(), 1) for task in TASKS)) for row in ONCE]
    for student in STUDENTS:
        lines = {"predictions only": (PREDICTION,), f"all, L_top = {TEACHER_LAYERS}": (FULL,)}
        for name, variants in (lines | {f"A^HSK = {COMPRESSED}, mean": _FEW}).items():
            cells = [cell(_mean(scores, student, variants, task).values(), len(SEEDS)) for task in TASKS]
            rows.append((student, name, *cells))
        rows.append((student, f"A^HSK = {COMPRESSED}, best", *(_best_cell(scores, student, task) for task in TASKS)))
    return table(["Table 2, student", "Knowledge", *scored_heads(TASKS)], rows)


def _best_cell(scores: ScoreTable, student: str, task: str) -> str:
    """The variant with the best mean over its seeds, and its score."""
    seeds = {variant: scores.values(student, variant.label, task) for variant in _FEW}
    means = {variant: statistics.fmean(values.values()) for variant, values in seeds.items() if values}
    best = max(means, key=lambda variant: means[variant], default=None)
    if best is None or best.knowledge is None:
        return NOTHING
    return f"{cell(seeds[best].values(), len(SEEDS))} at {Knowledge.parse(best.knowledge)}"


def _mean(scores: ScoreTable, student: str, variants: Sequence[HSKVariant], task: str) -> Values:
    """Seed → mean over the variants; only seeds of all variants."""
    values = [scores.values(student, variant.label, task) for variant in variants]
    common = [seed for seed in values[0] if all(seed in by_seed for by_seed in values)]
    return {seed: statistics.fmean(by_seed[seed] for by_seed in values) for seed in common}


def _findings(scores: ScoreTable) -> list[str]:
    names = {
        "hidden states help (figures 8 and 9)": PREDICTION,
        f"A^HSK = {COMPRESSED} is as good as all (table 2)": FULL,
    }

    def values(student: str, baseline: HSKVariant, task: str) -> tuple[Values, Values]:
        return _mean(scores, student, _FEW, task), scores.values(student, baseline.label, task)

    rows = [
        (name, student, finding(functools.partial(values, student, baseline), task_titles(TASKS)))
        for student in STUDENTS
        for name, baseline in names.items()
    ]
    return table(["Finding of the paper", "Student", "Difference"], rows)


def _joint(scores: ScoreTable) -> list[str]:
    """One seed: mean and standard deviation over the configurations, and the best one."""
    rows = []
    for amount, variants in JOINT.items():
        cells = []
        for task in SWEPT:
            values = _first(scores, PRUNED, variants, task)
            cells.append(cell(values, len(variants)) + (f", best {100 * max(values):.1f}" if values else ""))
        rows.append((PRUNED, str(amount), *cells))
    return table(["Joint compression (figures 8 and 9), student", "A^HSK", *scored_heads(SWEPT)], rows)


def _sweep(scores: ScoreTable, sweep: _Sweep) -> list[str]:
    """One seed, also where there are more."""
    rows = []
    for strategy, points in sweep.curves.items():
        for amount, variant in points.items():
            values = [next(iter(_first(scores, PRUNED, [variant], task)), None) for task in SWEPT]
            rows.append((PRUNED, strategy, amount, *map(percent, values)))
    return table([f"{sweep.title}, student", "Strategy", sweep.axis, *scored_heads(SWEPT)], rows)


def _separators(counts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Share of the dev examples with [SEP] among the teacher's most attended tokens, by layer."""
    rows = [
        (f"top {k}", GLUE[task].folder, *(f"{100 * count / counted['texts']:.1f} %" for count in layers))
        for task, counted in counts.items()
        for k, layers in counted["counts"].items()
    ]
    layers = [f">Layer {layer}" for layer in range(1, TEACHER_LAYERS + 1)]
    return table(["[SEP] among (figures 6 and 14)", "Task", *layers], rows)


def _first(scores: ScoreTable, student: str, variants: Sequence[HSKVariant], task: str) -> list[float]:
    """Scores of the variants with the first seed."""
    values = (scores.values(student, variant.label, task).get(str(SEEDS[0])) for variant in variants)
    return [value for value in values if value is not None]


def _draw_joint(content: results.ResultFile, path: Path) -> None:
    scores, panels = ScoreTable.of_main_metrics(content), []
    places = {"0": (PREDICTION,), **{str(amount): variants for amount, variants in JOINT.items()}, ALL: (FULL,)}
    for student, task in _panels(variant for variants in places.values() for variant in variants):
        values = [_first(scores, student, variants, task) for variants in places.values()]
        lines = {
            "mean, with standard deviation": [_point(scores_of_place) for scores_of_place in values],
            "best": [_point([max(scores_of_place)]) if scores_of_place else None for scores_of_place in values],
        }
        panels.append(Panel(title=_panel_title(student, task), places=list(places), lines=lines))
    draw_panels(path, f"A^HSK; 0: predictions only; all: L_top = {TEACHER_LAYERS}", panels)


def _draw_sweep(sweep: _Sweep, content: results.ResultFile, path: Path) -> None:
    scores, panels = ScoreTable.of_main_metrics(content), []
    places = list(next(iter(sweep.curves.values())))
    for student, task in _panels(variant for points in sweep.curves.values() for variant in points.values()):
        lines = {
            strategy: [_point(scores.values(student, variant.label, task).values()) for variant in points.values()]
            for strategy, points in sweep.curves.items()
        }
        panels.append(Panel(title=_panel_title(student, task), places=places, lines=lines))
    draw_panels(path, sweep.axis, panels)


PICTURES = (
    Picture(path="docs/results/hsk-joint.svg", result=RESULT, draw=_draw_joint),
    *(
        Picture(path=f"docs/results/hsk-{sweep.name}.svg", result=RESULT, draw=functools.partial(_draw_sweep, sweep))
        for sweep in _SWEEPS
    ),
)


def _panels(variants: Iterable[HSKVariant]) -> list[tuple[str, str]]:
    """Students and tasks that have all variants."""
    needed = list(variants)
    return [
        (student, task)
        for student in STUDENTS
        for task in TASKS
        if all(task in tasks_of(student, variant) for variant in needed)
    ]


def _point(values: Iterable[float]) -> Point | None:
    """Mean and standard deviation in percent; None without values."""
    scaled = [100 * value for value in values]
    return Point(statistics.fmean(scaled), statistics.stdev(scaled) if len(scaled) > 1 else 0.0) if scaled else None


def _panel_title(student: str, task: str) -> str:
    return f"{student}, {GLUE[task].folder} ({GLUE[task].main_metric})"
