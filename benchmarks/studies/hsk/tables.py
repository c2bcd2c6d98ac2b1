"""The accuracy tables and curves in docs/results/hsk.md, for `studies.tables`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pocketbert.data.glue import GLUE
from pocketbert.distillation.methods.hsk_knowledge import Knowledge
from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.experiment import MAJORITY, NOBODY
from studies.hsk.accuracy import separators
from studies.hsk.store_table import PAGE
from studies.hsk.variants import (
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
from studies.line_charts import Panel, Point, drawing
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING, Key, cell, difference, scores

BLOCK = MarkedBlock(
    path=PAGE,
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/hsk/accuracy.json",
)
Scores = Mapping[Key, Mapping[str, float]]
# Figure of the paper → name, axis, and curves.
SWEEP_FIGURES: tuple[tuple[str, str, dict[str, dict[str, HSKVariant]]], ...] = (
    ("Depth (figure 3)", "N_D", {f"L_top = {top}": points for top, points in DEPTH.items()}),
    ("Length (figures 4 and 5)", "N_L", LENGTH),
    ("Width (figure 7)", "N_W/d", WIDTH),
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = scores(each for each in content.accuracies if each.metric == GLUE[each.task].main_metric)
    lines = [*_table_2(found), "", *_findings(found), "", *_joint(found), ""]
    lines += ["<div>", _joint_curves(found), "</div>"]
    for title, axis, curves in SWEEP_FIGURES:
        lines += ["", *_sweep(found, title, axis, curves), ""]
        lines += ["<div>", _sweep_curves(found, title, axis, curves), "</div>"]
    lines += ["", *_separators(separators(content))]
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    return "\n".join([*lines, "", f"Dev examples: {counted}."]) + "\n"


def _of(found: Scores, student: str, variant: HSKVariant, task: str) -> Mapping[str, float]:
    """Seed → score."""
    return found.get((student, variant.label, task), {})


def _best(found: Scores, student: str, variants: Sequence[HSKVariant], task: str) -> HSKVariant | None:
    """The variant with the best mean over its seeds."""
    means = {v: statistics.fmean(s.values()) for v in variants if (s := _of(found, student, v, task))}
    return max(means, key=lambda variant: means[variant], default=None)


def _mean(found: Scores, student: str, variants: Sequence[HSKVariant], task: str) -> dict[str, float]:
    """Seed → mean over the variants; only seeds of all variants."""
    each = [_of(found, student, variant, task) for variant in variants]
    return {seed: statistics.fmean(s[seed] for s in each) for seed in each[0] if all(seed in s for s in each)}


def _table_2(found: Scores) -> list[str]:
    lines = _header(["Table 2, student", "Knowledge"], TASKS)
    for model, label in ((NOBODY, MAJORITY), (NETWORK, "teacher")):
        cells = [cell(found.get((model, label, task), {}).values(), 1) for task in TASKS]
        lines.append(f"| {model} | {label} | {' | '.join(cells)} |")
    variants = JOINT[COMPRESSED]
    for student in STUDENTS:
        for name, variant in (("predictions only", PREDICTION), (f"all, L_top = {TEACHER_LAYERS}", FULL)):
            cells = [cell(_of(found, student, variant, task).values(), len(SEEDS)) for task in TASKS]
            lines.append(f"| {student} | {name} | {' | '.join(cells)} |")
        cells = [cell(_mean(found, student, variants, task).values(), len(SEEDS)) for task in TASKS]
        lines.append(f"| {student} | A^HSK = {COMPRESSED}, mean | {' | '.join(cells)} |")
        cells = []
        for task in TASKS:
            best = _best(found, student, variants, task)
            text = NOTHING if best is None else cell(_of(found, student, best, task).values(), len(SEEDS))
            cells.append(text if best is None else f"{text} at {_knowledge(best)}")
        lines.append(f"| {student} | A^HSK = {COMPRESSED}, best | {' | '.join(cells)} |")
    return lines


def _findings(found: Scores) -> list[str]:
    lines = ["| Finding of the paper | Student | Difference |", "|---|---|---|"]
    few = JOINT[COMPRESSED]
    for student in STUDENTS:
        parts: dict[str, list[str]] = {
            "hidden states help (figures 8 and 9)": [],
            f"A^HSK = {COMPRESSED} is as good as all (table 2)": [],
        }
        for task in TASKS:
            ours = _mean(found, student, few, task)
            for finding, baseline in zip(parts, (PREDICTION, FULL), strict=True):
                if change := difference(ours, _of(found, student, baseline, task)):
                    parts[finding].append(f"{GLUE[task].folder} {change}")
        lines += [f"| {name} | {student} | {', '.join(each) or 'not measured'} |" for name, each in parts.items()]
    return lines


def _joint(found: Scores) -> list[str]:
    """One seed: mean and standard deviation over the configurations, and the best one."""
    lines = _header(["Joint compression (figures 8 and 9), student", "A^HSK"], SWEPT)
    for amount, variants in JOINT.items():
        cells = []
        for task in SWEPT:
            values = _first(found, PRUNED, variants, task)
            best = f", best {100 * max(values):.1f}" if values else ""
            cells.append(cell(values, len(variants)) + best)
        lines.append(f"| {PRUNED} | {amount} | {' | '.join(cells)} |")
    return lines


def _sweep(found: Scores, title: str, axis: str, curves: Mapping[str, Mapping[str, HSKVariant]]) -> list[str]:
    """One seed, also where there are more."""
    lines = _header([f"{title}, student", "Strategy", axis], SWEPT)
    for strategy, points in curves.items():
        for amount, variant in points.items():
            values = [_first(found, PRUNED, [variant], task) for task in SWEPT]
            cells = [f"{100 * each[0]:.1f}" if each else NOTHING for each in values]
            lines.append(f"| {PRUNED} | {strategy} | {amount} | {' | '.join(cells)} |")
    return lines


def _separators(counted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Share of the dev examples with [SEP] among the teacher's most attended tokens, by layer."""
    layers = range(1, TEACHER_LAYERS + 1)
    lines = [f"| [SEP] among (figures 6 and 14) | Task | {' | '.join(f'Layer {layer}' for layer in layers)} |"]
    lines.append("|---|---|" + "---:|" * TEACHER_LAYERS)
    for task, found in counted.items():
        for k, counts in found["counts"].items():
            cells = [f"{100 * count / found['texts']:.1f} %" for count in counts]
            lines.append(f"| top {k} | {GLUE[task].folder} | {' | '.join(cells)} |")
    return lines


