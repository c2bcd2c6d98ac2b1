"""Word tags in files: types, and the schemes IOB1, IOB2 and BIOES; see `pocketbert_runtime.answers.tags`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pocketbert.errors import UserError
from pocketbert_runtime.answers.tags import OUTSIDE, prefixed, type_of

SCHEMES = ("IOB1", "IOB2", "BIOES")


class _Violation(NamedTuple):
    line: int
    reason: str


def tags_of_types(types: Sequence[str]) -> tuple[str, ...]:
    """Returns the types' IOB2 tags in a new model's logit order."""
    return OUTSIDE, *(f"{prefix}-{kind}" for kind in types for prefix in "BI")


def types_of_tags(labels: Sequence[str]) -> list[str]:
    """Returns the span types in a model's labels, in label order."""
    return list(dict.fromkeys(type_of(prefixed(label)) for label in labels if label != OUTSIDE))


class SchemeCheck:
    """Finds the schemes that allow all sentences in a file."""

    def __init__(self, source: object) -> None:
        self._source = source
        self._violations: dict[str, _Violation] = {}

    def add(self, tags: Sequence[str], lines: Sequence[int]) -> None:
        """Checks a sentence."""
        before = OUTSIDE
        for tag, line in zip([*tags, None], [*lines, lines[-1]], strict=True):
            for scheme in SCHEMES:
                if scheme not in self._violations and not _follows(scheme, before, tag or OUTSIDE):
                    self._violations[scheme] = _Violation(line, f"{tag or 'the end of the sentence'} after {before}")
            before = tag or OUTSIDE

    def raise_if_none(self) -> None:
        """Raises a `UserError`, with the line that the last scheme forbids, unless a scheme allows all sentences."""
        if len(self._violations) < len(SCHEMES):
            return
        last = max(violation.line for violation in self._violations.values())
        reasons = ", ".join(
            f"{scheme} forbids {violation.reason}" + ("" if violation.line == last else f" in line {violation.line}")
            for scheme, violation in self._violations.items()
        )
        raise UserError(
            f"{self._source}: line {last}: the tags must follow IOB1, IOB2 or BIOES; received tags that no scheme "
            f"allows ({reasons}); use one scheme in the whole file"
        )


def _follows(scheme: str, before: str, tag: str) -> bool:
    """Returns whether a scheme allows `tag` after `before`; `O` stands for both sentence ends."""
    inside = before[:1] in ("B", "I")
    same_type = before != OUTSIDE and tag != OUTSIDE and type_of(before) == type_of(tag)
    if scheme == "BIOES":
        return tag[:1] in "IE" and same_type if inside else tag[:1] in "OBS"
    if tag[:1] in "ES":
        return False
    forbidden = "B" if scheme == "IOB1" else "I"
    return not tag.startswith(forbidden) or (inside and same_type)
