"""Options as frozen dataclasses, described once for Python and the command line.

Fields, defaults and the `Attributes:` section become flags, `--help`, `--config` files, shell completion and reference
pages (`describe_options`). Two class variables add to that: `GROUP`, the heading in `--help`, and `COMMON`, the fields
in `--help` without `--help-all` (default: all). Do not import TensorFlow at the top of a module with such a dataclass.
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import io
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pocketbert.errors import did_you_mean

# None in a flag or a `--config` file.
OFF = "off"
# Text whose flag shows another name than TEXT.
FilePath = Annotated[str, "FILE"]
DirectoryPath = Annotated[str, "DIR"]
AnyPath = Annotated[str, "PATH"]
PresetOrPath = Annotated[str, "PRESET|PATH"]
TaskPath = Annotated[str, "TASK=PATH"]
# Models: a model directory, a run that holds one, or a name for `fetch` or on the hub; a bundle, or a run that holds
# one; or either.
ModelPath = Annotated[str, "MODEL"]
BundlePath = Annotated[str, "BUNDLE"]
ModelOrBundlePath = Annotated[str, "MODEL|BUNDLE"]
_VALUE_NAMES = {"int": "N", "float": "NUMBER", "str": "TEXT", "bool": "true|false"}
_RULES = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def value_name_of(path: Any) -> str:
    """Returns the name for a kind of path in flags, such as FILE."""
    name: str = typing.get_args(path)[1]
    return name


@dataclass(frozen=True, kw_only=True)
class OptionField:
    """One option.

    Attributes:
      name: the field's name.
      kind: type of the value, or of each value.
      value_name: the value's name in the flag, for example FILE.
      many: whether the value is a tuple.
      optional: whether the value may be None.
      choices: allowed values; empty for any.
      words: allowed texts besides numbers.
      required: whether there is no default.
      default: the default; None if the option is required.
      help: description from the dataclass' docstring.
      group: heading in `--help`.
      common: whether `--help` lists the option, or only `--help-all`.
      repeated: whether you repeat the flag for each value, instead of passing a list with commas.
      positional: name in the usage line for an argument without a flag, else empty.
      suggestions: returns values for shell completion.
    """

    name: str
    kind: Literal["bool", "int", "float", "str"]
    value_name: str
    many: bool
    optional: bool
    choices: tuple[str, ...]
    words: tuple[str, ...]
    required: bool
    default: Any
    help: str
    group: str
    common: bool
    repeated: bool
    positional: str
    suggestions: Callable[[], Iterable[str]] | None

    @property
    def flag(self) -> str:
        """The flag's name, without dashes."""
        # A trailing underscore avoids a keyword, as in `from_`.
        return self.name.rstrip("_").replace("_", "-")

    @property
    def default_text(self) -> str:
        """The default as in a flag; empty if it is not worth showing."""
        if self.required or self.default is False or self.default in ((), ""):
            return ""
        if self.default is None:
            # For texts and switches, the description explains None.
            return OFF if self.kind in ("int", "float") and not self.many else ""
        return "on" if self.default is True else format_value(self, self.default)


def option(
    default: Any = dataclasses.MISSING,
    *,
    repeated: bool = False,
    positional: str = "",
    suggestions: Callable[[], Iterable[str]] | None = None,
) -> Any:
    """Makes a dataclass field with further attributes for `OptionField`."""
    metadata = {"repeated": repeated, "positional": positional, "suggestions": suggestions}
    return dataclasses.field(default=default, metadata=metadata)


def describe_options(options: type, without: Collection[str] = ()) -> tuple[OptionField, ...]:
    """Describes a dataclass' options in field order, except those in `without`.

    Types are `bool`, `int`, `float`, `str`, a path such as `FilePath`, `Literal[...]` with strings, `tuple[..., ...]`
    of these, or `Annotated[str, function]` with a function that returns the values; each with or without `| None`; or a
    number or some words, such as `int | Literal["data"]`.

    Raises:
      ValueError: a field has another type, or no description in the docstring's `Attributes:` section.
    """
    texts: dict[str, str] = {}
    for base in reversed(options.__mro__):
        texts |= _attribute_texts(inspect.cleandoc(base.__doc__ or ""))
    hints = typing.get_type_hints(options, include_extras=True)
    group = getattr(options, "GROUP", "Options")
    common = getattr(options, "COMMON", None)
    described = []
    for item in dataclasses.fields(options):
        if item.name in without:
            continue
        if item.name not in texts:
            raise ValueError(f"{options.__name__}.{item.name} must be described in the class docstring; it is not")
        default = item.default_factory() if callable(item.default_factory) else item.default
        required = default is dataclasses.MISSING
        described.append(
            OptionField(
                name=item.name,
                **_typed(f"{options.__name__}.{item.name}", hints[item.name]),
                required=required,
                default=None if required else default,
                help=texts[item.name],
                group=group,
                common=common is None or item.name in common,
                repeated=item.metadata.get("repeated", False),
                positional=item.metadata.get("positional", ""),
                suggestions=item.metadata.get("suggestions"),
            )
        )
    return tuple(described)


