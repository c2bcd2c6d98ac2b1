"""Checks tensor values, in eager code and in graphs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from pocketbert.errors import UserError

_MARK = "pocketbert: "


def require(condition: tf.Tensor, rule: str, received: tf.Tensor) -> list[tf.Operation]:
    """Checks a condition, immediately in eager code or when a graph runs.

    Args:
      condition: bool scalar.
      rule: start of the error message.
      received: the scalar value that breaks the rule.
    Returns:
      Operations for `tf.control_dependencies` around code that needs valid values.
    Raises:
      UserError: the condition is false, in eager code. A graph raises an `InvalidArgumentError`; see `user_errors`.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(condition, [f"{_MARK}{rule}; received", received])]
    if not bool(condition):
        raise UserError(f"{rule}; received {received.numpy()}")
    return []


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Converts `require` errors in graphs that run inside the block to `UserError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        match = re.search(rf"\[{_MARK}([^\]]*)\] \[([^\]]*)\]", str(error.message))
        if match is None:
            raise
        raise UserError(f"{match[1]} {match[2]}") from None
