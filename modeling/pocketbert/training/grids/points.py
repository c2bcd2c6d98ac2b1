"""Hyper-parameter grids: options with values, point order, and command-line syntax.

The module imports no TensorFlow and works for every kind of run.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pocketbert.errors import raise_if_any
from pocketbert.options import OFF, OptionField, describe_options, parse_value
from pocketbert.training.grids.published import PUBLISHED, Value

Point = Mapping[str, Value]
Choose = typing.Literal["mean", "median", "max"]
# Statistic over seeds for selecting a point → its name in `run_folder.spread`.
STATISTICS: Mapping[str, str] = {"mean": "mean", "median": "median", "max": "maximum"}


# File systems take 255 bytes.
_LONGEST_NAME = 255


@dataclass(frozen=True)
class Grid:
    """A hyper-parameter grid; every combination of values is a point.

    Attributes:
      values: option → values, in search order.
    Raises:
      UserError: there is no option, or an option has no values or a duplicate value.
    """

    values: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        problems = [] if self.values else ["a grid needs an option with values; received none"]
        for name, values in self.values.items():
            if not values or len(set(values)) != len(values):
                shown = ",".join(map(value_text, values)) or "none"
                problems.append(f"{name} needs different values; received {shown}")
        raise_if_any(problems, "grid")

    def points(self) -> list[Point]:
        """Returns all combinations; the last option changes fastest."""
        return [dict(zip(self.values, values, strict=True)) for values in itertools.product(*self.values.values())]


def point_name(point: Point) -> str:
    """Formats a point as a folder name: `learning_rate=2e-05,epochs=3`."""
    return ",".join(f"{name}={value_text(value)}" for name, value in point.items())


def options_at(options: tuple[typing.Any, ...], grid: Grid, *, fixed: Collection[str] = ()) -> list[typing.Any]:
    """Returns the options at every point.

    Args:
      options: dataclass instances with different field names; the grid replaces field values.
      grid: the grid.
      fixed: fields that the grid must not vary.
    Raises:
      UserError: the grid varies a fixed or unknown field, or a dataclass rejects a point; lists all problems.
    """
    points, problems = [], _unknown(grid.values, _varied(tuple(map(type, options)), fixed))
    if not problems and max(len(point_name(point)) for point in grid.points()) > _LONGEST_NAME:
        problems.append(
            f"the names of the options and values must fit into {_LONGEST_NAME} bytes, because they name a folder; "
            f"received {len(grid.values)} options; vary fewer"
        )
    for point in grid.points() if not problems else ():
        try:
            points.append(tuple(at_point(option, point) for option in options))
        except ValueError as error:
            problems.append(str(error))
    raise_if_any(dict.fromkeys(problems), "grid")
    return points


def at_point(options: typing.Any, point: Point) -> typing.Any:
    """Copies a dataclass instance with a point's values; ignores the point's other options."""
    names = {field.name for field in dataclasses.fields(options)}
    return dataclasses.replace(options, **{name: value for name, value in point.items() if name in names})


def parse_grid(texts: Sequence[str], options: tuple[type, ...], *, fixed: Collection[str] = ()) -> Grid:
    """Parses `--grid` arguments.

    Args:
      texts: names of published grids, or `option=value,value`. Your values override a published grid's. `none` is None,
        for options that accept it.
      options: dataclasses; the grid may vary their numeric and string fields.
      fixed: fields that the grid must not vary.
    Raises:
      UserError: an argument cannot be parsed; lists all problems.
    """
    fields = _varied(options, fixed)
    values: dict[str, tuple[Value, ...]] = {}
    problems: list[str] = []
    varied: set[str] = set()
    for text in texts:
        name, separator, listed = text.partition("=")
        option = name.strip().replace("-", "_")
        if not separator and text in PUBLISHED:
            values |= {key: published for key, published in PUBLISHED[text].values.items() if key not in varied}
        elif not separator:
            problems.append(f"a grid is option=value,value or one of {', '.join(PUBLISHED)}; received {text!r}")
        elif option not in fields:
            problems += _unknown([option], fields)
        elif option in varied:
            problems.append(f"{option}= must be given once; received a second; list all its values after the first")
        else:
            varied.add(option)
            try:
                values[option] = tuple(_value(value.strip(), fields[option]) for value in listed.split(","))
            except ValueError as error:
                problems.append(f"{option} {error}")
    raise_if_any(problems, "grid")
    return Grid(values)


def value_text(value: Value) -> str:
    """Formats a value as you write it in a grid."""
    return "none" if value is None else str(value)


def _unknown(names: Collection[str], varied: Collection[str]) -> list[str]:
    received = [name for name in names if name not in varied]
    return [f"a grid may vary {', '.join(varied)}; received {', '.join(received)}"] if received else []


def _varied(options: tuple[type, ...], fixed: Collection[str]) -> dict[str, OptionField]:
    """Returns the fields a grid may vary."""
    fields = itertools.chain.from_iterable(describe_options(option, fixed) for option in options)
    return {field.name: field for field in fields if field.kind != "bool" and not field.many}


def _value(text: str, field: OptionField) -> Value:
    try:
        value: Value = parse_value(field, OFF if text == "none" and field.optional else text)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("must be finite")
    except ValueError as error:
        raise ValueError(f"{error}; received {text!r}") from None
    return value
