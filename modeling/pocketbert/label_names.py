"""Rules for the names of labels."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def label_problems(labels: tuple[str, ...]) -> list[str]:
    """Problems of labels, which must be distinct lines of a file."""
    broken = [label for label in labels if not (isinstance(label, str) and _is_one_line(label))]
    if broken:
        return [f"labels must be one line of text each; received {shown(broken)}"]
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    return [
        f"labels must differ in more than case or white space; received {shown(same)}"
        for same in alike.values()
        if len(same) > 1
    ]


def _is_one_line(text: str) -> bool:
    """Whether a text has no surrounding white space, line break, control character or lone surrogate."""
    broken = any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text)
    return bool(text) and text == text.strip() and not broken


def shown(values: Sequence[object]) -> str:
    """Formats values for a message."""
    return ", ".join(map(repr, values))
