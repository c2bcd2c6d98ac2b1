"""The tables of HSK's store in docs/results/hsk.md, for `studies.tables`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pocketbert_bench import results
from pocketbert_bench.statistics import pair_ratios
from studies.hsk.store import DTYPES, FORMATS, GIB, PAPER, TABLE_3
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "hsk.md"
BLOCK = MarkedBlock(
    path=PAGE,
    name="STORE",
    origin="python -m studies.tables from benchmarks/studies/results/hsk/store.json",
)


def table(content: results.ResultFile) -> str:
    """Writes the text between the page's marks."""
    found = {each.name: each for each in content.ratios}
    lines = ["| MNLI, values | Masks | Size | Target | Share of the paper's format |", "|---|---|---:|---:|---:|"]
    for dtype, masks, limit in FORMATS:
        planned = found[f"MNLI, {dtype}, {masks}"]
        target = NOTHING if limit is None else f"≤ {limit:g} GiB"
        size = f"{_gib(planned.ours_samples)} GiB"
        lines.append(f"| {dtype} | {masks} | {size} | {target} | {100 * planned.value:.1f} % |")
    paper = next(each for each in content.ratios if each.peer == PAPER)
    lines += [f"| float32 | bytes ({PAPER}) | {_gib(paper.peer_samples)} GiB | {NOTHING} | 100 % |", ""]
    lines += ["| N_D,N_L,N_W/d | Values, ours / paper | Masks, ours / paper |", "|---|---:|---:|"]
    for knowledge, printed in TABLE_3.items():
        cells = []
        for part, theirs in zip(("values", "masks"), printed, strict=True):
            ours = found.get(f"table 3, {knowledge}, {part}")
            cells.append(f"{_gib(ours.ours_samples)} / {theirs:g} GiB" if ours else NOTHING)
        lines.append(f"| {knowledge} | {' | '.join(cells)} |")
    lines += ["", "| Student | Store | Mean difference from the live loss | Largest |", "|---|---|---:|---:|"]
    for each in content.ratios:
        name, *rest = each.name.split(", ")
        if name == "hidden loss" and rest[0] in DTYPES:
            off = np.abs(pair_ratios(each.ours_samples, each.peer_samples) - 1)
            lines.append(f"| {rest[1]} | {rest[0]} | {100 * off.mean():.4f} % | {100 * off.max():.4f} % |")
    written = next(each for each in content.ratios if each.ours == "on disk")
    lines += [
        "",
        f"SST-2's store, {written.description.partition('store of ')[2]}: planned "
        f"{written.peer_samples[0]:,.0f} bytes, on disk {written.ours_samples[0]:,.0f} bytes.",
        "",
        *(f"- {note}." for note in content.notes),
    ]
    return "\n".join(lines) + "\n"


def _gib(samples: tuple[float, ...]) -> str:
    return f"{samples[0] / GIB:,.3g}" if samples[0] < 100 * GIB else f"{samples[0] / GIB:,.0f}"
