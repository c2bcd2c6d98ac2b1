"""Runs code, a command or the Java core in a process of its own, with a toy that adds a row to a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
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


def commands(toy: str, *lines: Sequence[object]) -> list[str]:
    """Runs commands one after the other in one process, as beginning one takes seconds; returns what each prints."""
    program = (
        "import contextlib, io, json, cheap_tensorflow\n"
        "from pocketbert.cli import main\n"
        "printed = []\n"
        "for line in json.loads(sys.argv[1]):\n"
        # A few steps, which take less time than their graph.
        "  without_graphs = cheap_tensorflow.eager() if line[0] == 'finetune' else contextlib.nullcontext()\n"
        "  with contextlib.redirect_stdout(io.StringIO()) as output, without_graphs:\n"
        "    code = main(line)\n"
        "  if code:\n"
        "    sys.exit(code)\n"
        "  printed.append(output.getvalue())\n"
        "print(json.dumps(printed))"
    )
    arguments = json.dumps([[str(part) for part in line] for line in lines])
    return json.loads(run(toy, program, arguments).splitlines()[-1])


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
