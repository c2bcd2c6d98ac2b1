"""Grids: which options vary over which values, in which order, and how a command line says it.

Nothing here imports TensorFlow, and nothing knows what a run does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pocketbert.errors import raise_if_any
from pocketbert.training.published_grids import PUBLISHED, Value

Point = Mapping[str, Value]
Choose = typing.Literal["mean", "median", "max"]
# Of several seeds' metrics, the number that chooses a point → its name in `pocketbert.training.run.spread`.
STATISTICS: Mapping[str, str] = {"mean": "mean", "median": "median", "max": "maximum"}


@dataclass(frozen=True)
class Grid:
    """Options and the values that each takes; every combination is a point.

    Attributes:
      values: option → its values, in the order in which they are tried.

    Raises:
      UserError: no options, or an option without values or with one value twice.
    """

    values: Mapping[str, tuple[Value, ...]]

    def __post_init__(self) -> None:
        problems = [] if self.values else ["a grid needs an option with its values; received none"]
        for name, values in self.values.items():
            if not values or len(set(values)) != len(values):
                shown = ",".join(map(_text, values)) or "none"
                problems.append(f"{name} needs values that differ from one another; received {shown}")
        raise_if_any(problems, "grid")

    def points(self) -> list[Point]:
        """All combinations; the last option changes fastest."""
        return [dict(zip(self.values, values, strict=True)) for values in itertools.product(*self.values.values())]


def point_name(point: Point) -> str:
    """The options and values of a point, as they may name a folder: `learning_rate=2e-05,epochs=3`."""
    return ",".join(f"{name}={_text(value)}" for name, value in point.items())


def options_at(options: tuple[typing.Any, ...], grid: Grid, *, fixed: Collection[str] = ()) -> list[typing.Any]:
    """The options of every point.

    Args:
      options: instances of dataclasses without a field of the same name; a grid changes their fields.
      grid: what varies.
      fixed: fields that may not vary.

    Raises:
      UserError: lists all that is wrong with the points: such a field, one that is not there, and what the dataclass
        itself finds.
    """
    made, problems = [], _unknown(grid.values, _varied(tuple(map(type, options)), fixed))
    for point in grid.points() if not problems else ():
        try:
            made.append(tuple(at_point(each, point) for each in options))
        except ValueError as error:
            problems.append(str(error))
    raise_if_any(dict.fromkeys(problems), "grid")
    return made


def at_point(options: typing.Any, point: Point) -> typing.Any:
    """An instance of a dataclass with those values of a point that are its fields."""
    names = {field.name for field in dataclasses.fields(options)}
    return dataclasses.replace(options, **{name: value for name, value in point.items() if name in names})


def parse_grid(texts: Sequence[str], options: tuple[type, ...], *, fixed: Collection[str] = ()) -> Grid:
    """The grid that a command line names.

    Args:
      texts: each the name of a published grid, or `option=value,value`. An option's own values take the place of a
        published grid's. `none` is None, where the option may be that.
      options: the dataclasses whose fields may vary: numbers and words.
      fixed: fields that may not.

    Raises:
      UserError: lists what cannot be read.
    """
    kinds = _varied(options, fixed)
    values: dict[str, tuple[Value, ...]] = {}
    problems: list[str] = []
    own: set[str] = set()
    for text in texts:
        name, found, listed = text.partition("=")
        option = name.strip().replace("-", "_")
        if not found and text in PUBLISHED:
            values |= {key: each for key, each in PUBLISHED[text].values.items() if key not in own}
        elif not found:
            problems.append(f"a grid is option=value,value or one of {', '.join(PUBLISHED)}; received {text!r}")
        elif option not in kinds:
            problems += _unknown([option], kinds)
        elif option in own:
            problems.append(f"all values of {option} stand behind one {option}=; received a second")
        else:
            own.add(option)
            try:
                values[option] = tuple(_value(each.strip(), kinds[option]) for each in listed.split(","))
            except ValueError as error:
                problems.append(f"{option} {error}")
    raise_if_any(problems, "grid")
    return Grid(values)


def _text(value: Value) -> str:
    return "none" if value is None else str(value)


def _unknown(names: Collection[str], varied: Collection[str]) -> list[str]:
    received = [name for name in names if name not in varied]
    return [f"a grid may vary {', '.join(varied)}; received {', '.join(received)}"] if received else []


def _varied(options: tuple[type, ...], fixed: Collection[str]) -> dict[str, tuple[type, ...]]:
    """The fields that a grid may vary, with the types of their values."""
    kinds = {
        field.name: _kinds(typing.get_type_hints(each)[field.name])
        for each in options
        for field in dataclasses.fields(each)
        if field.name not in fixed
    }
    return {name: accepted for name, accepted in kinds.items() if accepted}


def _kinds(hint: typing.Any) -> tuple[type, ...]:
    """The types of an option's values; none if a grid cannot vary it."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(str if typing.get_origin(part) is typing.Literal else part for part in parts)
    return kinds if set(kinds) <= {int, float, str, types.NoneType} else ()


def _value(text: str, kinds: tuple[type, ...]) -> Value:
    if text == "none" and types.NoneType in kinds:
        return None
    if str in kinds and text:
        return text
    try:
        number = int(text) if int in kinds else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        wanted = "whole numbers" if int in kinds else "words" if str in kinds else "numbers"
        raise ValueError(f"takes {wanted}{' or none' if types.NoneType in kinds else ''}; received {text!r}")
    return number
