"""List phones and run commands on them over adb, Android's debug bridge.

Works with Debian's adb 29 and newer. adb finds its server (`ANDROID_ADB_SERVER_PORT` sets another port).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from pocketbert import files
from pocketbert.errors import UserError
from pocketbert.notation import argument

# In options for a device, this value means this machine.
HOST = "host"
SHELL_SECONDS = 60.0
TRANSFER_SECONDS = 900.0
# Number of attempts if a command fails while the phone stays connected.
ATTEMPTS = 3
REMEDIES = {
    "unauthorized": "unlock it and allow USB debugging for this computer",
    "authorizing": "unlock it and allow USB debugging for this computer",
    "offline": "reconnect its cable",
    "no permissions": "give your user access to it (Debian: the package android-sdk-platform-tools-common), reconnect",
    "recovery": "start Android",
    "sideload": "start Android",
    "bootloader": "start Android",
}


class PhoneError(Exception):
    """A command on a phone failed; the message is a sentence."""


class Disconnected(PhoneError):
    """The phone is no longer connected."""


def find() -> str:
    """Finds adb in `PATH` or the Android SDK (`ANDROID_HOME`, `ANDROID_SDK_ROOT`); a `UserError` if there is none."""
    if path := shutil.which("adb"):
        return path
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        candidate = Path(os.environ.get(variable, "")) / "platform-tools" / "adb"
        if os.environ.get(variable) and os.access(candidate, os.X_OK):
            return str(candidate)
    raise UserError(
        f"{argument('device', python='a phone')} needs adb, in PATH or in the SDK that ANDROID_HOME names; received "
        "neither; Debian's package is adb, Android Studio's SDK has it in platform-tools"
    )


def states(adb: str) -> dict[str, str]:
    """Returns serial → state, `device` for phones that take commands; raises a `UserError` if adb does not work."""
    try:
        done = subprocess.run([adb, "devices"], capture_output=True, text=True, timeout=SHELL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"adb must list devices within {SHELL_SECONDS:.0f} s; it did not; try adb kill-server"
        ) from None
    if done.returncode:
        raise UserError(f"adb must be able to list devices; it printed {_sentence(done.stdout + done.stderr)}")
    lines = [line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line]
    # "no permissions (user in plugdev group; …)" is one state.
    return {serial: state.split(" (")[0].split(";")[0].strip() for serial, state in lines}


def problem(serial: str, connected: Mapping[str, str]) -> str | None:
    """Explains in a sentence why a phone cannot be used; None if it can."""
    if serial not in connected:
        others = ", ".join(connected) or "nothing"
        return f"{serial} must be connected; adb lists {others}; check the cable and USB debugging"
    state = connected[serial]
    return None if state == "device" else f"{serial} is {state}; {REMEDIES.get(state, 'reconnect it')}"


class Phone:
    """A phone ready for commands."""

    def __init__(self, adb: str, serial: str) -> None:
        self._command = [adb, "-s", serial]
        self.serial = serial

    def shell(self, *words: str, check: bool = True) -> str:
        """Runs a command on the phone and returns its output.

        Args:
          words: the command; quoted for the phone's shell.
          check: whether an exit code other than 0 is an error.
        Raises:
          PhoneError: the command failed.
          Disconnected: the phone is gone.
        """
        return self._run("shell", shlex.join(words), check=check)

    def ask(self, *words: str) -> str:
        """Runs a command whose exit code means yes or no; returns its output, or "" for no.

        A lost connection also gives no output, or only adb's own message. The command is then repeated, because this is
        no answer.

        Raises:
          PhoneError: adb failed in all attempts.
          Disconnected: the phone is gone.
        """
        errors = ""
        for _ in range(ATTEMPTS):
            done = self._adb("shell", shlex.join(words), seconds=SHELL_SECONDS)
            errors = done.stderr
            complains = re.search(r"^(?:adb: )?error: ", done.stderr, re.MULTILINE)
            if done.stdout or (done.returncode and not complains):
                return done.stdout
            self.check_connected()
        raise PhoneError(f"adb shell failed {ATTEMPTS} times: {_sentence(errors)}")

    def properties(self) -> dict[str, str]:
        """Android's properties by name."""
        lines = [line.strip().split("]: [", 1) for line in self.shell("getprop").splitlines() if "]: [" in line]
        return {name.removeprefix("["): value.removesuffix("]") for name, value in lines}

    def sha256(self, paths: Sequence[str]) -> dict[str, str]:
        """Returns path → SHA-256 for each of `paths` that is a file on the phone."""
        # The exit code is 1 if any file is missing.
        lines = [line.split(maxsplit=1) for line in self.ask("sha256sum", *paths).splitlines()]
        return {line[1]: line[0] for line in lines if len(line) == 2 and line[1] in paths}

    def push(self, sources: Mapping[str, Path]) -> int:
        """Copies files to the phone unless they are already there, checks the copies, and returns their number."""
        digests = {path: files.sha256(source) for path, source in sources.items()}
        on_phone, copied = self.sha256(list(digests)), 0
        for folder in sorted({str(PurePosixPath(path).parent) for path in digests}):
            self.shell("mkdir", "-p", folder)
        for path in digests:
            if on_phone.get(path) != digests[path]:
                self._transfer("push", str(sources[path]), path)
                copied += 1
        on_phone = self.sha256(list(digests))
        if wrong := [path for path in digests if on_phone.get(path) != digests[path]]:
            raise PhoneError(f"{', '.join(wrong)} did not arrive as sent")
        return copied

    def pull(self, path: str, destination: Path) -> None:
        """Copies a file from the phone."""
        self._transfer("pull", path, str(destination))

    def install(self, apk: Path) -> None:
        """Installs an APK, replacing an older one."""
        self._transfer("install", "-r", str(apk))

    @contextlib.contextmanager
    def stream(self, *words: str) -> Iterator[Stream]:
        """Yields lines from a command on the phone, as they arrive."""
        command = [*self._command, "shell", shlex.join(words)]
        nothing = subprocess.DEVNULL
        # Leaving the block closes the pipe and waits for the process, so end the process first.
        with subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing) as process:
            assert process.stdout
            try:
                yield Stream(process.stdout.fileno())
            finally:
                process.kill()

    def check_connected(self) -> None:
        """Raises `Disconnected` if the phone takes no commands."""
        done = self._adb("get-state", seconds=SHELL_SECONDS)
        if done.stdout.strip() != "device":
            raise Disconnected(f"the phone is gone ({_sentence(done.stdout + done.stderr)})")

    def _transfer(self, *words: str) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._run(*words, seconds=TRANSFER_SECONDS)
                return
            except Disconnected:
                raise
            except PhoneError as error:
                # The phone refused, and would refuse again.
                if attempt == ATTEMPTS or any(fragment in str(error) for fragment in ("No space left", "Failure [")):
                    raise

    def _run(self, *words: str, seconds: float = SHELL_SECONDS, check: bool = True) -> str:
        done = self._adb(*words, seconds=seconds)
        answer = done.stdout + done.stderr
        # adb's own errors share exit codes with commands on the phone.
        if done.returncode:
            self.check_connected()
            if check:
                if "No space left" in answer or "INSUFFICIENT_STORAGE" in answer:
                    whose = "this computer's disk" if words[0] == "pull" else "the phone's storage"
                    raise PhoneError(f"{whose} is full (No space left: adb {words[0]}); free some of it")
                raise PhoneError(f"adb {words[0]} failed: {_sentence(answer)}")
        return done.stdout

    def _adb(self, *words: str, seconds: float) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *words]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Disconnected(f"adb {words[0]} got no answer within {seconds:.0f} s") from None


class Stream:
    """Lines from a file descriptor, with a time limit for each."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""

    def line(self, seconds: float) -> str | None:
        """Returns the next line, or None if none arrives in time; raises an `EOFError` after the last line."""
        until = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                return None
            piece = os.read(self._descriptor, 65536)
            if not piece:
                raise EOFError
            self._pending += piece
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode(errors="replace").rstrip("\r")


def _sentence(text: str) -> str:
    """The last line of adb's output, without its prefix."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("adb: ").removeprefix("error: ")[:300] if lines else "nothing"
