"""Report: one self-contained HTML page, with its plots as PNG files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert import files
from pocketbert import output_folders as outputs
from pocketbert.errors import UserError
from pocketbert.report import render
from pocketbert.report.outcome import view
from pocketbert_bench import bundle_outcomes, charts, comparison, paper_figures, results, side_by_side
from pocketbert_bench.baselines import TFLITE_CONVERTER
from pocketbert_bench.comparison import Row
from pocketbert_bench.formats import FILTERS, ms, times
from pocketbert_bench.results import ResultFile
from pocketbert_bench.side_by_side import Pair

KIND, PAGE = "report", "report.html"
SHOWN_DISAGREEMENTS = 12
CAPTIONS = {
    "accuracy_latency": (
        "Accuracy and latency",
        "Better is up and to the left. Labels are sequence lengths in tokens.",
    ),
    "latency": (
        "Latency by length",
        "Median latency, batch size 1. Pale bars: the export pads to its next length.",
    ),
    "size": ("Size", "Size of the model file."),
    "distribution": (
        "Latency distribution",
        "Labels: export · tokens · threads. Line: median. Box: 25th to 75th percentile. Whiskers: 1st to 99th.",
    ),
}


@dataclass(frozen=True)
class Search:
    """A search with sentence embeddings.

    Attributes:
      query: the text.
      hits: nearest texts with their cosines, nearest first.
    """

    query: str
    hits: tuple[tuple[str, float], ...]


def build_report(
    runs: Sequence[ResultFile],
    output: Path,
    *,
    verification: Mapping[str, Mapping[str, Any]] | None = None,
    cards: Mapping[str, Path] | None = None,
    pair: Pair | None = None,
    searches: Sequence[Search] = (),
    title: str = "PocketBERT report",
    summary: str = "",
    overwrite: bool = False,
    group: outputs.Together | None = None,
) -> Path:
    """Writes `report.html` and the plots as PNG files into a new folder; returns the page's path.

    Args:
      runs: contents of result files.
      output: output folder.
      verification: an export's label → its `verification.json`.
      cards: an export's label → its model card, shown on the page and offered as a file; missing files are left out.
      pair: a student and its teacher to compare; the teacher's export is the student's reference.
      searches: queries with their nearest texts, to show.
      title: the page's heading.
      summary: the page's first paragraph.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Raises:
      UserError: there is nothing to show, or `output` exists.
    """
    if emulated := [run.title for run in runs if run.measured_on == "qemu"]:
        raise UserError(
            f"a report shows latencies of devices and hosts; received {emulated[0]}, measured on qemu; leave it out"
        )
    sections = _sections(runs, verification or {}, pair)
    rows = [row for section in sections for row in section["rows"]]
    if not any(row.latencies or row.failures for row in rows) and not any(run.ratios for run in runs):
        raise UserError("a report needs at least one measurement or ratio; the result files have none")
    page = render(
        "report.html",
        package="pocketbert_bench",
        filters=FILTERS,
        title=title,
        summary=summary,
        runs=runs,
        quick=any(run.quick for run in runs),
        outcomes=_outcomes(rows),
        sections=sections,
        captions=CAPTIONS,
        paper=paper_figures,
        verification=verification or {},
        cards={
            label: path.read_text(encoding="utf-8", errors="replace")
            for label, path in (cards or {}).items()
            if path.is_file()
        },
        pair=pair,
        searches=searches,
        costs=side_by_side.costs(rows, pair) if pair else None,
        disagreements=pair.most_confident(SHOWN_DISAGREEMENTS) if pair else [],
        ratios=[ratio for run in runs for ratio in run.ratios],
    )
    with outputs.new_directory(output, KIND, overwrite=overwrite, group=group) as folder:
        for section in sections:
            for name, (png, _) in section["images"].items():
                files.write_bytes(folder / f"{section['prefix']}{name}.png", png)
        files.write_text(folder / PAGE, page)
        for number, run in enumerate(runs, start=1):
            name = "results.json" if len(runs) == 1 else f"results_{number}.json"
            results.write(folder / name, run)
    return output / PAGE


def table(run: ResultFile, pair: Pair | None = None) -> str:
    """Formats a result file's exports as a table for a terminal.

    Args:
      run: the result file's content.
      pair: a student and its teacher among the networks; the teacher's export is the student's reference.
    """
    rows = _rows([run], pair)
    lengths, all_threads = comparison.lengths(rows), comparison.threads(rows)
    metric = _metric(rows)
    heads = ["export", "MB", *([f"{metric} %"] if metric else [])]
    heads += [f"ms@{length}" + (f"/{number}t" if number > 1 else "") for number in all_threads for length in lengths]
    references = _references(rows)
    heads += ["smaller", "faster"] if references else []
    lines = [heads]
    for row in rows:
        cells = [comparison.name(row, rows), f"{row.size_bytes / 1e6:.1f}" if row.size_bytes else "failed"]
        if metric:
            cells.append(f"{100 * row.score[1]:.2f}" if row.score and row.score[0] == metric else "")
        for number in all_threads:
            for length in lengths:
                latency = row.latency_us(length, number)
                cells.append(f"{latency / 1e3:.2f}{row.marks(length, number)}" if latency else "")
        if references:
            cells += [times(row.smaller), times(1 / row.faster.value) if row.faster else ""]
        lines.append(cells)
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    aligned = [
        "  ".join(cell.ljust(width) if index == 0 else cell.rjust(width) for index, (cell, width) in enumerate(padded))
        for padded in (list(zip(line, widths, strict=True)) for line in lines)
    ]
    notes = (
        [f"smaller, faster: compared with {', '.join(references)} at the longest shared length"] if references else []
    )
    notes += [pair.verdict] if pair else []
    notes += comparison.delegate_notes(rows) + comparison.memory_notes(rows)
    notes += [f"{caveat.mark} {caveat.sentence}" for caveat in comparison.caveats(rows)]
    notes += [f"failed: {comparison.name(row, rows)}: {failure}" for row in rows for failure in row.failures]
    worth = [
        bundle_outcomes.line(comparison.name(row, rows), row.outcome)
        for row in rows
        if not row.is_baseline and row.latencies and (row.outcome or not row.accuracy)
    ]
    return "\n".join(line.rstrip() for line in [*worth, *aligned, *notes])


def _metric(rows: Sequence[Row]) -> str:
    """The score column's metric; empty without scores."""
    return next((row.score[0] for row in rows if row.score), "")


