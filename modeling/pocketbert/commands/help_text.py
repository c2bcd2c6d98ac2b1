"""Builds `--help` texts, and option tables for the reference pages."""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Iterable, Sequence

from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command
from pocketbert.options import ModelOrBundlePath, ModelPath, OptionField, PresetOrPath, value_name_of

_FLAG_WIDTH = 28
_MODELS = (
    "A model is a model directory, a run that holds one, a name for fetch, or hf:ORG/NAME[@REVISION], a model on "
    "Hugging Face's hub."
)


def usage() -> str:
    """Returns the text for `pocketbert --help`."""
    width = max(map(len, COMMANDS))
    lines = [
        "PocketBERT compresses a fine-tuned BERT into a small, verified TFLite model.",
        "",
        "usage: pocketbert COMMAND [--option=value ...]",
        "",
        *(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()),
        "",
        "Run pocketbert COMMAND --help for options and an example.",
        "Run pocketbert --version for the version.",
        "Start with: pocketbert quickstart --output runs/quickstart",
    ]
    return "\n".join(lines)


def command_help(command: Command, *, all_options: bool = False) -> str:
    """Returns the text for `pocketbert NAME --help` or `--help-all`: description, options by group, examples."""
    about, _, example = (command.module.__doc__ or "").strip().partition("\nExample:\n")
    columns = max(60, min(shutil.get_terminal_size((100, 24)).columns, 120))
    lines = [about.strip(), "", _usage_line(command)]
    for group, fields in grouped(command.fields):
        shown = [field for field in fields if all_options or field.common]
        if shown:
            lines += ["", f"{group}:", *itertools.chain.from_iterable(_described(field, columns) for field in shown)]
    if any(_takes_models(field) for field in command.fields):
        lines += ["", *textwrap.wrap(_MODELS, columns, break_on_hyphens=False)]
    if not all_options and not all(field.common for field in command.fields):
        lines += ["", f"Run pocketbert {command.name} --help-all for all options."]
    return "\n".join([*lines, "", "Example:", example.rstrip()])


def option_tables(fields: Sequence[OptionField]) -> list[str]:
    """Returns a Markdown table for each option group."""
    lines: list[str] = []
    for group, members in grouped(fields):
        lines += [f"**{group}**", "", "| Option | Default | Description |", "|---|---|---|"]
        for field in members:
            default = "required" if field.required else field.default_text or "–"
            cells = (f"`{_flag(field)}`", default, field.help)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    return lines


def grouped(fields: Iterable[OptionField]) -> list[tuple[str, list[OptionField]]]:
    """Groups options: required ones first, then groups in the order of their first option, `General` last."""
    groups: dict[str, list[OptionField]] = {}
    for field in fields:
        groups.setdefault("Required" if field.required else field.group, []).append(field)
    return sorted(groups.items(), key=lambda group: (group[0] != "Required", group[0] == "General"))


def _takes_models(field: OptionField) -> bool:
    return field.value_name in map(value_name_of, (ModelPath, ModelOrBundlePath, PresetOrPath))


def _usage_line(command: Command) -> str:
    required = [
        (field.positional if field.required else f"[{field.positional}]") if field.positional else _flag(field)
        for field in command.fields
        if field.required or field.positional
    ]
    return " ".join(["usage: pocketbert", command.name, *required, "[--option=value ...]"])


def _flag(field: OptionField) -> str:
    if field.positional:
        return field.positional
    if field.kind == "bool" and not field.many:
        return f"--[no]{field.flag}"
    value = "|".join(field.choices) if field.choices and len("|".join(field.choices)) < 40 else field.value_name
    return f"--{field.flag}={value},…" if field.many and not field.repeated else f"--{field.flag}={value}"


def _described(field: OptionField, columns: int) -> list[str]:
    text = field.help.removesuffix(".")
    if field.default_text and "default" not in text:
        text += f" (default: {field.default_text})"
    text = text.replace("`", "")
    lines = textwrap.wrap(text, columns - _FLAG_WIDTH, break_on_hyphens=False, break_long_words=False)
    indented = [" " * _FLAG_WIDTH + line for line in lines]
    flag = f"  {_flag(field)}"
    if len(flag) + 2 > _FLAG_WIDTH:
        return [flag, *indented]
    return [flag + indented[0][len(flag) :], *indented[1:]]
