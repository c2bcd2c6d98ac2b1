"""Runs code, a command or the Java core in a process of its own, with a toy that adds a row to a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forks

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
JAR = ROOT / "android_app/host/target/pocketbert-host.jar"


def run(toy: str, code: str, *arguments: object) -> str:
    """Runs code with `sys.argv[1:]`; returns what it prints."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    program = f"import sys, {toy}\n{code}"
    done = forks.run(program, [*map(str, arguments)], environment=environment, paths=[forks.HELPERS, TOOLS], cheap=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def pocketbert(toy: str, *arguments: object) -> str:
    """Runs a command; returns what it prints."""
    return run(toy, "from pocketbert.cli import main\nsys.exit(main(sys.argv[1:]))", *arguments)


def java_host(toy: str, table: str, bundle: Path, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """Measures a bundle in Java with the toy's table, and again without; returns measurements and the refusal."""
    resource, result = folder / "org/pocketbert/bundle" / table, folder / "result.json"
    resource.parent.mkdir(parents=True)
    resource.write_text(
        run(toy, f"import java_tables\nprint(java_tables.tables()[{table!r}], end='')"), encoding="utf-8"
    )

    def host(path: str) -> subprocess.CompletedProcess[str]:
        command = ["java", "-cp", path, "org.pocketbert.host.Main", str(bundle), f"--output={result}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    with_table = host(f"{folder}:{JAR}")
    assert with_table.returncode == 0, with_table.stderr
    measurements = json.loads(result.read_text(encoding="utf-8"))["measurements"]
    result.unlink()
    without_table = host(str(JAR))
    assert without_table.returncode == 2
    return measurements, without_table.stderr
