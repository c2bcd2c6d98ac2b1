"""Steps in fresh environments for `wheel_check.py`."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path


class CheckFailed(Exception):
    """A step failed; the message has its name and output."""


def timed(name: str, *command: str | Path, folder: Path) -> None:
    """Runs a command and prints its time."""
    began = time.monotonic()
    run(*command, folder=folder)
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)


def run(*command: str | Path, folder: Path) -> str:
    """Runs a command in a folder; returns its standard output. Raises `CheckFailed` if it fails."""
    # The checkout and your pip constraints must have no influence.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CheckFailed(
            f"{' '.join(map(str, command[:8]))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout
