"""Variables are named after the thing: pronouns and participles say nothing about it."""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORDS = frozenset("asked each found given kept known made ours own place said theirs wanted".split())
# Folder → the largest percentage of stored names; the innermost folder counts. Lower a number when you can.
MOST = {
    "runtime": 1.0,
    "modeling/pocketbert": 1.0,
    "export": 1.0,
    "benchmarks/pocketbert_bench": 1.0,
    "benchmarks/studies": 1.4,
    "tools": 0.5,
    "tests": 0.5,
}


def stored(source: str) -> Iterator[str]:
    """Names of variables and of parameters."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def test_variables_are_named_after_the_thing() -> None:
    totals: collections.Counter[str] = collections.Counter()
    words: collections.Counter[str] = collections.Counter()
    for folder in ("runtime", "modeling", "export", "benchmarks", "tools", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            parents = [parent.relative_to(ROOT).as_posix() for parent in path.parents if ROOT in parent.parents]
            area = next((parent for parent in parents if parent in MOST), None)
            if area is not None:
                names = [*stored(path.read_text(encoding="utf-8"))]
                totals[area] += len(names)
                words[area] += sum(name in WORDS for name in names)
    shares = {area: 100 * words[area] / totals[area] for area in MOST}
    assert sum(totals.values()) > 40_000
    assert {area: round(share, 2) for area, share in shares.items() if share > MOST[area]} == {}


def test_stored_names_are_seen() -> None:
    source = "def f(given, *, kept=1):\n  found = [each for each in given]\n  for place, (own, _) in x: print(known)"
    assert [name for name in stored(source) if name in WORDS] == ["given", "kept", "found", "place", "each", "own"]
