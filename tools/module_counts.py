"""Count the modules and imports of each package: `python tools/module_counts.py [CHECKOUT]`.

Each pair of importing and imported module counts once. An import is inside if both modules belong to the same row,
otherwise outgoing. Imports of other libraries and imports for type checkers do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
# Package → its source root.
SOURCES = {
    "pocketbert_runtime": "runtime",
    "pocketbert": "modeling",
    "pocketbert_export": "export",
    "pocketbert_bench": "benchmarks",
    "studies": "benchmarks",
}
# Each package inside it has its own row.
DIVIDED = "pocketbert"


def count(checkout: Path = ROOT) -> dict[str, dict[str, int]]:
    """Package, or `all` → modules, imports inside and outgoing imports.

    Args:
      checkout: root of the checkout to read.
    """
    folders = {name: checkout / source / name for name, source in SOURCES.items()}
    packages = [name for name, folder in folders.items() if folder.is_dir()]
    sys.path[:0] = [str(folders[name].parent) for name in packages]
    graph = grimp.build_graph(packages[0], *packages[1:], exclude_type_checking_imports=True, cache_dir=None)
    rows = packages + [f"{DIVIDED}.{path.parent.name}" for path in sorted(folders[DIVIDED].glob("*/__init__.py"))]
    counts = {row: {"modules": 0, "inside": 0, "outgoing": 0} for row in sorted(rows)}
    for module in graph.modules:
        counts[_row(module, rows)]["modules"] += 1
        for imported in graph.find_modules_directly_imported_by(module):
            kind = "inside" if _row(imported, rows) == _row(module, rows) else "outgoing"
            counts[_row(module, rows)][kind] += 1
    return {**counts, "all": {kind: sum(row[kind] for row in counts.values()) for kind in counts[DIVIDED]}}


def table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The counts as text."""
    return "\n".join(
        f"{row['modules']:4} modules, {row['inside']:4} imports inside, {row['outgoing']:4} outgoing  {name}"
        for name, row in counts.items()
    )


def _row(module: str, rows: Collection[str]) -> str:
    while module not in rows:
        module = module.rpartition(".")[0]
    return module


if __name__ == "__main__":
    print(table(count(Path(*sys.argv[1:2]) if sys.argv[1:] else ROOT)))
