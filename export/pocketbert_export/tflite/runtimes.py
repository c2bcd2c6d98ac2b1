"""Run files on the runtimes for bundles, each in its own process.

A runtime may crash on an unsupported file, and TFLite 2.16 needs an older NumPy than ours. Only outputs count: an old
runtime may load an unsupported file and return zeros.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_export.tflite.delegates import DelegateShare
from pocketbert_export.tflite.environments import LockedEnvironment

TFLITE_2_16 = "tflite-2.16"
LITERT = "litert"
LOCK_FILE = Path(__file__).with_name("tflite_2_16.lock")
SCRIPT = Path(__file__).with_name("interpreter_process.py")

# A batch: signature → input name → array [calls, length]. RuntimeOutputs: signature → output name → [calls, ...].
Batches = Mapping[str, Mapping[str, np.ndarray]]
RuntimeOutputs = dict[str, dict[str, np.ndarray]]


class RuntimeRefused(Exception):
    """A runtime failed to load or run the file; the message is the runtime's."""


@dataclass(frozen=True)
class RuntimeAnswers:
    """A runtime's outputs and version.

    Attributes:
      version: the runtime's version.
      answers: the outputs.
      xnnpack: operators in XNNPACK, as counted by the runtime; None if it delegated none.
    """

    version: str
    answers: RuntimeOutputs
    xnnpack: DelegateShare | None = None


def run(runtime: str, model: str | os.PathLike[str], batches: Batches, threads: int = 1) -> RuntimeAnswers:
    """Calls a model's signatures, one row at a time; returns outputs as signature → output name → array `[calls, ...]`.

    Args:
      runtime: a name in `RUNTIMES`.
      model: path to the `.tflite` file.
      batches: signature → input name → array `[calls, length]`, int32.
      threads: number of interpreter threads.
    Raises:
      RuntimeRefused: the runtime failed, with its reason.
      UserError: there is no such runtime.
    """
    if runtime not in RUNTIMES:
        raise UserError(f"a runtime must be one of {', '.join(RUNTIMES)}; received {runtime!r}")
    python, package = RUNTIMES[runtime]()
    with tempfile.TemporaryDirectory() as folder:
        inputs, outputs = Path(folder, "inputs.npz"), Path(folder, "outputs.npz")
        arrays = {f"{signature}/{name}": array for signature, batch in batches.items() for name, array in batch.items()}
        np.savez(inputs, **arrays)  # type: ignore[arg-type]
        run_script(runtime, [python, SCRIPT, package, model, inputs, outputs, str(threads)])
        answers: RuntimeOutputs = {}
        with np.load(outputs) as archive:
            version, delegate = str(archive["version"]), json.loads(str(archive["delegate"]))
            for key in archive.files:
                if "/" in key:
                    signature, name = key.split("/", 1)
                    answers.setdefault(signature, {})[name] = archive[key]
    xnnpack = DelegateShare(**delegate, source=f"{runtime} {version}") if delegate else None
    return RuntimeAnswers(version=version, answers=answers, xnnpack=xnnpack)


def run_script(name: str, command: Sequence[str | os.PathLike[str]]) -> None:
    """Runs a Python script in its own process; raises `RuntimeRefused` with its reason if it fails."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    finished = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=environment
    )
    if finished.returncode != 0:
        # The final exception's message, possibly several lines, or the last line.
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        errors = [number for number, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)]
        reason = " ".join(lines[errors[-1] if errors else -1 :]) or "no output"
        raise RuntimeRefused(f"{name} ended with code {finished.returncode}: {reason}")


def tflite_2_16() -> LockedEnvironment:
    """Returns the environment with TFLite 2.16.1 (1.3 GB on disk)."""
    package, base = "tensorflow-cpu 2.16.1", _python_for_tflite_2_16
    return LockedEnvironment(name=TFLITE_2_16, lock=LOCK_FILE, package=package, download="300 MB", base=base)


def _python_for_tflite_2_16() -> str:
    """Finds a Python with wheels for tensorflow-cpu 2.16.1: this one, or an older one on PATH or under pyenv."""
    if sys.version_info < (3, 13):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in ("3.12", "3.11"):
        for candidate in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python3")):
            # pyenv's shims may exist and refuse to run.
            if candidate and not subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True).returncode:
                return str(candidate)
    raise UserError(
        f"runtime {TFLITE_2_16} needs Python 3.11 or 3.12 with venv, because tensorflow-cpu 2.16.1 has no wheels for "
        f"Python {sys.version_info[0]}.{sys.version_info[1]}; found neither on PATH nor under pyenv; install one, or "
        f"use {argument('runtime', LITERT)}"
    )


# Name → function that returns the Python to run, and package with the interpreter.
RUNTIMES: dict[str, Callable[[], tuple[str, str]]] = {
    LITERT: lambda: (sys.executable, "litert"),
    TFLITE_2_16: lambda: (str(tflite_2_16().python()), "tensorflow"),
}
