"""What `predict` takes: texts, and pairs of texts in several forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.errors import UserError

# What the two texts of a pair may be called in a dict.
_PAIR_NAMES = (("question", "context"), ("text", "pair"))


def as_inputs(given: Any) -> list[Any] | None:
    """What `predict` is given as a list of texts or pairs; None for anything else, such as tensors."""
    if isinstance(given, str):
        raise UserError(f"predict takes a list of texts; received one text, {given!r:.60}; put it into a list")
    if getattr(getattr(given, "dtype", None), "kind", "") in "OUT" and hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, list | tuple):
        return None
    return list(given) if not given or any(_parts(each) for each in given) else None


def texts_and_pairs(inputs: Sequence[Any]) -> tuple[list[str], list[str] | None]:
    """The first and the second texts of what `predict` is given.

    Args:
      inputs: texts; or pairs of texts, each a tuple or a dict with `text` and `pair`, or `question` and `context`.

    Raises:
      UserError: the inputs are neither all texts nor all pairs.
    """
    parts = [_parts(each) for each in inputs]
    for each, found in zip(inputs, parts, strict=True):
        if found is None or len(found) != len(parts[0] or ()):
            raise UserError(
                f"inputs must be texts, or pairs of texts; received {each!r:.80}; give all of them in one form"
            )
    texts = [part[0] for part in parts if part]
    return texts, [part[1] for part in parts if part] if parts and parts[0] and len(parts[0]) == 2 else None


def _parts(each: Any) -> tuple[str, ...] | None:
    """The one or two texts of an input; None where it is none."""
    if isinstance(each, str):
        return (each,)
    if isinstance(each, Mapping):
        names = next((names for names in _PAIR_NAMES if each.keys() >= {*names}), ("text",))
        each = tuple(each.get(name) for name in names)
    if isinstance(each, list | tuple) and 1 <= len(each) <= 2 and all(isinstance(text, str) for text in each):
        return tuple(each)
    return None
