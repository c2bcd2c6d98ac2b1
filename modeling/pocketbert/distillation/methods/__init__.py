"""Distillation methods: one file per method, discovered automatically.

Import TensorFlow inside functions only, because `--help` reads the options of every method.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from pocketbert.distillation.method import Method
from pocketbert.errors import UserError, did_you_mean


def names() -> tuple[str, ...]:
    """Returns the sorted names of the methods."""
    return tuple(sorted(_methods()))


def get_method(name: str) -> type[Method]:
    """Returns the class of a method, a dataclass with the options as fields.

    Raises:
      UserError: the method does not exist; the message lists all methods.
    """
    if name not in _methods():
        hint = did_you_mean(name, names())
        raise UserError(f"no distillation method {name!r}{hint}; the methods are {', '.join(names())}")
    return _methods()[name]


def classes() -> dict[str, type[Method]]:
    """Returns class name → method; each class is public as `pocketbert.NAME`."""
    return {method.__name__: method for method in _methods().values()}


@functools.cache
def _methods() -> dict[str, type[Method]]:
    classes: dict[str, type[Method]] = {}
    for entry in pkgutil.iter_modules(__path__, __name__ + "."):
        module = importlib.import_module(entry.name)
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, Method)) or value.__module__ != entry.name:
                continue
            if value.name in classes:
                raise ValueError(f"methods must have different names; received {value.name!r} again in {entry.name}")
            classes[value.name] = value
    return classes
