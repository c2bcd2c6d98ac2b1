"""Parses command lines and `--config` files into options dataclasses. This module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from absl import flags

from pocketbert.commands import COMMANDS
from pocketbert.errors import UserError, did_you_mean, raise_if_any
from pocketbert.json_reading import read_toml
from pocketbert.options import FilePath, OptionField, describe_options, format_value, parse_value

# Options to leave out of run.toml, and out of every file: a phone's serial number.
_NOT_REPEATED, _PRIVATE = ("config", "overwrite"), ("device",)

T = TypeVar("T")


@dataclass(frozen=True)
class OptionGroup:
    """An options dataclass; some fields may have no flags.

    Attributes:
      options: the dataclass.
      without: fields without flags, with their defaults.
      may_be_missing: required fields that may be None; the command checks when.
    """

    options: type
    without: tuple[str, ...] = ()
    may_be_missing: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GeneralOptions:
    """Options for every command.

    Attributes:
      config: TOML file with options as `name = value`, for example an earlier run's run.toml; flags override it.
    """

    GROUP: ClassVar = "General"

    config: FilePath | None = None


class Options:
    """A command's parsed options: `options[FinetuneConfig]` is an instance of that dataclass."""

    def __init__(self, command: Command, values: Mapping[str, Any], given: Iterable[str]) -> None:
        self._command, self._values, self._given = command, values, frozenset(given)
        self._parts: dict[type, Any] = {}
        self._located: dict[str, Any] = {}

    @property
    def command(self) -> str:
        """The command's name."""
        return self._command.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line, including arguments from `--config`."""
        return self._command.arguments

    def __getitem__(self, part: type[T]) -> T:
        if not self._parts:
            self.check()
        return self._parts[part]  # type: ignore[no-any-return]

    def check(self) -> None:
        """Makes the instances; this checks the values.

        Raises:
          UserError: a value is invalid.
        """
        for part in self._command.parts:
            values = {**self._values, **self._located}
            part_values = {field.name: values[field.name] for field in self._command.fields_of(part)}
            self._parts[part.options] = part.options(**part_values)

    @property
    def values(self) -> Mapping[str, Any]:
        """Field name → value, for all parts."""
        return self._values

    @property
    def fields(self) -> tuple[OptionField, ...]:
        """Descriptions of all options."""
        return self._command.fields

    @property
    def module(self) -> ModuleType:
        """The command's module."""
        return self._command.module

    def given(self, name: str) -> bool:
        """Whether the command line or the `--config` file has the option."""
        return name in self._given

    def given_of(self, part: type) -> dict[str, Any]:
        """Returns the values passed for a part."""
        part_names = {field.name for field in dataclasses.fields(part)}
        return {name: self._values[name] for name in self._given if name in part_names}

    def changed(self, *names: str) -> list[str]:
        """Returns flags for these fields if their values are not the defaults."""
        fields = {field.name: field for field in self.fields}
        return [f"--{fields[name].flag}" for name in names if self._values[name] != fields[name].default]

    def resolve(self, **values: Any) -> None:
        """Replaces defaults that depend on the data, so that `to_toml` repeats the run."""
        self._values = {**self._values, **values}
        self._parts.clear()

    def locate(self, name: str, path: Any) -> None:
        """Sets the place behind an option's name; `to_toml` keeps the name."""
        if path != self._values[name]:
            self._located[name] = path
            self._parts.clear()

    def to_toml(self) -> str:
        """Writes a `--config` file that repeats this command line, including all defaults."""
        lines = [
            f"# pocketbert {self._command.name} --config=FILE repeats this run.",
            f"command = {_toml(self._command.name)}",
        ]
        group = ""
        for field in self._command.fields:
            value = self._values[field.name]
            if field.name in _NOT_REPEATED or (value is None and (field.required or field.default is None)):
                continue
            if field.group != group:
                group = field.group
                lines += ["", f"# {group}"]
            if field.name in _PRIVATE and value != field.default:
                lines.append(f"# Pass --{field.flag} again: no file has a serial number.")
                continue
            lines.append(f"{field.flag} = {_toml(format_value(field, value) if value is None else value)}")
        return "\n".join(lines) + "\n"


class Command:
    """A command and its options.

    Args:
      name: key in `COMMANDS`.
      arguments: the unparsed command line; it may add options.
    """

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        self.name, self.arguments = name, tuple(arguments)
        self.module: ModuleType = importlib.import_module(COMMANDS[name][0])
        chosen = self.module.chosen_options(arguments) if hasattr(self.module, "chosen_options") else ()
        given = [*self.module.OPTIONS, *chosen, GeneralOptions]
        self.parts: tuple[OptionGroup, ...] = tuple(
            part if isinstance(part, OptionGroup) else OptionGroup(part) for part in given
        )
        self.fields: tuple[OptionField, ...] = tuple(field for part in self.parts for field in self.fields_of(part))
        names = [field.name for field in self.fields]
        if len({*names}) < len(names):
            raise ValueError(
                f"{name}: two options have the same name: {sorted(n for n in names if names.count(n) > 1)}"
            )

    @staticmethod
    def fields_of(part: OptionGroup) -> tuple[OptionField, ...]:
        """Returns the options with flags in a part."""
        return tuple(
            dataclasses.replace(field, required=False) if field.name in part.may_be_missing else field
            for field in describe_options(part.options, part.without)
        )

    @property
    def positional(self) -> OptionField | None:
        """The positional argument, if there is one."""
        return next((field for field in self.fields if field.positional), None)


