"""Tables and curves of EfficientBERT's sweep."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.data.readers.glue import GLUE
from pocketbert_bench import results
from studies.sweep import noted
from studies.tables import efficientbert_networks as networks
from studies.tables.charts import Panel, Picture, Point, draw_panels
from studies.tables.efficientbert_networks import SEEDS, SHAPE, WINNERS, Network, search_name, text_name
from studies.tables.render import NOTHING, ScoreTable, cell, counted_examples, page, table
from studies.tables.sweeps import ONCE, findings_table

RESULT = "efficientbert/accuracy"
# Prefix of the note with the results of searches, text, latency and surfaces.
_SEARCHES_NOTE = "searches"
_TITLES = {task: GLUE[task].folder if task in GLUE else "SQuAD 1.1" for task in (*networks.TASKS, networks.QUESTIONS)}
_METRICS = {task: GLUE[task].main_metric for task in networks.TASKS} | {networks.QUESTIONS: "f1"}
# The paper's findings and ours; the first network must be better to confirm.
_FINDINGS: dict[str, tuple[Network, Network]] = {
    "stage 1 beats the base (table 5)": (WINNERS[1], networks.HAND_DESIGNED),
    "stage 2 beats stage 1 (table 5)": (WINNERS[2], WINNERS[1]),
    "stage 3 beats stage 2 (table 5)": (WINNERS[3], WINNERS[2]),
    "stage 3 beats the base, as many weights": (WINNERS[3], networks.HAND_DESIGNED),
    "three stages beat one (table 6)": (WINNERS[3], networks.FOUND["one stage"]),
    "LaNAS beats random candidates": (networks.FOUND["one stage"], networks.FOUND["one stage, random"]),
    "LaNAS beats evolution": (networks.FOUND["one stage"], networks.FOUND["one stage, evolution"]),
    "the supernet's weights help (table 2)": (WINNERS[3], networks.COLD),
    "weights of all tasks help (table 2, +)": (networks.PLUS, WINNERS[3]),
    "the search beats stacks designed by hand": (WINNERS[3], networks.STACKED),
    "the search beats a base that is as slow": (networks.COLD, networks.EQUAL_LATENCY),
    "stage 3's networks improve BERT's layers (table 7)": (networks.BERT_SEARCHED, networks.BERT_PLAIN),
}
# Figure 4: name of a line → network.
_STARTS = {"supernet's weights": WINNERS[3], "random weights": networks.COLD}
# Jobs of the sweep other than scores → their results.
Searched = Mapping[str, Any]


def text(content: results.ResultFile) -> str:
    """Networks, searches, curves, questions and findings."""
    scores = ScoreTable(record for record in content.accuracies if record.metric == _METRICS[record.task])
    measured = noted(content, _SEARCHES_NOTE)
    findings = {name: (first.label, second.label) for name, (first, second) in _FINDINGS.items()}
    return page(
        *_networks(scores, measured),
        _by_latency(scores, measured),
        _searches(measured),
        *_ranking(measured),
        *_warm_up(measured),
        _questions(ScoreTable(content.accuracies)),
        *_surfaces(measured),
        findings_table(["Finding", "Difference"], findings, SHAPE, _TITLES, scores),
        [counted_examples(content, _TITLES)],
    )


def _networks(scores: ScoreTable, measured: Searched) -> list[list[str]]:
    labels = {network.label: network for network in networks.NETWORKS}
    rows = []
    for model, label in (*ONCE, *((SHAPE, label) for label in labels)):
        network = labels.get(label)
        weights = _text(network, measured).get("parameters") if network else None
        milliseconds = measured.get(networks.LATENCY, {}).get("ms", {}).get(label)
        cells = [label, NOTHING if weights is None else f"{weights:,.0f}"]
        cells.append(NOTHING if milliseconds is None else f"{milliseconds:.2f}")
        for task in networks.TASKS:
            seeds = sum(task in networks.tasks_of(network, seed) for seed in SEEDS) if network else 1
            cells.append(cell(scores.values(model, label, task).values(), seeds))
        rows.append(cells)
    parts = [
        table(
            ["Network", ">Weights", ">ms", *(f">{_TITLES[task]} ({_METRICS[task]})" for task in networks.TASKS)], rows
        )
    ]
    if size := measured.get(networks.LATENCY, {}).get("inner size"):
        parts.append([f"The base that is as slow as stage 3 has an inner width of {size}."])
    expressions = {network.label: _text(network, measured).get("genotype") for network in networks.NETWORKS}
    layers = [
        (label, "<br>".join(f"`{layer}`" for layer in genotype)) for label, genotype in expressions.items() if genotype
    ]
    return [*parts, table(["Network", "Expression per layer"], layers)]


def _by_latency(scores: ScoreTable, measured: Searched) -> list[str]:
    """Figure 1: the networks from fast to slow."""
    rows = []
    for label, milliseconds in sorted(
        measured.get(networks.LATENCY, {}).get("ms", {}).items(), key=lambda pair: pair[1]
    ):
        values = [scores.values(SHAPE, label, task).get(str(SEEDS[0])) for task in networks.OTHER_TASKS]
        numbers = [value for value in values if value is not None]
        if len(numbers) == len(networks.OTHER_TASKS):
            rows.append((label, f"{milliseconds:.2f}", f"{100 * statistics.fmean(numbers):.1f}"))
    names = " and ".join(_TITLES[task] for task in networks.OTHER_TASKS)
    return table(["Network (figure 1)", ">ms", f">Mean of {names}, seed {SEEDS[0]}"], rows) if rows else []


def _searches(measured: Searched) -> list[str]:
    rows = []
    for label in networks.SEARCHES:
        for stage, values in measured.get(search_name(label), {}).get("scores", {}).items():
            numbers = [100 * value for value in values if value is not None]
            cells = (label, stage, str(len(numbers)), f"{max(numbers):.1f}", f"{statistics.median(numbers):.1f}")
            rows.append(cells)
    first = f"Search on {_TITLES[networks.SEARCHED]} (table 6)"
    return table([first, ">Stage", ">Candidates", ">Best score", ">Median score"], rows)


def _ranking(measured: Searched) -> list[list[str]]:
    search = measured.get(search_name(networks.THREE_STAGES))
    if search is None:
        return []
    again = search["retrained"]
    pairs = ", ".join(f"{100 * candidate['score']:.1f} → {100 * candidate['retrained']:.1f}" for candidate in again)
    tau = "not defined" if search["kendall_tau"] is None else f"{search['kendall_tau']:.2f}"
    return [
        [f"Stage 3, score in the search → after {len(again)} second trainings: {pairs}."],
        [f"Kendall's tau of both scores (figure 3): {tau}."],
    ]


def _warm_up(measured: Searched) -> list[list[str]]:
    """Figure 4: losses on text with the supernet's weights, and with random ones."""
    losses = {name: _text(network, measured).get("losses", []) for name, network in _STARTS.items()}
    if not all(losses.values()):
        return []
    reached = ", ".join(f"{points[-1][1]:.2f} with {name}" for name, points in losses.items())
    return [
        ["![Loss of stage 3's network on text by step](efficientbert-losses.svg)"],
        [f"Loss at the end: {reached}."],
    ]


