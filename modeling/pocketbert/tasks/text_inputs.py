"""Inputs of `predict`: texts, or pairs of texts in several forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert.data.examples import Examples
from pocketbert.errors import UserError

# Keys of the two texts of a pair in a dict.
_PAIR_NAMES = (("question", "context"), ("text", "pair"))


def as_inputs(given: Any) -> list[Any] | None:
    """Converts an argument of `predict` to a list of texts or pairs; None for anything else, such as tensors."""
    if isinstance(given, str):
        raise UserError(f"predict takes a list of texts; received one text, {given!r:.60}; put it into a list")
    if getattr(getattr(given, "dtype", None), "kind", "") in "OUT" and hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, list | tuple):
        return None
    return list(given) if not given or any(_parts(each) for each in given) else None


def texts_and_pairs(inputs: Sequence[Any]) -> tuple[list[str], list[str] | None]:
    """Splits inputs of `predict` into first and second texts.

    Args:
      inputs: texts, or pairs of texts as tuples or dicts (`text` and `pair`, or `question` and `context`).

    Raises:
      UserError: the inputs are neither all texts nor all pairs.
    """
    parts = [_parts(each) for each in inputs]
    for each, found in zip(inputs, parts, strict=True):
        if found is None or len(found) != len(parts[0] or ()):
            raise UserError(
                f"inputs must be texts, or pairs of texts; received {each!r:.80}; pass all inputs in one form"
            )
    texts = [part[0] for part in parts if part]
    return texts, [part[1] for part in parts if part] if parts and parts[0] and len(parts[0]) == 2 else None


def examples_of(inputs: Sequence[Any]) -> Examples:
    """Inputs of `predict` as examples without labels."""
    texts, pairs = texts_and_pairs(inputs)
    return Examples(texts, pairs, None, [str(index) for index in range(len(texts))], "the texts")


def _parts(each: Any) -> tuple[str, ...] | None:
    """The one or two texts of an input; None if it is neither."""
    if isinstance(each, str):
        return (each,)
    if isinstance(each, Mapping):
        names = next((names for names in _PAIR_NAMES if each.keys() >= {*names}), ("text",))
        each = tuple(each.get(name) for name in names)
    if isinstance(each, list | tuple) and 1 <= len(each) <= 2 and all(isinstance(text, str) for text in each):
        return tuple(each)
    return None
