"""The methods: every file in this folder that defines a `Method`. Adding one is adding a file.

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


def get_method(name: str) -> type[Method]:
    """The method called `name`: a dataclass, whose fields are the method's options.

    Raises:
      UserError: there is none; the message lists those there are.
    """
    if name not in _methods():
        hint = did_you_mean(name, names())
        raise UserError(f"no distillation method {name!r}{hint}; the methods are {', '.join(names())}")
    return _methods()[name]


def classes() -> dict[str, type[Method]]:
    """The methods by the names of their classes, which are public as `pocketbert.NAME`."""
    return {method.__name__: method for method in _methods().values()}


@functools.cache
def _methods() -> dict[str, type[Method]]:
    found: dict[str, type[Method]] = {}
    for entry in pkgutil.iter_modules(__path__, __name__ + "."):
        module = importlib.import_module(entry.name)
        for value in vars(module).values():
            if not (isinstance(value, type) and issubclass(value, Method)) or value.__module__ != entry.name:
                continue
            if value.name in found:
                raise ValueError(f"{entry.name}: a method of the name {value.name!r} is there already")
            found[value.name] = value
    return found
