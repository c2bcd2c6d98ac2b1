"""Runs files on LiteRT in forks of a process that has imported it: the gate of each export would import it anew."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import forks

from pocketbert_export.tflite import runtimes

_IMPORTED = ("numpy", "ai_edge_litert.interpreter")


def use() -> None:
    """Runs LiteRT in forks from now on; other runtimes have a Python of their own."""
    runtimes.subprocess = SimpleNamespace(run=_run, DEVNULL=subprocess.DEVNULL)  # type: ignore[assignment]


def _run(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    program, *arguments = map(str, command)
    if [program, *arguments[:2]] != [sys.executable, str(runtimes.SCRIPT), runtimes.LITERT]:
        return subprocess.run(command, **options)
    environment: Mapping[str, str] = options["env"]
    return forks.run(runtimes.SCRIPT, arguments[1:], environment=environment, imported=_IMPORTED)
