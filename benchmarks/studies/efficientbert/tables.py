"""The tables in docs/results/efficientbert.md, for `studies.tables`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pocketbert.data.glue import GLUE
from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.efficientbert.accuracy import (
    COLD,
    FOUND,
    HAND_DESIGNED,
    MAIN,
    OTHERS,
    SEARCHED,
    SEARCHES,
    SEEDS,
    SHAPE,
    STACKED,
    TASKS,
    THREE_STAGES,
    WINNERS,
    Network,
    searched,
)
from studies.experiment import MAJORITY, NOBODY, folder_name
from studies.marked_block import MarkedBlock
from studies.score_cells import Key, cell, difference, scores

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "efficientbert.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/efficientbert/accuracy.json",
)
ONCE = ((NOBODY, MAJORITY), (NETWORK, "teacher"))
# The paper's findings; the first network must be better to confirm.
FINDINGS: dict[str, tuple[Network, Network]] = {
    "stage 1 beats the base (table 5)": (WINNERS[1], HAND_DESIGNED),
    "stage 2 beats stage 1 (table 5)": (WINNERS[2], WINNERS[1]),
    "stage 3 beats stage 2 (table 5)": (WINNERS[3], WINNERS[2]),
    "three stages beat one (table 6)": (WINNERS[3], FOUND["one stage"]),
    "the search beats random candidates": (FOUND["one stage"], FOUND["one stage, random"]),
    "the supernet's weights help (table 2)": (WINNERS[3], COLD),
    "the search beats stacks designed by hand": (WINNERS[3], STACKED),
}


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = scores(each for each in content.accuracies if each.metric == GLUE[each.task].main_metric)
    kept = searched(content)
    lines = [*_networks(found, kept), *_searches(kept), *_ranking(kept), *_findings(found)]
    examples = {each.task: each.examples for each in content.accuracies}
    counted = ", ".join(f"{GLUE[task].folder} {examples[task]:,}" for task in TASKS if task in examples)
    return "\n".join([*lines, "", f"Dev examples: {counted}."]) + "\n"


def _networks(found: Mapping[Key, Mapping[str, float]], kept: Mapping[str, Any]) -> list[str]:
    lines = _header(["Network", "Weights"], [f"{GLUE[task].folder} ({GLUE[task].main_metric})" for task in TASKS])
    rows = [*ONCE, *((SHAPE, network.label) for network in (*MAIN, *OTHERS))]
    main = [network.label for network in MAIN]
    for model, label in rows:
        seeds = len(SEEDS) if label in main else 1
        cells = [cell(found.get((model, label, task), {}).values(), seeds) for task in TASKS]
        weights = kept.get(f"text/{folder_name(label)}", {}).get("parameters")
        lines.append(f"| {label} | {'–' if weights is None else f'{weights:,.0f}'} | {' | '.join(cells)} |")
    lines += ["", "| Network | Expression per layer |", "|---|---|"]
    for network in (*MAIN, *OTHERS):
        if text := kept.get(f"text/{folder_name(network.label)}"):
            lines.append(f"| {network.label} | {'<br>'.join(f'`{each}`' for each in text['genotype'])} |")
    return lines


def _searches(kept: Mapping[str, Any]) -> list[str]:
    lines = ["", f"| Search on {GLUE[SEARCHED].folder} | Stage | Candidates | Best score | Median score |"]
    lines.append("|---|---:|---:|---:|---:|")
    for variant in SEARCHES:
        for stage, values in kept.get(f"search/{folder_name(variant.label)}", {}).get("scores", {}).items():
            known = [100 * value for value in values if value is not None]
            best, median = max(known), statistics.median(known)
            lines.append(f"| {variant.label} | {stage} | {len(known)} | {best:.1f} | {median:.1f} |")
    return lines


def _ranking(kept: Mapping[str, Any]) -> list[str]:
    search = kept.get(f"search/{folder_name(THREE_STAGES.label)}")
    if search is None:
        return []
    pairs = ", ".join(f"{100 * each['score']:.1f} → {100 * each['retrained']:.1f}" for each in search["retrained"])
    tau = search["kendall_tau"]
    shown = "not defined" if tau is None else f"{tau:.2f}"
    return ["", f"Stage 3, score in the search → after {len(search['retrained'])} second trainings: {pairs}.", ""] + [
        f"Kendall's rank correlation (figure 3): {shown}."
    ]


def _findings(found: Mapping[Key, Mapping[str, float]]) -> list[str]:
    lines = ["", "| Finding of the paper | Difference |", "|---|---|"]
    for finding, networks in FINDINGS.items():
        differences = []
        for task in TASKS:
            if change := difference(*(found.get((SHAPE, network.label, task), {}) for network in networks)):
                differences.append(f"{GLUE[task].folder} {change}")
        lines.append(f"| {finding} | {', '.join(differences) or 'not measured'} |")
    return lines


def _header(heads: Sequence[str], scored: Sequence[str]) -> list[str]:
    return [f"| {' | '.join([*heads, *scored])} |", "|---|---:|" + "---:|" * len(scored)]
