"""Expressions of feed-forward networks without our parser: values, heights and rules, from the text alone."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

import numpy as np

# Paper, table 1, in NumPy; the authors' `Operator` class truncates or pads operands of `add`, `mul` and `max`.
_TABLE_1 = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x >= 0, x, np.exp(x) - 1),
    "swish": lambda x: x / (1 + np.exp(-x)),
}
_OPERATIONS = {"add": (np.add, 0.0), "mul": (np.multiply, 1.0), "max": (np.maximum, -np.inf)}


def table_1(name: str, mismatch: str) -> Callable[..., np.ndarray]:
    """An activation of one array, or an aggregation of two arrays [..., width] that may differ in width."""
    if name in _TABLE_1:
        return _TABLE_1[name]
    operation, neutral = _OPERATIONS[name]

    def compute(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        widths = one.shape[-1], other.shape[-1]
        if mismatch == "truncate":
            return operation(one[..., : min(widths)], other[..., : min(widths)])
        filled = [np.full([*one.shape[:-1], max(widths)], neutral) for _ in widths]
        for whole, part in zip(filled, (one, other), strict=True):
            whole[..., : part.shape[-1]] = part
        return operation(*filled)

    return compute


def numpy_value(text: str, x: np.ndarray, weights: list[tuple[np.ndarray, np.ndarray]], mismatch: str) -> np.ndarray:
    """Python evaluates the text itself: its operands, too, come before the operation."""
    unused = iter(weights)

    def linear(value: np.ndarray) -> np.ndarray:
        kernel, bias = next(unused)
        return value @ kernel + bias

    names = {name: table_1(name, mismatch) for name in (*_TABLE_1, *_OPERATIONS)} | {"linear": linear, "x": x}
    return eval(re.sub(r"linear\d_\d", "linear", text), {"__builtins__": {}}, names)  # noqa: S307


def keeps_rules(text: str) -> bool:
    """The authors' `check_individual` and their limit of 20 primitives, without the weights as second operands.

    Their check of equal operands sees only operands without commas.
    """
    depth = height = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        height = max(height, depth)
    names = re.findall(r"\w+", re.sub(r"linear\d_\d", "linear", text))
    activations = "|".join(_TABLE_1)
    return (
        3 <= height <= 7
        and names.count("linear") == 2
        and len(names) + 2 <= 20
        and not re.search(rf"\b({activations})\(({activations})\(", text)
        and not re.search(r"linear(\d_\d)?\(linear", text)
        and not re.search(r"(add|mul|max)\(([^,]+),\2\)", text)
    )


def subtree_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of the text of every subtree."""
    for match in re.finditer(r"\w+", text):
        end, depth = match.end(), 0
        if text[end : end + 1] == "(":
            while depth or text[end - 1] != ")":
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
        yield match.start(), end
