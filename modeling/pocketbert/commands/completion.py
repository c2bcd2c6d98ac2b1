"""Complete commands, options and values in your shell.

The command prints a completion script. Save it where your shell finds it, as in the example.

Example:
  pocketbert completion bash > ~/.local/share/bash-completion/completions/pocketbert
  pocketbert completion zsh > ~/.zfunc/_pocketbert
  pocketbert completion fish > ~/.config/fish/completions/pocketbert.fish
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import ClassVar, Literal

from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command, Options
from pocketbert.options import (
    BundlePath,
    ModelOrBundlePath,
    ModelPath,
    OptionField,
    PresetOrPath,
    option,
    value_name_of,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Shell to complete in.

    Attributes:
      shell: `bash`, `zsh` or `fish`.
    """

    GROUP: ClassVar = "Shell"

    shell: Literal["bash", "zsh", "fish"] = option(positional="SHELL")


OPTIONS = (CompletionOptions,)
_MODEL_VALUES = tuple(map(value_name_of, (ModelPath, BundlePath, ModelOrBundlePath)))


def run(options: Options) -> None:
    """Prints the script on stdout."""
    print(script(options[CompletionOptions].shell), end="")


def script(shell: Literal["bash", "zsh", "fish"]) -> str:
    """Returns the completion script for a shell."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()


def _all_fields(name: str) -> dict[str, OptionField]:
    """Returns a command's options by flag, including those for all methods."""
    command = Command(name)
    variants = [command]
    if hasattr(command.module, "variants"):
        variants += [Command(name, arguments) for arguments in command.module.variants()]
    return {field.flag: field for variant in variants for field in variant.fields}


def _values(field: OptionField) -> list[str]:
    if field.suggestions:
        return list(field.suggestions())
    return list(field.choices or _names(field))


def _names(field: OptionField) -> list[str]:
    """Returns names of presets and models for the option, besides paths."""
    from pocketbert.data.assets import model_names
    from pocketbert.presets import presets

    if field.value_name == value_name_of(PresetOrPath):
        return [*presets(), *model_names()]
    return list(model_names()) if value_name_of(ModelPath) in field.value_name.split("|") else []


def _words(name: str) -> tuple[list[str], dict[str, list[str]], list[str]]:
    """Returns flags, known values by flag, and known positional values."""
    fields = _all_fields(name)
    words, values, positional = ["--help", "--help-all"], {}, []
    for flag, field in fields.items():
        if field.positional:
            positional = _values(field)
            continue
        words.append(f"--{flag}" if field.kind == "bool" else f"--{flag}=")
        if _values(field):
            values[flag] = _values(field)
    return words, values, positional


def _bash() -> str:
    lines = [
        "# bash completion for pocketbert",
        "_pocketbert() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" flag="" words="" values=""',
        "  if [[ $COMP_CWORD -eq 1 ]]; then",
        f'    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)} --help --version" -- "$word")); return',
        "  fi",
        # Bash splits words at "=".
        '  if [[ $word == "=" ]]; then flag="${COMP_WORDS[COMP_CWORD-1]}"; word=""',
        '  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then flag="${COMP_WORDS[COMP_CWORD-2]}"',
        '  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == --* ]]; then flag="${COMP_WORDS[COMP_CWORD-1]}"; fi',
        '  case "$command" in',
    ]
    for name in COMMANDS:
        words, values, positional = _words(name)
        lines += [
            f"    {name})",
            f"      words={shlex.quote(' '.join([*words, *positional]))}",
            '      case "$flag" in',
        ]
        lines += [f"        --{flag}) values={shlex.quote(' '.join(choices))} ;;" for flag, choices in values.items()]
        lines += ["      esac ;;"]
    lines += [
        "  esac",
        '  if [[ -n $values ]]; then COMPREPLY=($(compgen -W "$values" -- "$word")); fi',
        "  if [[ ${#COMPREPLY[@]} -gt 0 ]]; then return; fi",
        '  if [[ -n $flag && $word != --* ]]; then COMPREPLY=($(compgen -f -- "$word")); return; fi',
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        '  if [[ ${#COMPREPLY[@]} -eq 0 ]]; then COMPREPLY=($(compgen -f -- "$word")); return; fi',
        "  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace",
        "}",
        "complete -F _pocketbert pocketbert",
    ]
    return "\n".join(lines) + "\n"


def _zsh() -> str:
    lines = ["#compdef pocketbert", "_pocketbert() {", "  local -a commands; commands=("]
    lines += [f"    {shlex.quote(f'{name}:{summary}')}" for name, (_, summary) in COMMANDS.items()]
    lines += ["  )", "  if (( CURRENT == 2 )); then _describe command commands; return; fi", '  case "$words[2]" in']
    for name in COMMANDS:
        lines.append(f"    {name}) _arguments '*:file:_files' \\")
        for flag, field in _all_fields(name).items():
            if field.positional:
                continue
            text = field.help.split(";")[0]
            for special in "\\[]:":
                text = text.replace(special, f"\\{special}")
            files = "_files -/" if field.value_name in ("DIR", *_MODEL_VALUES) else "_files"
            choices = " ".join(_values(field))
            action = f"({choices})" if choices else files
            if choices and _names(field):
                action = f"{{compadd -- {choices}; _files}}"
            takes = "" if field.kind == "bool" else f":{flag}:{action}"
            end = "=" if takes else ""
            lines.append(f"      {shlex.quote(f'*--{flag}{end}[{text}]{takes}')} \\")
        lines.append("      '--help[explain the command]' '--help-all[list all options]' ;;")
    return "\n".join([*lines, "  esac", "}", '_pocketbert "$@"', ""])


def _fish() -> str:
    lines = ["# fish completion for pocketbert", "complete -c pocketbert -n __fish_use_subcommand -f -l version"]
    for name, (_, summary) in COMMANDS.items():
        lines.append(f"complete -c pocketbert -n __fish_use_subcommand -f -a {name} -d {_fish_quoted(summary)}")
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for flag, field in _all_fields(name).items():
            choices = " ".join(_values(field))
            if field.positional:
                lines += [f"complete -c pocketbert {seen} -a {_fish_quoted(choices)}"] if choices else []
                continue
            only = " -r" if _names(field) else " -x"
            takes = "" if field.kind == "bool" else f"{only} -a {_fish_quoted(choices)}" if choices else " -r"
            about = _fish_quoted(field.help.split(";")[0])
            lines.append(f"complete -c pocketbert {seen} -l {flag}{takes} -d {about}")
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
