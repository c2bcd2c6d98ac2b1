"""Runs code or a command in a process of its own, behind the import of a toy that adds a row to a table."""

from __future__ import annotations

import os
import subprocess
import sys


def run(toy: str, code: str, *arguments: object) -> str:
    """Runs code with `sys.argv[1:]`; returns what it prints."""
    command = [sys.executable, "-c", f"import sys, {toy}\n{code}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pocketbert(toy: str, *arguments: object) -> str:
    """Runs a command; returns what it prints."""
    return run(toy, "from pocketbert.cli import main\nsys.exit(main(sys.argv[1:]))", *arguments)
