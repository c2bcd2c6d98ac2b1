"""Rules for label names."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence


def label_problems(labels: tuple[str, ...]) -> list[str]:
    """Returns problems with labels, which must be distinct lines in a file."""
    # Line breaks, control characters and lone surrogates.
    marks = ("Cc", "Cs", "Zl", "Zp")
    broken = [
        label
        for label in labels
        if not isinstance(label, str)
        or not label
        or label != label.strip()
        or any(unicodedata.category(character) in marks for character in label)
    ]
    if broken:
        return [f"labels must be one line of text each; received {shown(broken)}"]
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(_plain(label), []).append(label)
    return [
        f"labels must differ in more than case or white space; received {shown(same)}"
        for same in alike.values()
        if len(same) > 1
    ]


def label_positions(labels: Sequence[str], others: Sequence[str]) -> list[int] | None:
    """Returns each label's position among `others`, without case and white space; None if the names differ."""
    plain = [_plain(label) for label in others]
    expected = [_plain(label) for label in labels]
    return [plain.index(label) for label in expected] if sorted(plain) == sorted(expected) else None


def are_placeholders(labels: Sequence[str]) -> bool:
    """Whether all labels have transformers' default names, such as `LABEL_0`."""
    return bool(labels) and all(re.fullmatch(r"LABEL_\d+", label) for label in labels)


def _plain(label: str) -> str:
    """Removes differences in case or white space."""
    return " ".join(label.split()).casefold()


def shown(values: Sequence[object]) -> str:
    """Formats values for a message."""
    return ", ".join(map(repr, values))
