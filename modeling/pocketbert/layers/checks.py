"""Rules about values, which a graph knows only when it runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from pocketbert.errors import UserError

_MARK = "pocketbert: "


def require(condition: tf.Tensor, rule: str, received: tf.Tensor) -> list[tf.Operation]:
    """Refuses bad values: at once in eager code, and when it runs in a graph.

    Args:
      condition: bool scalar.
      rule: what must be so, as an error's message says it.
      received: the value that breaks the rule, a scalar.
    Returns:
      For `tf.control_dependencies`, around what must not see bad values.
    Raises:
      UserError: the rule is broken, in eager code. A graph raises an `InvalidArgumentError`; see `user_errors`.
    """
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(condition, [f"{_MARK}{rule}; received", received])]
    if not bool(condition):
        raise UserError(f"{rule}; received {received.numpy()}")
    return []


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Makes a `UserError` of what `require` finds in a graph that runs inside."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = re.search(rf"\[{_MARK}([^\]]*)\] \[([^\]]*)\]", str(error.message))
        if found is None:
            raise
        raise UserError(f"{found[1]} {found[2]}") from None
