"""Exceptions other than bugs: invalid input, and training that diverged.

Errors for invalid input are in the runtime (`pocketbert_runtime.errors`); their names are public here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert_runtime.errors import UserError as UserError
from pocketbert_runtime.errors import did_you_mean as did_you_mean
from pocketbert_runtime.errors import first_line as first_line
from pocketbert_runtime.errors import printable as printable
from pocketbert_runtime.errors import raise_if_any as raise_if_any

_DIFFERENCES_SHOWN = 5


class TrainingFailed(RuntimeError):
    """Training cannot continue although the input was valid: loss or outputs are not finite."""


def describe_differences(recorded: Mapping[str, Any], received: Mapping[str, Any]) -> str:
    """Describes differences between recorded and received options, for an error message.

    Returns:
      `name=recorded value, received value` for the first five names in alphabetical order, then the number of others;
      empty without a difference.
    """
    names = [name for name in sorted({*recorded, *received}) if recorded.get(name) != received.get(name)]
    shown = [f"{name}={recorded.get(name)!r}, received {received.get(name)!r}" for name in names[:_DIFFERENCES_SHOWN]]
    others = len(names) - len(shown)
    return ", ".join(shown) + (f", and {others} {'other' if others == 1 else 'others'}" if others else "")
