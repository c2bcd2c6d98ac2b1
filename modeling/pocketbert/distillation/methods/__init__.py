"""Distillation methods: one file per method, discovered automatically, and other packages' methods.

Another package adds a method with an entry point in the group `pocketbert.methods`, in its `pyproject.toml`:

    [project.entry-points."pocketbert.methods"]
    my-method = "my_package.my_method:MyMethod"

Import TensorFlow inside functions only, because `--help` reads every method's options.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import pkgutil

from pocketbert.distillation.method import Method
from pocketbert.errors import UserError, did_you_mean
from pocketbert.progress import log_info

ENTRY_POINTS = "pocketbert.methods"
# Ways to train that `compress` calls by these names.
_RESERVED = ("finetune", "predictions", "text")


def names() -> tuple[str, ...]:
    """Returns all method names, sorted."""
    return tuple(sorted({*_methods(), *names_of_packages()}))


def names_of_packages() -> tuple[str, ...]:
    """Returns other packages' method names, sorted; imports none of them."""
    return tuple(sorted({entry.name for entry in _entry_points()}))


def get_method(name: str) -> type[Method]:
    """Returns a method's class, a dataclass with the options as fields.

    Raises:
      UserError: the method does not exist (the message lists all methods), or another package's cannot be used.
    """
    if name in names_of_packages():
        return _method_of_package(name)
    if name not in _methods():
        hint = did_you_mean(name, names())
        raise UserError(f"no distillation method {name!r}{hint}; the methods are {', '.join(names())}")
    return _methods()[name]


def classes() -> dict[str, type[Method]]:
    """Returns this package's methods by class name; each class is public as `pocketbert.NAME`."""
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


@functools.cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Returns entry points with unique names; logs the others."""
    entries = []
    # A package that is found twice on the path counts once.
    for entry in dict.fromkeys(importlib.metadata.entry_points(group=ENTRY_POINTS)):
        if entry.name in _methods() or entry.name in _RESERVED:
            package = entry.dist.name if entry.dist else entry.value
            log_info(f"the method {entry.name!r} of {package} is ignored, since PocketBERT has one with this name")
        else:
            entries.append(entry)
    return tuple(entries)


@functools.cache
def _method_of_package(name: str) -> type[Method]:
    entries = [entry for entry in _entry_points() if entry.name == name]
    packages = [entry.dist.name if entry.dist else entry.value for entry in entries]
    if len(packages) > 1:
        raise UserError(
            f"a distillation method must have a name of its own; received {name!r} from {' and '.join(packages)}; "
            f"uninstall {packages[-1]}"
        )
    try:
        method = entries[0].load()
    # The package may raise anything.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"the distillation method {name!r} of {packages[0]} must be importable; received {reason}; update or "
            f"uninstall {packages[0]}"
        ) from error
    if not (isinstance(method, type) and issubclass(method, Method)) or getattr(method, "name", None) != name:
        raise UserError(
            f"the entry point {name!r} of {packages[0]} must be a pocketbert.distillation.method.Method with that "
            f"name; received {entries[0].value}; update or uninstall {packages[0]}"
        )
    return method
