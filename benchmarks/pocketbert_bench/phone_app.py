"""The phone app's names, arguments and messages: the counterpart to `android_app`'s BenchmarkActivity."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pocketbert.errors import UserError
from pocketbert_bench.adb import Phone, PhoneError
from pocketbert_runtime.json_reading import parse_json

APPLICATION = "org.pocketbert.benchmark"
SCREEN = f"{APPLICATION}/org.pocketbert.app.MainActivity"
BENCHMARK = f"{APPLICATION}/org.pocketbert.app.BenchmarkActivity"
PROCESS = f"{APPLICATION}:measure"
FILES = f"/sdcard/Android/data/{APPLICATION}/files"
LOG = ("logcat", "-v", "raw", "-s", "PocketBERT:I")
OLDEST_API = 26
ABI = "arm64-v8a"
DELEGATES = ("cpu", "gpu")
AFFINITIES = ("any", "big", "little")
MOST_REPEATS, MOST_THREADS = 100, 16

State = Literal["started", "cooling", "checking", "warming_up", "measuring", "done", "failed", "refused"]
_FINAL = ("done", "failed", "refused")

# The app logs twice a second while it measures and every five seconds while it cools down; opening a large model takes
# the longest without a message.
SILENCE_SECONDS = 90.0
# It cools down for at most 5 minutes, then warms up and measures for about 20 s, or for longer than its own limits
# if a single call takes seconds.
RUN_SECONDS = 900.0
POLL_SECONDS = 2.0
SECONDS_BEFORE_ANOTHER_STREAM = 0.2


class AppError(PhoneError):
    """The app rejected a run, crashed or stopped logging; the message is a sentence."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A line from the app in the log.

    Attributes:
      state: the run's state.
      done: progress, in the state's own unit.
      of: end of the progress.
      reason: a sentence, in states that need one.
      result: the result file's name, if one was written.
    """

    state: State
    done: int
    of: int
    reason: str | None
    result: str | None


def parse(line: str, run: str) -> Progress | None:
    """Parses the app's line about `run`; None for any other line; raises an `AppError` if the line is malformed."""
    try:
        content = parse_json(line, "the app's log")
    except UserError:
        return None
    if not isinstance(content, dict) or content.pop("run", None) != run:
        return None
    numbers = [content.get("done"), content.get("of")]
    if (
        set(content) == set(Progress.__dataclass_fields__)
        and content["state"] in get_args(State)
        and all(type(number) is int and number >= 0 for number in numbers)
        and isinstance(content["reason"], str | None)
        and content["result"] in (None, f"{run}.json")
    ):
        return Progress(**content)
    raise AppError(
        f"the app's log must have the form of this version of PocketBERT; received {line[:200]}; install its APK"
    )


def start_command(run: str, bundle: str, options: Mapping[str, str | int]) -> list[str]:
    """Returns the command on the phone to start a run.

    Args:
      run: the run's name, also used for its result file.
      bundle: the folder's name.
      options: `length`, `threads`, `delegate`, `affinity`, `weight_cache` and `repeat`.
    """
    words = ["am", "start", "-W", "-n", BENCHMARK, "--es", "run", run, "--es", "bundle", bundle]
    for name, value in options.items():
        words += ["--ei" if isinstance(value, int) else "--es", name, str(value)]
    return words


def start(phone: Phone, component: str, command: list[str] | None = None) -> None:
    """Starts an activity with a command that may carry extras; raises an `AppError` if Android does not start it."""
    answer = phone.shell(*(command or ["am", "start", "-W", "-n", component]))
    # `am` exits with 0 even after errors.
    if problem := re.search(r"^(?:Error:|Exception|java\.|Security exception).*", answer, re.MULTILINE):
        raise AppError(f"Android does not start the app: {problem[0][:200]}")


def follow(phone: Phone, run: str, tell: Callable[[Progress], Any]) -> Progress:
    """Waits until a run ends; returns the last line.

    Raises:
      AppError: the app crashed, or logged nothing for too long.
      Disconnected: the phone is gone.
    """
    end = time.monotonic() + RUN_SECONDS
    last: Progress | None = None
    heard = time.monotonic()
    while True:
        # Read from the log's beginning, so that a broken stream can be restarted; the run's name is new.
        with phone.stream(*LOG) as lines:
            with contextlib.suppress(EOFError):
                while True:
                    line = lines.line(POLL_SECONDS)
                    progress = parse(line, run) if line is not None else None
                    if progress and progress != last:
                        last, heard = progress, time.monotonic()
                        tell(progress)
                    if progress and progress.state in _FINAL:
                        return progress
                    if line is None and not phone.ask("pidof", PROCESS).strip():
                        return _last_words(phone, run)
                    _check_time(heard, end)
        phone.check_connected()
        _check_time(heard, end)
        time.sleep(SECONDS_BEFORE_ANOTHER_STREAM)


def _check_time(heard: float, end: float) -> None:
    now = time.monotonic()
    if now > heard + SILENCE_SECONDS:
        raise AppError(f"the app logged nothing for {SILENCE_SECONDS:.0f} s")
    if now > end:
        raise AppError(f"the app did not end its run within {RUN_SECONDS:.0f} s")


def _last_words(phone: Phone, run: str) -> Progress:
    """Reads an ended process's last output, which may still arrive."""
    lines = phone.shell(*LOG, "-d").splitlines()
    for progress in (parse(line, run) for line in reversed(lines)):
        if progress and progress.state in _FINAL:
            return progress
    raise AppError("the app's process ended without a result: it crashed, or Android killed it for its memory")
