"""A process to answer questions, one JSON line each, for work that must not share a process with the caller."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Self

# A model that needs longer to load or run is given up.
SECONDS_TO_ANSWER = 300.0


class WorkerFailed(Exception):
    """The process ended, did not answer, or could not run the model; the message says why."""


class WorkerProcess:
    """A process with a JSON line on stdin as question and one on stdout as answer, until it is closed.

    Args:
      command: the command line.
      environment: environment variables; None for this process's.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment
        )

    def ask(self, question: Any) -> Any:
        """Sends a question; returns the answer. Raises `WorkerFailed` without an answer in time, or for an `error`."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(self._cause_of_death()) from None
        if not select.select([self._process.stdout], [], [], SECONDS_TO_ANSWER)[0]:
            raise WorkerFailed(f"the process did not answer within {SECONDS_TO_ANSWER:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerFailed(self._cause_of_death())
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise WorkerFailed(f"the runtime cannot run the model: {' '.join(answer['error'].split())}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                # A dead process does not read the rest of its input.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cause_of_death(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return f"the process {how}" + (f"; its last output: {lines[-1][:200]}" if lines else "")