def parse(name: str, arguments: Sequence[str]) -> Options:
    """Parses command `name` with its arguments.

    Raises:
      UserError: an unknown flag, an invalid value, or a missing required option.
    """
    path = last_value("config", arguments)
    if path:
        arguments = [*_config_arguments(name, path, arguments), *arguments]
    command = Command(name, arguments)
    flag_values = flags.FlagValues()
    for field in command.fields:
        if not field.positional:
            _define(flag_values, field)
    try:
        rest = flag_values([name, *arguments])[1:]
    except flags.UnrecognizedFlagError as error:
        hint = did_you_mean(error.flagname, flag_values, prefix="--")
        raise UserError(f"no flag --{error.flagname}{hint}; --help-all lists all options") from None
    except flags.Error as error:
        raise UserError(str(error)) from None
    values, given = {}, []
    for field in command.fields:
        if field.positional:
            values[field.name], present = _positional(name, field, rest), True
        else:
            flag = flag_values[field.flag]
            values[field.name], present = flag.value, bool(flag.present)
            if field.repeated:
                values[field.name] = tuple(flag.value or ()) or field.default
        given += [field.name] if present else []
    if command.positional is None and rest:
        raise UserError(f"write options as --name=value; received {' '.join(rest)}")
    missing = [field for field in command.fields if field.required and values[field.name] in (None, "", ())]
    if missing:
        raise UserError("; ".join(map(_missing, missing)))
    return Options(command, values, given)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Writes options as flags; values are already formatted with `pocketbert.options.format_value`."""
    return [f"--{name.rstrip('_').replace('_', '-')}={value}" for name, value in values.items()]


def last_value(flag: str, arguments: Sequence[str]) -> str | None:
    """Returns the last value for `--flag` on an unparsed command line, or None."""
    last = None
    for position, argument in enumerate(arguments):
        match = re.fullmatch(rf"--?{flag}(?:=(.*))?", argument, flags=re.DOTALL)
        if match and match[1] is not None:
            last = match[1]
        elif match and position + 1 < len(arguments):
            last = arguments[position + 1]
    return last


class _Parser(flags.ArgumentParser):  # type: ignore[misc]
    """Parses a flag with `parse_value`."""

    def __init__(self, field: OptionField) -> None:
        self._field = field

    def parse(self, argument: Any) -> Any:
        return parse_value(self._field, argument) if isinstance(argument, str) else argument

    def flag_type(self) -> str:
        return self._field.kind


def _define(flag_values: flags.FlagValues, field: OptionField) -> None:
    if field.kind == "bool" and not field.many:
        flags.DEFINE_boolean(field.flag, field.default, field.help, flag_values=flag_values)
    elif field.repeated:
        flags.DEFINE_multi(_Parser(field), None, field.flag, None, field.help, flag_values=flag_values)
    else:
        flags.DEFINE(_Parser(field), field.flag, None, field.help, flag_values=flag_values)
        # Bypass the parser: a default need not be text.
        flag_values[field.flag].value = field.default


def _missing(field: OptionField) -> str:
    suggestions = ", ".join(field.choices or (field.suggestions() if field.suggestions else ()))
    return f"--{field.flag} is required{f', one of {suggestions}' if suggestions else ''}; received none"


def _positional(name: str, field: OptionField, received: Sequence[str]) -> Any:
    shown = " ".join(received) or "none"
    if len(received) > 1 and not field.many:
        raise UserError(f"{name} takes one {field.positional}; received {shown}")
    if not received and not field.required:
        return field.default
    if not received:
        raise UserError(
            f"{name} takes {'at least ' if field.many else ''}one {field.positional.rstrip('…')}; received none"
        )
    try:
        values = [parse_value(dataclasses.replace(field, many=False), text) for text in received]
    except ValueError as error:
        raise UserError(f"{field.positional} {error}; received {shown}") from None
    return tuple(values) if field.many else values[0]


def _config_arguments(name: str, path: str, arguments: Sequence[str]) -> list[str]:
    """Converts a `--config` file to arguments, except repeated flags also on the command line."""
    content = read_toml(path, where=f"--config={path}")
    command = content.pop("command", name)
    if command != name:
        raise UserError(
            f"{path} has options of pocketbert {command!s:.60}; received pocketbert {name}; use that command"
        )
    if "config" in content:
        raise UserError(f"{path}: a file of options cannot name another with config; put its options into this file")
    read = [argument for key, value in content.items() for argument in _as_arguments(path, key, value)]
    fields = {field.flag: field for field in Command(name, [*read, *arguments]).fields}
    problems = [
        f"{path}: no option {key!r}{did_you_mean(key, fields)}; pocketbert {name} --help-all lists all options"
        for key in content
        if key not in fields
    ]
    raise_if_any(problems, "--config")
    flags: list[str] = []
    for key, value in content.items():
        field = fields[key]
        if field.positional or field.repeated:
            if field.repeated and last_value(key, arguments) is None:
                flags += _as_arguments(path, key, value)
            continue
        if not isinstance(value, list):
            flags += _as_arguments(path, key, value)
        elif value or field.default != ():
            # A run's file has every default, and a flag takes no empty list.
            flags.append(f"--{key}={format_value(field, tuple(value))}")
    return flags


def _as_arguments(path: str, key: str, value: Any) -> list[str]:
    """Converts a key in a `--config` file to arguments, one per value in a list."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(value, str | bool | int | float) for value in values):
        raise UserError(f"{path}: {key} must be text, a number, true, false or a list of these; received {value!r}")
    return [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for value in values]


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    # TOML strings have JSON's escapes, and DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
