"""The `pocketbert` command: a table of commands, each imported when it runs."""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType

from absl import flags

from pocketbert.errors import UserError

# Name → (module, summary). A module has a docstring with an `Example:`, `define(flags)` and `run(flags)`. Flags that
# depend on others come from `define_chosen(flags, arguments)`, which sees the command line.
COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("pocketbert_bench.commands.quickstart", "the whole path on a real network and real text"),
    "bundle": ("pocketbert_export.commands.bundle", "from a file of examples to a verified bundle and its scores"),
    "presets": ("pocketbert.commands.presets", "list the architectures with sizes, parameters and FLOPs"),
    "fetch": ("pocketbert.commands.fetch", "get pinned weights and data"),
    "convert": ("pocketbert.commands.convert", "turn a foreign checkpoint into a model directory, or back"),
    "pretrain": ("pocketbert.commands.pretrain", "pretrain from scratch with MLM and NSP"),
    "finetune": ("pocketbert.commands.finetune", "train a model directory on a task"),
    "augment": ("pocketbert.commands.augment", "multiply training examples by replacing words, as TinyBERT does"),
    "pretrain-data": ("pocketbert.commands.pretrain_data", "turn plain text into pretraining examples"),
    "cache-teacher": ("pocketbert.commands.cache_teacher", "store what a teacher knows of a data set, for distill"),
    "distill": ("pocketbert.commands.distill", "teach a small student what a teacher knows"),
    "evaluate": ("pocketbert_export.commands.evaluate", "score a model directory or a bundle on a task"),
    "predict": ("pocketbert_export.commands.predict", "answer lines of text with a model directory or a bundle"),
    "glue-scores": ("pocketbert_export.commands.glue_scores", "score models of GLUE tasks in the papers' columns"),
    "glue-submission": ("pocketbert_export.commands.glue_submission", "write the zip that the GLUE server takes"),
    "export": ("pocketbert_export.commands.export", "write a verified TFLite bundle"),
    "verify": ("pocketbert_export.commands.verify", "run the gate on a bundle again"),
    "bench": ("pocketbert_bench.commands.bench", "time bundles on this machine, or on phones"),
    "report": ("pocketbert_bench.commands.report", "draw plots and one HTML page from result files"),
}


# Flags that say what a command writes.
_OUTPUTS = ("output", "saved-model", "predictions")
# What to do about errors of the operating system.
_REMEDIES = {
    errno.ENOSPC: "free some space, or choose an output on another disk",
    errno.EDQUOT: "free some space, or choose an output on another disk",
    errno.EFBIG: "choose an output on a disk that takes larger files",
    errno.EROFS: "choose an output on a disk that you may write",
    errno.EACCES: "choose a path that you may read or write",
    errno.EPERM: "choose a path that you may read or write",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "it was removed meanwhile, or never there; check the path",
}


def usage() -> str:
    """The text of `pocketbert --help`."""
    width = max(map(len, COMMANDS))
    lines = [
        "PocketBERT makes the small, fast, proven BERT that runs on a phone.",
        "",
        "usage: pocketbert COMMAND [--flag=value ...]",
        "",
        *(f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()),
        "",
        "pocketbert COMMAND --help explains a command and shows an example.",
        "Start with: pocketbert quickstart --output runs/quickstart",
    ]
    return "\n".join(lines)


def command_flags(name: str, arguments: Sequence[str] = ()) -> tuple[ModuleType, flags.FlagValues]:
    """A command's module, and the flags that it takes on a command line with these arguments, not yet parsed."""
    module = importlib.import_module(COMMANDS[name][0])
    flag_values = flags.FlagValues()
    module.define(flag_values)
    if hasattr(module, "define_chosen"):
        module.define_chosen(flag_values, arguments)
    for flag_name in list(flag_values):
        flag_values.register_flag_by_module(name, flag_values[flag_name])
    return module, flag_values


