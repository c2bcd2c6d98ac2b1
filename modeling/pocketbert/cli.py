"""The `pocketbert` command: a table of commands, each imported when it runs."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
from collections.abc import Sequence

from pocketbert import __version__
from pocketbert.commands import COMMANDS
from pocketbert.commands.command_line import Command, Options, parse
from pocketbert.commands.help_text import command_help, usage
from pocketbert.errors import UserError, did_you_mean

# Options that say what a command writes.
_OUTPUTS = ("output", "saved_model", "predictions")
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
    if arguments[0] == "--version":
        print(f"pocketbert {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        print(f"pocketbert: no command {name!r}{hint}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        _check_encoding(rest)
        code = _run(name, rest)
        # Here, and not as the interpreter exits, where nobody could say that it failed.
        sys.stdout.flush()
        return code
    except UserError as error:
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


def check_paths(options: Options) -> None:
    """Refuses outputs in which an input lies, or another output, before anything is read or written.

    Args:
      options: of any command; the options of `_OUTPUTS` say what is written, all other texts may name what is read.
    Raises:
      UserError: names both.
    """
    from pocketbert.outputs import check_apart, check_inputs

    outputs = [str(options.values[name]) for name in _OUTPUTS if options.values.get(name)]
    values: list[str] = []
    for field in options.fields:
        value = options.values[field.name]
        if field.name in _OUTPUTS or field.kind != "str" or field.choices or not value:
            continue
        # A run's own options may be read again where nothing is thrown away.
        if field.name != "config" or options.values.get("overwrite"):
            values += [each for each in (value if field.many else [value])]
    # Some options are NAME=PATH.
    values += [value.partition("=")[2] for value in values if "=" in value]
    for output in outputs:
        check_inputs(output, [value for value in values if value])
    check_apart(outputs)


def _run(name: str, arguments: Sequence[str]) -> int:
    for asked, all_options in (("--help-all", True), ("-h", False), ("--help", False), ("-help", False)):
        if asked in arguments:
            print(command_help(Command(name, arguments), all_options=all_options))
            return 0
    options = parse(name, arguments)
    check_paths(options)
    options.check()
    return int(options.module.run(options) or 0)
