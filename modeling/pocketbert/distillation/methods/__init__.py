"""The methods: every file in this folder that has a `METHOD`. Adding one is adding a file.

A method's file imports TensorFlow inside its functions alone, because the command line reads all methods' options.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from pocketbert.distillation.method import Method
from pocketbert.errors import UserError, did_you_mean


def names() -> tuple[str, ...]:
    """The methods' names, sorted."""
    return tuple(sorted(_methods()))


def get_method(name: str) -> Method:
    """The method called `name`.

    Raises:
      UserError: there is none; the message lists those there are.
    """
    if name not in _methods():
        hint = did_you_mean(name, names())
        raise UserError(f"no distillation method {name!r}{hint}; the methods are {', '.join(names())}")
    return _methods()[name]


@functools.cache
def _methods() -> dict[str, Method]:
    found: dict[str, Method] = {}
    for module in pkgutil.iter_modules(__path__, __name__ + "."):
        method = getattr(importlib.import_module(module.name), "METHOD", None)
        if method is None:
            continue
        if method.name in found:
            raise ValueError(f"{module.name}: a method of the name {method.name!r} is there already")
        found[method.name] = method
    return found
