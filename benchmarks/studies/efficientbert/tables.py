"""The tables in docs/results/efficientbert.md, for `studies.tables`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.efficientbert.accuracy import STUDENT_TASKS, searched
from studies.efficientbert.networks import (
    BERT_PLAIN,
    BERT_SEARCHED,
    COLD,
    ENDS,
    EQUAL_LATENCY,
    FOUND,
    HAND_DESIGNED,
    LATENCY,
    NETWORKS,
    OTHER_TASKS,
    PLUS,
    QUESTIONS,
    SEARCHED,
    SEARCHES,
    SEEDS,
    SHAPE,
    STACKED,
    SURFACES,
    TASKS,
    THREE_STAGES,
    WINNERS,
    Network,
    search_name,
    tasks_of,
    text_name,
)
from studies.experiment import MAJORITY, NOBODY
from studies.line_charts import Panel, Point, drawing
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING, Key, cell, difference, scores

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "efficientbert.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/efficientbert/accuracy.json",
)
ONCE = ((NOBODY, MAJORITY), (NETWORK, "teacher"))
MAIN_METRICS = {task: GLUE[task].main_metric for task in TASKS} | {QUESTIONS: "f1"}
# The paper's findings and ours; the first network must be better to confirm.
FINDINGS: dict[str, tuple[Network, Network]] = {
    "stage 1 beats the base (table 5)": (WINNERS[1], HAND_DESIGNED),
    "stage 2 beats stage 1 (table 5)": (WINNERS[2], WINNERS[1]),
    "stage 3 beats stage 2 (table 5)": (WINNERS[3], WINNERS[2]),
    "stage 3 beats the base, as many weights": (WINNERS[3], HAND_DESIGNED),
    "three stages beat one (table 6)": (WINNERS[3], FOUND["one stage"]),
    "LaNAS beats random candidates": (FOUND["one stage"], FOUND["one stage, random"]),
    "LaNAS beats evolution": (FOUND["one stage"], FOUND["one stage, evolution"]),
    "the supernet's weights help (table 2)": (WINNERS[3], COLD),
    "weights of all tasks help (table 2, +)": (PLUS, WINNERS[3]),
    "the search beats stacks designed by hand": (WINNERS[3], STACKED),
    "the search beats a base that is as slow": (COLD, EQUAL_LATENCY),
    "stage 3's networks improve BERT's layers (table 7)": (BERT_SEARCHED, BERT_PLAIN),
}


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = scores(each for each in content.accuracies if each.metric == MAIN_METRICS[each.task])
    exact = scores(each for each in content.accuracies if each.metric == "exact_match")
    kept = searched(content)
    lines = [*_networks(found, kept), *_by_latency(found, kept), *_searches(kept), *_ranking(kept), *_warm_up(kept)]
    lines += [*_questions(found, exact), *_surfaces(kept), *_findings(found)]
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{_title(task)} {examples[task]:,}" for task in STUDENT_TASKS if task in examples)
    return "\n".join([*lines, "", f"Dev examples: {counted}."]) + "\n"


def _networks(found: Mapping[Key, Mapping[str, float]], kept: Mapping[str, Any]) -> list[str]:
    lines = _header(["Network", "Weights", "ms"], [f"{_title(task)} ({MAIN_METRICS[task]})" for task in TASKS])
    networks = {network.label: network for network in NETWORKS}
    for model, label in (*ONCE, *((SHAPE, label) for label in networks)):
        cells = []
        for task in TASKS:
            seeds = sum(task in tasks_of(networks[label], seed) for seed in SEEDS) if label in networks else 1
            cells.append(cell(found.get((model, label, task), {}).values(), seeds))
        weights = _text(networks[label], kept).get("parameters") if label in networks else None
        milliseconds = kept.get(LATENCY, {}).get("ms", {}).get(label)
        shown = [NOTHING if weights is None else f"{weights:,.0f}"]
        shown.append(NOTHING if milliseconds is None else f"{milliseconds:.2f}")
        lines.append(f"| {label} | {' | '.join([*shown, *cells])} |")
    if size := kept.get(LATENCY, {}).get("inner size"):
        lines += ["", f"The base that is as slow as stage 3 has an inner width of {size}."]
    lines += ["", "| Network | Expression per layer |", "|---|---|"]
    for network in NETWORKS:
        if genotype := _text(network, kept).get("genotype"):
            lines.append(f"| {network.label} | {'<br>'.join(f'`{each}`' for each in genotype)} |")
    return lines


def _by_latency(found: Mapping[Key, Mapping[str, float]], kept: Mapping[str, Any]) -> list[str]:
    """Figure 1: the networks from fast to slow."""
    names = " and ".join(_title(task) for task in OTHER_TASKS)
    lines = ["", f"| Network (figure 1) | ms | Mean of {names}, seed {SEEDS[0]} |", "|---|---:|---:|"]
    for label, milliseconds in sorted(kept.get(LATENCY, {}).get("ms", {}).items(), key=lambda each: each[1]):
        values = [found.get((SHAPE, label, task), {}).get(str(SEEDS[0])) for task in OTHER_TASKS]
        known = [value for value in values if value is not None]
        if len(known) == len(OTHER_TASKS):
            lines.append(f"| {label} | {milliseconds:.2f} | {100 * statistics.fmean(known):.1f} |")
    return lines if len(lines) > 3 else []


def _searches(kept: Mapping[str, Any]) -> list[str]:
    lines = ["", f"| Search on {_title(SEARCHED)} (table 6) | Stage | Candidates | Best score | Median score |"]
    lines.append("|---|---:|---:|---:|---:|")
    for variant in SEARCHES:
        for stage, values in kept.get(search_name(variant), {}).get("scores", {}).items():
            known = [100 * value for value in values if value is not None]
            best, median = max(known), statistics.median(known)
            lines.append(f"| {variant.label} | {stage} | {len(known)} | {best:.1f} | {median:.1f} |")
    return lines


def _ranking(kept: Mapping[str, Any]) -> list[str]:
    search = kept.get(search_name(THREE_STAGES))
    if search is None:
        return []
    pairs = ", ".join(f"{100 * each['score']:.1f} → {100 * each['retrained']:.1f}" for each in search["retrained"])
    tau = search["kendall_tau"]
    shown = "not defined" if tau is None else f"{tau:.2f}"
    return ["", f"Stage 3, score in the search → after {len(search['retrained'])} second trainings: {pairs}.", ""] + [
        f"Kendall's tau of both scores (figure 3): {shown}."
    ]


def _warm_up(kept: Mapping[str, Any]) -> list[str]:
    """Figure 4: losses on text with the supernet's weights, and with random ones."""
    losses = {
        name: _text(network, kept).get("losses", [])
        for name, network in (("supernet's weights", WINNERS[3]), ("random weights", COLD))
    }
    if not all(losses.values()):
        return []
    steps = [step for step, _ in losses["random weights"]]
    lines = {name: [Point(loss, loss, loss) for _, loss in each] for name, each in losses.items()}
    panel = Panel(title="Loss of stage 3's network on text (figure 4)", places=list(map(str, steps)), lines=lines)
    reached = ", ".join(f"{each[-1][1]:.2f} with {name}" for name, each in losses.items())
    return ["", "<div>", drawing("Loss by step", "step", [panel]), "</div>", "", f"Loss at the end: {reached}."]


