"""Inputs for `predict`: texts, or text pairs in several forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pocketbert_runtime.errors import UserError

_PAIR_NAMES = (("question", "context"), ("text", "pair"))


def as_inputs(value: Any) -> list[Any] | None:
    """Converts an argument to `predict` to a list with texts or pairs; None for anything else, such as tensors."""
    if isinstance(value, str):
        raise UserError(f"predict takes a list of texts; received one text, {value!r:.60}; put it into a list")
    if getattr(getattr(value, "dtype", None), "kind", "") in "OUT" and hasattr(value, "tolist"):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return None
    return list(value) if not value or any(_parts(item) for item in value) else None


def texts_and_pairs(inputs: Sequence[Any]) -> tuple[list[str], list[str] | None]:
    """Splits inputs for `predict` into first and second texts.

    Args:
      inputs: texts, or text pairs as tuples or dicts (`text` and `pair`, or `question` and `context`).
    Raises:
      UserError: the inputs are neither all texts nor all pairs.
    """
    parts = [_parts(item) for item in inputs]
    for item, item_parts in zip(inputs, parts, strict=True):
        if item_parts is None or len(item_parts) != len(parts[0] or ()):
            raise UserError(
                f"inputs must be texts, or pairs of texts; received {item!r:.80}; pass all inputs in one form"
            )
    texts = [part[0] for part in parts if part]
    return texts, [part[1] for part in parts if part] if parts and parts[0] and len(parts[0]) == 2 else None


def _parts(item: Any) -> tuple[str, ...] | None:
    """An input's one or two texts; None if it is neither."""
    if isinstance(item, str):
        return (item,)
    if isinstance(item, Mapping):
        names = next((names for names in _PAIR_NAMES if item.keys() >= {*names}), ("text",))
        item = tuple(item.get(name) for name in names)
    if isinstance(item, list | tuple) and 1 <= len(item) <= 2 and all(isinstance(text, str) for text in item):
        return tuple(item)
    return None
