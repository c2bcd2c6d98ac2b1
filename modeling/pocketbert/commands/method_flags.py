"""A distillation method's options as flags, made from its dataclass; nothing here imports TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from pocketbert.distillation.methods import get_method, names
from pocketbert.distillation.options import OptionField, describe_options
from pocketbert.errors import UserError


def define_method(flag_values: flags.FlagValues) -> None:
    """Defines `--method`."""
    flags.DEFINE_string(
        "method",
        None,
        f"the distillation method: {', '.join(names())}; with it, --help lists the method's own flags too",
        flag_values=flag_values,
    )


def define_chosen(flag_values: flags.FlagValues, arguments: Sequence[str]) -> None:
    """Defines the flags of the method that a command line names, if it names one.

    Args:
      flag_values: where the flags go.
      arguments: the command line, not yet parsed.
    """
    chosen = method_in(arguments)
    if chosen is not None:
        define_options(flag_values, get_method(chosen).options)


def method_in(arguments: Sequence[str]) -> str | None:
    """The value of the last `--method` on a command line, or None."""
    found = None
    for position, argument in enumerate(arguments):
        match = re.fullmatch(r"--?method(?:=(.*))?", argument)
        if match and match[1] is not None:
            found = match[1]
        elif match and position + 1 < len(arguments):
            found = arguments[position + 1]
    return found


def define_options(flag_values: flags.FlagValues, options: type, skip: Sequence[str] = ()) -> None:
    """A flag for each field of a dataclass of options, with hyphens for underscores."""
    for option in describe_options(options):
        if option.name not in skip:
            _define(flag_values, option)


def read_options(flag_values: flags.FlagValues, options: type, **others: Any) -> Any:
    """An instance of a dataclass of options from the flags that `define_options` made.

    Args:
      flag_values: parsed.
      options: the dataclass.
      **others: the values of the fields that have no flags.
    """
    values = {}
    for option in describe_options(options):
        if option.name in others:
            continue
        value = flag_values[option.name.replace("_", "-")].value
        values[option.name] = tuple(value or ()) if option.type.startswith("tuple") else value
    return options(**values, **others)


def required_method(flag_values: flags.FlagValues) -> str:
    """The value of `--method`.

    Raises:
      UserError: there is none.
    """
    if not flag_values.method:
        raise UserError(f"--method is required, one of {', '.join(names())}; received none")
    return flag_values.method


def _define(flag_values: flags.FlagValues, option: OptionField) -> None:
    name, kind = option.name.replace("_", "-"), option.type.removesuffix(" | None")
    if kind.startswith("tuple"):
        flags.DEFINE_list(name, list(option.default or ()), option.help, flag_values=flag_values)
    elif kind.startswith("Literal"):
        choices = re.findall(r"[\"']([^\"']*)[\"']", kind)
        flags.DEFINE_enum(name, option.default, choices, option.help, flag_values=flag_values)
    else:
        kinds = {
            "bool": flags.DEFINE_boolean,
            "int": flags.DEFINE_integer,
            "float": flags.DEFINE_float,
            "str": flags.DEFINE_string,
        }
        kinds[kind](name, option.default, option.help, flag_values=flag_values)