def _questions(found: Mapping[Key, Mapping[str, float]], exact: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = ["", f"| {_title(QUESTIONS)} (table 4) | exact_match | f1 |", "|---|---:|---:|"]
    for model, label in (ONCE[1], *((SHAPE, network.label) for network in ENDS)):
        cells = [cell(each.get((model, label, QUESTIONS), {}).values(), 1) for each in (exact, found)]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _surfaces(kept: Mapping[str, Any]) -> list[str]:
    """Figure 5 along the diagonal."""
    if not (curves := kept.get(SURFACES)):
        return []
    count = len(next(iter(curves.values()))["diagonal"])
    # The ends and the middle of -15 to 5.
    places = ["-15" if n == 0 else "5" if n == count - 1 else "-5" if 2 * n == count - 1 else "" for n in range(count)]
    panels = [
        Panel(
            title=label,
            places=places,
            lines={"mean output": [Point(value, value, value) for value in each["diagonal"]]},
        )
        for label, each in curves.items()
    ]
    shares = ", ".join(f"{label} {100 * each['curved share']:.1f} %" for label, each in curves.items())
    return [
        "",
        "<div>",
        drawing("Output by input", "both features", panels),
        "</div>",
        "",
        f"Variance of the surface that no plane explains (figure 5): {shares}.",
    ]


def _findings(found: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = ["", "| Finding | Difference |", "|---|---|"]
    for finding, networks in FINDINGS.items():
        differences = []
        for task in STUDENT_TASKS:
            if change := difference(*(found.get((SHAPE, network.label, task), {}) for network in networks)):
                differences.append(f"{_title(task)} {change}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    return lines


def _text(network: Network, kept: Mapping[str, Any]) -> Mapping[str, Any]:
    """Result of a network's distillation on text; without it, that of the network with the same architecture."""
    return kept.get(text_name(WINNERS[3] if network.start == "tasks" else network), {})


def _title(task: str) -> str:
    return GLUE[task].folder if task in GLUE else "SQuAD 1.1"


def _header(heads: Sequence[str], scored: Sequence[str]) -> list[str]:
    return [f"| {' | '.join([*heads, *scored])} |", "|---|---:|" + "---:|" * len(scored)]