def parse_value(field: OptionField, text: str) -> Any:
    """Parses a flag's value, or one occurrence of a repeated flag.

    Raises:
      ValueError: the text is invalid. The message has the rule; the caller adds the flag and the received value.
    """
    if field.optional and text == OFF:
        return None
    if not field.many or field.repeated:
        return _parse_one(field, text)
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(f"must be a list with commas ({error})") from None
    if not text.strip() and field.kind == "str" and not field.choices:
        if field.default:
            # The default names something, such as a column, and the command can go without.
            return ()
        raise ValueError("must name at least one; leave the option out for none")
    return tuple(_parse_one(field, part.strip()) for part in rows[0] or [""])


def format_value(field: OptionField, value: Any) -> str:
    """Formats a value for `parse_value`."""
    if value is None:
        return OFF
    if isinstance(value, tuple):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([format_value(field, item) for item in value])
        return line.getvalue()
    if isinstance(value, bool):
        return str(value).lower()
    return re.sub(r"\.0$|(?<=e-)0", "", repr(value)) if isinstance(value, float) else str(value)


def option_problems(options: Any, may_be_zero: Collection[str] = ()) -> list[str]:
    """Lists problems with the values in an options dataclass, for its `__post_init__`.

    Args:
      options: an instance. Fields with choices need an allowed value, numbers must be positive; `| None` allows None.
      may_be_zero: numbers that may be zero, besides those in the dataclass' `MAY_BE_ZERO`.
    """
    problems = []
    may_be_zero = (*may_be_zero, *getattr(options, "MAY_BE_ZERO", ()))
    for name, hint in typing.get_type_hints(type(options), include_extras=True).items():
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        value = getattr(options, name)
        parts = _alternatives(hint)
        choices = _choices(parts[0])
        if (value is None and types.NoneType in parts) or value in _words(parts):
            continue
        if choices and value not in choices:
            problems.append(f"{name} must be one of {', '.join(choices)}; received {value!r}")
        elif isinstance(value, str) and {int, float} & {*parts}:
            rule = " or ".join([_RULES["int" if int in parts else "float"], *_words(parts)])
            problems.append(f"{name} must be {rule}; received {value!r}")
        elif name in may_be_zero and not value >= 0:
            problems.append(f"{name} must not be negative; received {value}")
        elif {int, float} & {*parts} and name not in may_be_zero and not value > 0:
            problems.append(f"{name} must be positive; received {value}")
    return problems


def _parse_one(field: OptionField, text: str) -> Any:
    if text in field.words:
        return text
    if field.choices and text not in field.choices:
        raise ValueError(f"must be one of {', '.join(field.choices)}{did_you_mean(text, field.choices)}")
    if "\0" in text:
        raise ValueError("must not have a null character")
    try:
        if field.kind == "bool":
            return {"true": True, "false": False}[text]
        return {"int": int, "float": float, "str": str}[field.kind](text)
    except (KeyError, ValueError):
        rule = f"must be {_RULES[field.kind]}"
        if field.many and not field.repeated:
            rule = f"must be a list of {_RULES[field.kind].removeprefix('a ')}s with commas, such as 1,2"
        raise ValueError(" or ".join([rule, *field.words, *([OFF] if field.optional else [])])) from None


def _typed(name: str, hint: Any) -> dict[str, Any]:
    """Reads `OptionField` attributes from an annotation."""
    alternatives = _alternatives(hint)
    words = _words(alternatives)
    inner = [one for one in alternatives if one is not types.NoneType and not (words and _choices(one))]
    optional, many = types.NoneType in alternatives, False
    if len(inner) == 1 and typing.get_origin(inner[0]) is tuple:
        many, inner = True, [typing.get_args(inner[0])[0]]
    value_name = None
    choices = _choices(inner[0])
    if len(inner) == 1 and typing.get_origin(inner[0]) is Annotated:
        plain, annotation = typing.get_args(inner[0])
        inner, value_name = [plain], None if choices else annotation
    kind = "str" if choices else getattr(inner[0], "__name__", "")
    if len(inner) != 1 or kind not in ("bool", "int", "float", "str") or not all(isinstance(c, str) for c in choices):
        raise ValueError(f"{name} must be a bool, int, float, str, Literal of str or a tuple of these; it is {hint}")
    value_name = "|".join([value_name or _VALUE_NAMES[kind], *words])
    typed = {"kind": kind, "value_name": value_name, "many": many, "optional": optional}
    return {**typed, "choices": choices, "words": words}


def _choices(hint: Any) -> tuple[Any, ...]:
    """Returns the allowed values in a `Literal`, or in an annotation with a function; else empty."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is Annotated:
        return tuple(arguments[1]()) if callable(arguments[1]) else ()
    return arguments if typing.get_origin(hint) is Literal else ()


def _words(alternatives: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the allowed words besides numbers."""
    numbers = {int, float} & {*alternatives}
    return tuple(word for alternative in alternatives for word in _choices(alternative)) if numbers else ()


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Reads field → description from a docstring's `Attributes:` section after `inspect.cleandoc`."""
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