def command_help(name: str, module: ModuleType, flag_values: flags.FlagValues) -> str:
    """The text of `pocketbert NAME --help`: the module's docstring, then its flags."""
    lines = [(module.__doc__ or "").strip(), "", f"Flags of pocketbert {name}:"]
    for flag in sorted(flag_values.get_flags_for_module(name), key=lambda flag: flag.name):
        default = "" if flag.default is None else f" (default: {flag.default_as_str})"
        lines.append(f"  --{flag.name}: {flag.help}{default}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Runs one command.

    Args:
      arguments: what follows `pocketbert` on the command line.
    Returns:
      0 for success, 1 for a negative result (a gate that failed), 2 for bad input.
    """
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"pocketbert: no command {name!r}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        _check_encoding(rest)
        code = _run(name, rest)
        # Here, and not as the interpreter exits, where nobody could say that it failed.
        sys.stdout.flush()
        return code
    except (UserError, flags.Error) as error:
        message = " ".join(str(error).split())
        print(f"pocketbert {name}: {message} (see pocketbert {name} --help)", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except Exception as error:
        line = _system_message(error)
        if line is None:
            raise
        print(f"pocketbert {name}: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"pocketbert {name}: interrupted; the same command resumes where it can", file=sys.stderr)
        return 130


def run() -> None:
    """Entry point of the console script."""
    # TensorFlow's notes on the machine's instructions would drown ours; read when it is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name may hold what the terminal's encoding cannot say.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout (head, less) has gone.
        code = 0
        _give_up_stdout()
    except OSError as error:
        code = 2
        print(f"pocketbert: the answer cannot be written to standard output ({error.strerror})", file=sys.stderr)
        _give_up_stdout()
    sys.exit(code)


def _give_up_stdout() -> None:
    """Lets Python's flush at exit succeed, whatever stdout is."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_encoding(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"arguments and names of files must be UTF-8; received {argument.encode('utf-8', 'backslashreplace')!r}"
                "; rename the file"
            ) from None


def _system_message(error: Exception) -> str | None:
    """One line for an operating system error; None for any other error."""
    if isinstance(error, OSError) and error.errno is not None:
        what = f"{error.filename}: " if error.filename is not None else ""
        if error.filename2 is not None:
            what = f"{error.filename2}: "
        return f"{what}{error.strerror or error}; {_REMEDIES.get(error.errno, 'check the path and its permissions')}"
    # TensorFlow writes some files by itself, and puts the system's words into errors of its own.
    text = " ".join(str(error).split())
    for number, remedy in _REMEDIES.items():
        if type(error).__module__.startswith("tensorflow") and os.strerror(number) in text:
            path = re.search(rf"(\S+); {os.strerror(number)}", text)
            return f"{f'{path[1]}: ' if path else ''}{os.strerror(number)}; {remedy}"
    return None


def check_paths(flag_values: flags.FlagValues, positional: Sequence[str]) -> None:
    """Refuses outputs in which an input lies, or another output, before anything is read or written.

    Args:
      flag_values: of any command; the flags of `_OUTPUTS` say what is written, all others may name what is read.
      positional: what may be read besides.
    Raises:
      UserError: names both.
    """
    from pocketbert.outputs import check_apart, check_inputs

    outputs = [str(flag_values[name].value) for name in _OUTPUTS if name in flag_values and flag_values[name].value]
    values: list[str] = list(positional)
    for name in flag_values:
        value = flag_values[name].value
        if name not in _OUTPUTS and not isinstance(flag_values[name], flags.EnumFlag):
            values += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    # Some flags are NAME=PATH.
    values += [value.partition("=")[2] for value in values if "=" in value]
    for output in outputs:
        check_inputs(output, [value for value in values if value])
    check_apart(outputs)


def _run(name: str, arguments: Sequence[str]) -> int:
    module, flag_values = command_flags(name, arguments)
    if any(argument in ("-h", "--help", "-help") for argument in arguments):
        print(command_help(name, module, flag_values))
        return 0
    positional = flag_values([name, *arguments])[1:]
    check_paths(flag_values, positional)
    if not hasattr(module, "POSITIONAL") and positional:
        raise UserError(f"flags only, as --name=value; received {' '.join(positional)}")
    if hasattr(module, "POSITIONAL"):
        return int(module.run(flag_values, positional) or 0)
    return int(module.run(flag_values) or 0)
