"""The table in docs/results/qat.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

from pocketbert_bench import results
from pocketbert_bench.quickstart_training import NETWORK
from studies.marked_block import MarkedBlock
from studies.score_cells import Values, cell, difference, scores
from studies.tasks.qat import (
    CALIBRATED,
    FLOAT,
    FULL,
    GPTQ,
    INT4,
    LONGER,
    NEAREST,
    PLAIN,
    SEEDS,
    TASK,
    VARIANTS,
    label_of,
)

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "qat.md",
    name="TABLE",
    origin="python -m studies.tables from benchmarks/studies/results/tasks/qat.json",
)
_TRAINED = {PLAIN: "–", LONGER: "– (one more epoch)"}
_COMPARED = ((FULL, CALIBRATED), (INT4, NEAREST), (INT4, GPTQ))


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = {
        metric: scores(each for each in content.accuracies if each.metric == metric)
        for metric in ("accuracy", "logit_rms", "equal_labels")
    }

    def values(metric: str, variant: tuple[str, str, str]) -> Values:
        return found[metric].get((NETWORK, label_of(variant), TASK), {})

    start = values("accuracy", (PLAIN, FLOAT, ""))
    lines = [
        "| Trained with `--qat` | File | Accuracy, % | Points lost | RMS difference | Equal labels, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for variant in VARIANTS:
        weights, recipe, way = variant
        file = "float32" if recipe == FLOAT else f"`{recipe}`, {way}"
        accuracy = values("accuracy", variant)
        differences = (
            [cell(values("logit_rms", variant).values(), len(SEEDS), unit=1, digits=".3f")]
            + [cell(values("equal_labels", variant).values(), len(SEEDS))]
            if recipe != FLOAT
            else ["–", "–"]
        )
        lost = "–" if variant == VARIANTS[0] else difference(start, accuracy)
        lines.append(
            f"| {_TRAINED.get(weights, f'`{weights}`')} | {file} | {cell(accuracy.values(), len(SEEDS))} "
            f"| {lost or '–'} | {' | '.join(differences)} |"
        )
    lines += [
        "",
        "Share of the loss that training recovers, over all seeds. The last column compares with the control:",
        "",
    ]
    lines += ["| File | Points lost | RMS difference | Different labels | Points lost against the control |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for recipe, way in _COMPARED:
        losses = [
            [
                {seed: start[seed] - value for seed, value in values("accuracy", each).items() if seed in start},
                values("logit_rms", each),
                {seed: 1 - value for seed, value in values("equal_labels", each).items()},
            ]
            for each in ((PLAIN, recipe, way), (recipe, recipe, way))
        ]
        cells = [_recovered(before, after) for before, after in zip(*losses, strict=True)]
        more = difference(values("accuracy", (LONGER, recipe, way)), values("accuracy", (recipe, recipe, way)))
        lines.append(f"| `{recipe}`, {way} | {' | '.join([*cells, more or '–'])} |")
    lines += ["", f"Measured on {content.accuracies[0].examples} sentences: SST-2's dev set."]
    return "\n".join(lines) + "\n"


def _recovered(before: Values, after: Values) -> str:
    """Formats 1 - after ÷ before over the common seeds; "–" if nothing was lost before."""
    seeds = before.keys() & after.keys()
    lost, left = (sum(values[seed] for seed in seeds) for values in (before, after))
    # Less than one answer of all.
    return f"{round(100 * (1 - left / lost))} %" if lost > 1e-3 else "–"