def _draw_losses(content: results.ResultFile, path: Path) -> None:
    measured = noted(content, _SEARCHES_NOTE)
    losses = {name: _text(network, measured)["losses"] for name, network in _STARTS.items()}
    steps = [str(step) for step, _ in losses["random weights"]]
    lines = {name: [Point(loss) for _, loss in points] for name, points in losses.items()}
    title = "Loss of stage 3's network on text (figure 4)"
    draw_panels(path, "step", [Panel(title=title, places=steps, lines=lines)], width=4.2)


def _questions(scores: ScoreTable) -> list[str]:
    rows = []
    for model, label in (ONCE[1], *((SHAPE, network.label) for network in networks.ENDS)):
        values = [scores.values(model, label, networks.QUESTIONS, metric).values() for metric in ("exact_match", "f1")]
        rows.append((label, *(cell(seeds, 1) for seeds in values)))
    return table([f"{_TITLES[networks.QUESTIONS]} (table 4)", ">exact_match", ">f1"], rows)


def _surfaces(measured: Searched) -> list[list[str]]:
    """Figure 5 along the diagonal."""
    if not (curves := measured.get(networks.SURFACES)):
        return []
    shares = ", ".join(f"{label} {100 * curve['curved share']:.1f} %" for label, curve in curves.items())
    return [
        ["![Mean output by two equal features](efficientbert-surfaces.svg)"],
        [f"Variance of the surface that no plane explains (figure 5): {shares}."],
    ]


def _draw_surfaces(content: results.ResultFile, path: Path) -> None:
    curves = noted(content, _SEARCHES_NOTE)[networks.SURFACES]
    count = len(next(iter(curves.values()))["diagonal"])
    # The ends and the middle of -15 to 5.
    places = {0: "-15", (count - 1) // 2: "-5", count - 1: "5"}
    names = [places.get(number, "") for number in range(count)]
    panels = [
        Panel(title=label, places=names, lines={"mean output": [Point(value) for value in curve["diagonal"]]})
        for label, curve in curves.items()
    ]
    draw_panels(path, "both features", panels)


PICTURES = (
    Picture(path="docs/results/efficientbert-losses.svg", result=RESULT, draw=_draw_losses),
    Picture(path="docs/results/efficientbert-surfaces.svg", result=RESULT, draw=_draw_surfaces),
)


def _text(network: Network, measured: Searched) -> Mapping[str, Any]:
    """Result of a network's distillation on text; without it, that of the network with the same architecture."""
    return measured.get(text_name(network if network.learns_text else WINNERS[3]), {})
