"""Entry point of the `pocketbert` command. It imports a command only to run it."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from pocketbert import __version__
from pocketbert.commands import COMMANDS, inputs
from pocketbert.commands.command_line import Command, Options, parse
from pocketbert.commands.flag_notation import FlagNotation
from pocketbert.commands.help_text import command_help, usage
from pocketbert.errors import UserError, did_you_mean, printable
from pocketbert.notation import use_notation

# Options with output paths.
_OUTPUTS = ("output", "saved_model", "predictions")
_LESS_MEMORY = (
    "end other programs, use a machine with more memory, or, if the command has the option, pass a smaller batch size "
    "with --overwrite; otherwise run the same command to resume, if it supports that"
)
# Remedies for operating system errors.
_REMEDIES = {
    errno.ENOMEM: _LESS_MEMORY,
    errno.ENOSPC: "free some space, or choose an output on another disk",
    errno.EDQUOT: "free some space, or choose an output on another disk",
    errno.EFBIG: "choose an output on a disk that supports larger files",
    errno.EROFS: "choose an output on a writable disk",
    errno.EACCES: "choose a path with read and write permission",
    errno.EPERM: "choose a path with read and write permission",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "check the path; the file may have been removed",
}


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns 0 for success, 1 for a negative result (a failed verification), 2 for bad input."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"pocketbert {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        _report(f"pocketbert: no command {name!r}{hint}; the commands are {', '.join(COMMANDS)}")
        return 2
    try:
        _check_encoding(rest)
        code = _run(name, rest)
        # Flush here: a failure at exit could not be reported.
        sys.stdout.flush()
        return code
    except UserError as error:
        message = " ".join(str(error).split())
        _report(f"pocketbert {name}: {message} (see pocketbert {name} --help)")
        return 2
    except BrokenPipeError:
        raise
    except Exception as error:
        line = _system_message(error)
        if line is None:
            raise
        _report(f"pocketbert {name}: {line}")
        return 2
    except KeyboardInterrupt as error:
        number = error.number if isinstance(error, Terminated) else signal.SIGINT
        what = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
        _report(f"pocketbert {name}: {what}; run the same command to resume, if it supports that")
        return 128 + number


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end; it cleans up as after Ctrl-C.

    Attributes:
      number: signal number.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _terminate(number: int, _: object) -> NoReturn:
    # A second signal ends the process at once.
    signal.signal(number, signal.SIG_DFL)
    raise Terminated(number)


def run() -> None:
    """Entry point of the console script."""
    # Hides TensorFlow's notes on CPU instructions. TensorFlow reads it when it is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # `nohup` ignores SIGHUP.
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The terminal's encoding may lack a file name's characters.
        sys.stdout.reconfigure(errors="backslashreplace")
        if sys.stdout.isatty():
            sys.stdout = _Terminal(sys.stdout)
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout (head, less) has exited.
        code = 0
        _give_up_stdout()
    except OSError as error:
        code = 2
        _report(f"pocketbert: cannot write to standard output ({error.strerror})")
        _give_up_stdout()
    sys.exit(code)


class _Terminal(io.TextIOWrapper):
    """Standard output on a terminal: it must not obey control characters in labels, texts and file names."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, stream.errors, line_buffering=True)

    def write(self, text: str) -> int:
        return super().write(printable(text))


def _report(message: str) -> None:
    print(printable(message), file=sys.stderr)


def _give_up_stdout() -> None:
    """Redirects stdout, so that Python's flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _check_encoding(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"arguments and file names must be UTF-8; received {argument.encode('utf-8', 'backslashreplace')!r}"
                "; rename the file"
            ) from None


def _system_message(error: Exception) -> str | None:
    """Formats an operating system error as one line; None for any other error."""
    if isinstance(error, OSError) and error.errno is not None:
        what = f"{error.filename}: " if error.filename is not None else ""
        if error.filename2 is not None:
            what = f"{error.filename2}: "
        return f"{what}{error.strerror or error}; {_REMEDIES.get(error.errno, 'check the path and its permissions')}"
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"memory is full{f' ({text})' if text else ''}; {_LESS_MEMORY}"
    if not type(error).__module__.startswith("tensorflow"):
        return None
    # TensorFlow's own errors contain the system's message.
    for number, remedy in _REMEDIES.items():
        if os.strerror(number) in text:
            path = re.search(rf"(\S+); {os.strerror(number)}", text)
            return f"{f'{path[1]}: ' if path else ''}{os.strerror(number)}; {remedy}"
    if full := re.search(r"OOM when allocating tensor with shape\S+|[Oo]ut of memory|MemoryError: [^\n]{,80}", text):
        return f"memory is full ({full[0]}); {_LESS_MEMORY}"
    if "Collective ops is aborted" in text or type(error).__name__ == "UnavailableError":
        return (
            "all workers of the run must stay connected; another one has ended or cannot be reached; read its error "
            "message, then start the same command on all workers again to resume"
        )
    return None


def check_paths(options: Options) -> None:
    """Checks that no output contains an input or another output, before the command reads or writes.

    Args:
      options: any command's options. `_OUTPUTS` are outputs; all other texts may be input paths.
    Raises:
      UserError: two paths overlap.
    """
    from pocketbert.output_folders import check_apart, check_inputs

    outputs = [str(options.values[name]) for name in _OUTPUTS if options.values.get(name)]
    values: list[str] = []
    for field in options.fields:
        value = options.values[field.name]
        if field.name in _OUTPUTS or field.kind != "str" or field.choices or not value:
            continue
        # --config may be in the output folder, unless that is deleted.
        if field.name != "config" or options.values.get("overwrite"):
            values += [path for path in (value if field.many else [value])]
    # Some options are NAME=PATH.
    values += [value.partition("=")[2] for value in values if "=" in value]
    for output in outputs:
        check_inputs(output, [value for value in values if value])
    check_apart(outputs)


def _run(name: str, arguments: Sequence[str]) -> int:
    for flag, all_options in (("--help-all", True), ("-h", False), ("--help", False), ("-help", False)):
        if flag in arguments:
            print(command_help(Command(name, arguments), all_options=all_options))
            return 0
    options = parse(name, arguments)
    with use_notation(FlagNotation(name, options.arguments)):
        return _run_parsed(options)


def _run_parsed(options: Options) -> int:
    check_paths(options)
    options.check()
    # Options first, then files and models, and both before TensorFlow is imported.
    if hasattr(options.module, "check"):
        options.module.check(options)
    inputs.check(options)
    from pocketbert.temporary import temporary_files_go_with_the_run

    with temporary_files_go_with_the_run():
        return int(options.module.run(options) or 0)