def _joint_curves(found: Scores) -> str:
    places = {"0": (PREDICTION,), **{str(amount): each for amount, each in JOINT.items()}, ALL: (FULL,)}
    panels = []
    for student in STUDENTS:
        for task in TASKS:
            if not all(task in tasks_of(student, variant) for variants in places.values() for variant in variants):
                continue
            values = [_first(found, student, variants, task) for variants in places.values()]
            best = [max(each) if each else None for each in values]
            lines = {
                "mean, with standard deviation": [_point(each) for each in values],
                "best": [None if value is None else _point([value]) for value in best],
            }
            panels.append(Panel(title=_panel_title(student, task), places=list(places), lines=lines))
    axis = f"A^HSK; 0: predictions only; all: L_top = {TEACHER_LAYERS}"
    return drawing("Scores by the amount of knowledge, joint compression", axis, panels, len(TASKS))


def _sweep_curves(found: Scores, title: str, axis: str, curves: Mapping[str, Mapping[str, HSKVariant]]) -> str:
    panels = []
    places = list(next(iter(curves.values())))
    for student in STUDENTS:
        for task in TASKS:
            if all(task in tasks_of(student, variant) for points in curves.values() for variant in points.values()):
                lines = {
                    strategy: [_point(_of(found, student, variant, task).values()) for variant in points.values()]
                    for strategy, points in curves.items()
                }
                panels.append(Panel(title=_panel_title(student, task), places=places, lines=lines))
    return drawing(f"{title}: scores by amount", axis, panels, len(TASKS))


def _first(found: Scores, student: str, variants: Sequence[HSKVariant], task: str) -> list[float]:
    """Scores of the variants with the first seed."""
    each = (_of(found, student, variant, task).get(str(SEEDS[0])) for variant in variants)
    return [value for value in each if value is not None]


def _point(values: Iterable[float]) -> Point | None:
    """Mean and standard deviation in percent; None without values."""
    given = [100 * value for value in values]
    if not given:
        return None
    mean, spread = statistics.fmean(given), statistics.stdev(given) if len(given) > 1 else 0.0
    return Point(mean, mean - spread, mean + spread)


def _knowledge(variant: HSKVariant) -> str:
    """N_D,N_L,N_W/d of a variant with hidden states."""
    assert variant.knowledge is not None
    return str(Knowledge.parse(variant.knowledge))


def _panel_title(student: str, task: str) -> str:
    return f"{student}, {GLUE[task].folder} ({GLUE[task].main_metric})"


def _header(heads: Sequence[str], tasks: Sequence[str]) -> list[str]:
    scored = [f"{GLUE[task].folder} ({GLUE[task].main_metric})" for task in tasks]
    return [f"| {' | '.join([*heads, *scored])} |", "|---" * len(heads) + "|" + "---:|" * len(tasks)]
