"""A method's options, from one dataclass: flags, `--help` and docs read it, and it checks itself.

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """One option of a method.

    Attributes:
      name: the field's name; the flag's has hyphens.
      type: the annotation as text, for example `int | None` or `tuple[str, ...]`.
      default: the default; None often means that it depends on the task.
      help: the option's text in the dataclass' docstring.
    """

    name: str
    type: str
    default: Any
    help: str


def describe_options(options: type) -> tuple[OptionField, ...]:
    """A method's options as they appear in flags, `--help` and docs.

    Annotations are of these forms, the last three with `| None` behind them or not: `bool`, `tuple[str, ...]`,
    `Literal[...]`, `str`, `int`, `float`.

    Raises:
      ValueError: a field has no default or no text in the docstring's `Attributes:` section.
    """
    texts = _attribute_texts(inspect.getdoc(options) or "")
    described = []
    for item in dataclasses.fields(options):
        default = item.default_factory() if callable(item.default_factory) else item.default
        if default is dataclasses.MISSING:
            raise ValueError(f"{options.__name__}.{item.name} must have a default; received none")
        if item.name not in texts:
            raise ValueError(f"{options.__name__}.{item.name} must be described in the class docstring; it is not")
        described.append(OptionField(name=item.name, type=str(item.type), default=default, help=texts[item.name]))
    return tuple(described)


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Field → text of the `Attributes:` section of a Google-style docstring, as `inspect.getdoc` gives it."""
    texts: dict[str, str] = {}
    name = ""
    for line in docstring.partition("Attributes:\n")[2].splitlines():
        if line and not line.startswith(" "):
            break
        entry = re.match(r"  (\w+): (.*)", line)
        if entry:
            name = entry[1]
            texts[name] = entry[2]
        elif name and line.strip():
            texts[name] += " " + line.strip()
    return texts


def option_problems(options: Any, may_be_zero: Collection[str] = ()) -> list[str]:
    """What is wrong with the values of a dataclass of options, for its `__post_init__`.

    Args:
      options: an instance. A `Literal` field must hold one of its values, and a number must be positive; with
        `| None` in the annotation it may be None.
      may_be_zero: numbers that need only not be negative.
    """
    problems = []
    for name, hint in typing.get_type_hints(type(options)).items():
        value = getattr(options, name)
        parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        literals = [part for part in parts if typing.get_origin(part) is Literal]
        if value is None and types.NoneType in parts:
            continue
        if literals and value not in typing.get_args(literals[0]):
            problems.append(f"{name} must be one of {', '.join(typing.get_args(literals[0]))}; received {value!r}")
        elif name in may_be_zero and not value >= 0:
            problems.append(f"{name} must not be negative; received {value}")
        elif {int, float} & {*parts} and name not in may_be_zero and not value > 0:
            problems.append(f"{name} must be positive; received {value}")
    return problems
