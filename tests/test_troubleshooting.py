"""The messages in docs/how-to/troubleshooting.md are the code's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"


def written(node: ast.expr) -> str:
    """A string in the code, with `…` for its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"


def strings() -> str:
    """All strings of the packages, with code points between them that no message has."""
    paths = [path for root in ("runtime", "modeling", "export") for path in sorted((ROOT / root).rglob("*.py"))]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant))
    return "\0".join(map(written, nodes))


def test_messages_are_the_codes() -> None:
    messages = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(messages) > 15
    code = strings()
    assert [message for message in messages if message not in code] == []