def _outcomes(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Our exports' outcomes for the page, each once; without one in the bundle, the run's score serves."""
    seen: dict[str, Mapping[str, Any] | None] = {}
    for row in rows:
        if row.is_baseline or not row.latencies:
            continue
        content: dict[str, Any] | None = None if row.outcome is None else dataclasses.asdict(row.outcome)
        if content is None and row.accuracy is not None:
            score = {"metric": row.accuracy.metric, "score": row.accuracy.value, "examples": row.accuracy.examples}
            content = {**score, "interval": None, "baselines": (), "teacher": None, "verdict": "good", "warnings": ()}
        name = comparison.name(row, rows)
        seen[name] = content if content is not None else seen.get(name)
    return [view(name, content) for name, content in seen.items()]


def _sections(
    runs: Sequence[ResultFile], verification: Mapping[str, Mapping[str, Any]], pair: Pair | None
) -> list[dict[str, Any]]:
    """Values of `section.html` for comparable measurements: those of a run, or of its part on one runtime."""
    parts = [part for run in runs for part in comparison.rankings(run)]
    sections: list[dict[str, Any]] = []
    for number, part in enumerate(parts, start=1):
        rows = _rows([part], pair)
        lengths, threads = comparison.lengths(rows), (comparison.threads(rows) or [1])[0]
        runtime = next(
            (measurement.runtime for measurement in part.measurements if measurement.runtime and not measurement.peer),
            None,
        )
        heading = f"{part.title}: {part.measured_on}" + (f", {runtime.name} {runtime.version}" if runtime else "")
        gpu_share = _gpu_share(part)
        in_paper = {
            comparison.name(row, rows): row.latency_us(paper_figures.LENGTH, paper_figures.THREADS)
            for row in rows
            if not row.is_baseline
        }
        sections.append(
            {
                "run": part,
                "heading": heading + gpu_share if len(parts) > 1 else "",
                "prefix": f"{number}_" if len(parts) > 1 else "",
                "rows": rows,
                "lengths": lengths,
                "threads": threads,
                "metric": _metric(rows),
                "references": _references(rows),
                "headline": _headline(rows),
                "tiles": _tiles(rows, {} if sections else verification),
                "images": charts.draw([row for row in rows if row.latencies]),
                "colours": charts.colours(rows),
                "caveats": comparison.caveats(rows),
                "several_networks": len({row.model for row in rows}) > 1,
                # Whether an export pads texts of a measured length to another one.
                "padded": any(
                    not row.latency_us(length, threads) and row.effective_latency_us(length, threads)
                    for row in rows
                    for length in lengths
                ),
                # The paper measured the CPU.
                "on_gpu": bool(gpu_share),
                "published": {name: latency for name, latency in in_paper.items() if latency},
            }
        )
    return sections


def _gpu_share(run: ResultFile) -> str:
    """The smallest GPU share among the graphs' operators, as a note; empty without a GPU."""
    taken = [
        measurement.delegate for measurement in run.measurements if measurement.delegate and measurement.delegate.is_gpu
    ]
    return (
        f", GPU for {min(delegate.delegated_ops / delegate.total_ops for delegate in taken):.0%} of operators"
        if taken
        else ""
    )


def _rows(runs: Sequence[ResultFile], pair: Pair | None) -> list[Row]:
    return comparison.rows(runs, {pair.student: pair.teacher} if pair else None)


def _references(rows: Sequence[Row]) -> list[str]:
    """The exports' baselines."""
    return list(dict.fromkeys(comparison.name(row.reference, rows) for row in rows if row.reference))


def _smallest(rows: Sequence[Row]) -> Row | None:
    """The headline's export: our smallest, float32 last."""
    our_rows = [row for row in rows if not row.is_baseline and row.latencies and row.size_bytes]
    return min(our_rows, key=lambda row: (row.recipe == "float32", row.size_bytes or 0), default=None)


def _headline(rows: Sequence[Row]) -> str:
    """Names export and baseline for the headline figures, in a sentence or two."""
    best = _smallest(rows)
    if not best:
        return ""
    reference = best.reference if best.smaller or best.faster else None
    sentence = f"Export: {comparison.name(best, rows)}."
    if reference and _differ(best, reference):
        sentence += f" Baseline: {_qualified_name(reference, best)}."
    return sentence


def _tiles(rows: Sequence[Row], verification: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """The headline figures: (figure, name, detail)."""
    tiles, best = [], _smallest(rows)
    if best:
        reference = best.reference
        networks = {best.model, reference.model if reference else best.model}
        same_run = [row for row in rows if row.run is best.run and row.model in networks and row is not best]
        if reference and _differ(best, reference):
            tiles += _against_reference(best, reference)
        alike = [row for row in same_run if row.is_baseline and row.recipe == best.recipe and row.latencies]
        if alike:
            tiles += _against_same_recipe(best, min(alike, key=lambda row: not row.label.startswith(TFLITE_CONVERTER)))
        if best.accuracy and not best.outcome:
            float32 = next((row for row in same_run if row.recipe == "float32" and row.accuracy), None)
            detail = f"{best.accuracy.examples:,} examples"
            if float32 and float32.accuracy:
                detail += f"; {comparison.name(float32, rows)} {100 * float32.accuracy.value:.1f} %"
            tiles.append((f"{100 * best.accuracy.value:.1f} %", best.accuracy.metric, detail))
    checks = [check for content in verification.values() for check in content["checks"]]
    # Alone, they would look like the outcome.
    if checks and tiles:
        passed = sum(bool(check["passed"]) for check in checks)
        tiles.append((f"{passed} of {len(checks)}", "checks passed", "verification gate"))
    return tiles


def _differ(best: Row, reference: Row) -> bool:
    return (reference.model, reference.label) != (best.model, best.label)


def _against_reference(best: Row, reference: Row) -> list[tuple[str, str, str]]:
    tiles = []
    if best.smaller and best.smaller > 1.05 and best.size_bytes and reference.size_bytes:
        detail = f"{best.size_bytes / 1e6:.1f} MB; baseline {reference.size_bytes / 1e6:.1f} MB"
        tiles.append((times(best.smaller), "smaller", detail))
    if best.faster and best.faster_at:
        low, high = (1 / end for end in reversed(best.faster.interval))
        length, number = best.faster_at
        detail = (
            f"{ms(best.latency_us(length, number))} at {length} tokens, {number} thread{'s' if number > 1 else ''}; "
            f"baseline {ms(reference.latency_us(length, number))} (95 % CI {times(low)} to {times(high)})"
        )
        tiles.append((times(1 / best.faster.value), "faster", detail))
    return tiles


def _qualified_name(row: Row, best: Row) -> str:
    """An export's name, with its network's name unless it is the best one's."""
    return row.label if row.model == best.model else f"{row.model}, {row.label}"


def _against_same_recipe(best: Row, baseline: Row) -> list[tuple[str, str, str]]:
    number = min(count for _, count in baseline.latencies)
    longest = max(length for length, count in baseline.latencies if count == number)
    short = min(length for length, _ in best.latencies)
    tiles = []
    for tokens, name in ((longest, "faster with the same recipe"), (short, "faster on short texts")):
        mine, baseline_us = best.effective_latency_us(tokens, number), baseline.effective_latency_us(tokens, number)
        if mine and baseline_us and (tokens == longest or short < longest):
            pads = "" if (tokens, number) in baseline.latencies else f" pads to {longest}:"
            detail = f"{ms(mine)} at {tokens} tokens; {_qualified_name(baseline, best)}{pads} {ms(baseline_us)}"
            tiles.append((times(baseline_us / mine), name, detail))
    return tiles
