"""Runs programs in a process of their own without importing TensorFlow anew for each of them.

A server, one for each of pytest's processes, has imported it and forks for every program. No operation has run before,
so that a program may still declare devices. Working directory, environment, output, exit code and death are its own.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HELPERS = Path(__file__).parent
SOURCES = [str(HELPERS.parents[1] / name) for name in ("runtime", "modeling", "export", "benchmarks")]
# What most programs import; the rest they import themselves.
IMPORTED = ("tensorflow", "tensorflow_text", "tf_keras", "sklearn.metrics", "scipy.stats", "pocketbert.model")


def run(
    program: Path | str,
    arguments: Sequence[str] = (),
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    paths: Sequence[Path] = (),
    imported: tuple[str, ...] = IMPORTED,
    cheap: bool = False,
    timeout: int = 600,
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end.

    Args:
      program: a file, or source.
      arguments: what follows its name.
      folder: its working directory; None: this process'.
      environment: added to this process'.
      paths: folders of modules that it imports, besides the packages' own.
      imported: modules that it finds imported.
      cheap: with the settings of `cheap_tensorflow`.
      timeout: seconds until it is killed.
    """
    server = _server(imported)
    assert server.stdin and server.stdout
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(program, str):
            program, source = Path(scratch) / "program.py", program
            program.write_text(source, encoding="utf-8")
        request = {
            "program": str(program),
            "arguments": list(arguments),
            "folder": str(folder or Path.cwd()),
            "environment": {**os.environ, **(environment or {})},
            "output": scratch,
            "paths": [str(path) for path in paths],
            "cheap": cheap,
            "timeout": timeout,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "the server of forks has ended"
        outputs = [(Path(scratch) / name).read_text("utf-8", errors="replace") for name in ("1", "2")]
    return subprocess.CompletedProcess([str(program), *arguments], json.loads(answer), *outputs)


def run_killed(moments: str, arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a `pocketbert` command that is killed at these moments and begun again; see `killed_runs.py`."""
    answer = run(HELPERS / "killed_runs.py", [moments, *arguments], environment=environment, paths=[HELPERS])
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer


def run_on_devices(program: str, *paths: Path) -> str:
    """Runs source that declares devices, which has to be done before TensorFlow starts; returns what it prints."""
    answer = run(program, paths=[HELPERS, *paths])
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


@functools.cache
def _server(imported: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *imported]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    assert server.stdin
    # The end of the requests ends it; waited for, its time counts as the tests'.
    server.stdin.close()
    try:
        server.wait(timeout=5)
    except subprocess.TimeoutExpired:
        server.kill()


def _serve() -> None:
    sys.path[:1] = SOURCES
    requests = [os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")]
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if "tensorflow" in sys.modules:
        # Each program would make a tokenizer's tables again.
        normalization = importlib.import_module("pocketbert.tokenizers.bert_unicode").normalization
        for lowercase in (True, False):
            normalization(lowercase)
    for line in requests[0]:
        child = os.fork()
        if child == 0:
            _run(json.loads(line))
        requests[1].write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        requests[1].flush()


def _run(request: dict[str, Any]) -> None:
    code: Any = 1
    try:
        for number in (1, 2):
            os.dup2(os.open(os.path.join(request["output"], str(number)), os.O_WRONLY | os.O_CREAT), number)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        signal.alarm(request["timeout"])
        sys.path[len(SOURCES) : len(SOURCES)] = request["paths"]
        sys.argv = [request["program"], *request["arguments"]]
        if request["cheap"]:
            runpy.run_path(str(HELPERS / "cheap_tensorflow.py"))["use"]()
        runpy.run_path(request["program"], run_name="__main__")
        code = 0
    except SystemExit as ending:
        code = ending.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


if __name__ == "__main__":
    _serve()
