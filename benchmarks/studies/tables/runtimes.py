"""The table of other runtimes in docs/results/comparisons.md."""

from __future__ import annotations

import json
from typing import Any

from pocketbert_bench import results
from studies.tables.render import NOTHING, interval, page, table


def text(content: results.ResultFile) -> str:
    """Writes a row for every network and export, and the problems of those that do not run."""
    ratios = {ratio.name: ratio for ratio in content.ratios}
    exports = [json.loads(note) for note in content.notes if note.startswith("{")]
    rows = []
    for export in exports:
        ratio = ratios.get(f"{export['network']}, {export['export']}")
        rows.append(
            (
                f"`{export['network']}`",
                _name(export),
                interval(ratio) if ratio else NOTHING,
                _value(export, "size_bytes", 1e6, " MB"),
                _value(export, "first_call_us", 1e3, " ms"),
            )
        )
    problems = [
        f"`{export['network']}` does not run as {export['export']}: {export['problem']}"
        for export in exports
        if "problem" in export
    ]
    heads = ["Network", "Export", ">Our latency ÷ its latency (95 % CI)", ">Size", ">Opening and first call"]
    return page(table(heads, rows), problems)


def _name(export: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in export.get("versions", {}).items())
    return f"{export['export']} ({versions})" if versions else str(export["export"])


def _value(export: dict[str, Any], name: str, unit: float, suffix: str) -> str:
    return f"{export[name] / unit:.1f}{suffix}" if name in export else NOTHING
