"""The table of other runtimes in docs/results/comparisons.md, for `studies.tables`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pocketbert_bench import results
from studies.marked_block import MarkedBlock
from studies.score_cells import NOTHING

BLOCK = MarkedBlock(
    path=Path(__file__).resolve().parents[3] / "docs" / "results" / "comparisons.md",
    name="RUNTIMES",
    origin="python -m studies.tables from benchmarks/studies/results/against_transformers/runtimes.json",
)


def table(content: results.ResultFile) -> str:
    """Writes a row for every network and export."""
    ratios = {ratio.name: ratio for ratio in content.ratios}
    exports = [json.loads(note) for note in content.notes if note.startswith("{")]
    lines = [
        "| Network | Export | Our latency ÷ its latency (95 % CI) | Size | Opening and first call |",
        "|---|---|---:|---:|---:|",
    ]
    for export in exports:
        ratio = ratios.get(f"{export['network']}, {export['export']}")
        lines.append(
            f"| `{export['network']}` | {_name(export)} | {NOTHING if ratio is None else _interval(ratio)} | "
            f"{_value(export, 'size_bytes', 1e6, ' MB')} | {_value(export, 'first_call_us', 1e3, ' ms')} |"
        )
    problems = [
        f"`{export['network']}` does not run as {export['export']}: {export['problem']}"
        for export in exports
        if "problem" in export
    ]
    return "\n".join(lines + ([""] + problems if problems else [])) + "\n"


def _name(export: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in export.get("versions", {}).items())
    return f"{export['export']} ({versions})" if versions else str(export["export"])


def _interval(ratio: results.Ratio) -> str:
    low, high = ratio.interval
    return f"{ratio.value:.2f} ({low:.2f}–{high:.2f})"


def _value(export: dict[str, Any], name: str, unit: float, suffix: str) -> str:
    return f"{export[name] / unit:.1f}{suffix}" if name in export else NOTHING
