"""Table of other tools' exports on their own runtimes."""

from __future__ import annotations

import json
from typing import Any

from pocketbert_bench import results
from studies.tables.render import NOTHING, bullets, interval, page, table


def text(content: results.ResultFile) -> str:
    """One row for every network and export."""
    ratios = {ratio.name: ratio for ratio in content.ratios}
    exports = [json.loads(note) for note in content.notes if note.startswith("{")]
    rows = []
    for export in exports:
        ratio = ratios.get(f"{export['network']}, {export['export']}")
        rows.append(
            [
                f"`{export['network']}`",
                _name(export),
                NOTHING if ratio is None else interval(ratio),
                _value(export, "size_bytes", 1e6, " MB"),
                _value(export, "first_call_us", 1e3, " ms"),
            ]
        )
    heads = ["Network", "Export", ">Our latency ÷ its latency (95 % CI)", ">Size", ">Opening and first call"]
    problems = [
        f"`{export['network']}` does not run as {export['export']}: {export['problem']}"
        for export in exports
        if "problem" in export
    ]
    return page(table(heads, rows), bullets(problems))


def _name(export: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in export.get("versions", {}).items())
    return f"{export['export']} ({versions})" if versions else str(export["export"])


def _value(export: dict[str, Any], name: str, unit: float, suffix: str) -> str:
    return f"{export[name] / unit:.1f}{suffix}" if name in export else NOTHING
