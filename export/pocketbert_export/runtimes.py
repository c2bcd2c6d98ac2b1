"""The runtimes that a bundle can claim, each in a process of its own.

A process of its own, because a runtime may end the process on a file that it does not like, and because
TFLite 2.16 needs a NumPy older than ours. What counts is what a runtime answers: an old one may load a
file that it does not understand and answer zeros.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pocketbert.errors import UserError
from pocketbert.progress import log_info

TFLITE_2_16 = "tflite-2.16"
LITERT = "litert"
LOCK_FILE = Path(__file__).with_name("tflite_2_16.lock")
SCRIPT = Path(__file__).with_name("interpreter_process.py")

# A batch: signature → input name → array [calls, length]. RuntimeOutputs: signature → output name → [calls, ...].
Batches = Mapping[str, Mapping[str, np.ndarray]]
RuntimeOutputs = dict[str, dict[str, np.ndarray]]


class RuntimeRefused(Exception):
    """A runtime did not load or run the file; the message is the runtime's own last words."""


@dataclass(frozen=True)
class RuntimeAnswers:
    """Outputs and version of a runtime."""

    version: str
    answers: RuntimeOutputs


def run(runtime: str, model: str | os.PathLike[str], batches: Batches, threads: int = 1) -> RuntimeAnswers:
    """Calls signatures of a model, one row at a time.

    Args:
      runtime: a name in `RUNTIMES`.
      model: the `.tflite` file.
      batches: signature → input name → array `[calls, length]`, int32.
      threads: interpreter threads.
    Returns:
      signature → output name → array `[calls, ...]`.
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
        finished = subprocess.run(
            [python, SCRIPT, package, model, inputs, outputs, str(threads)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""},
        )
        if finished.returncode != 0:
            raise RuntimeRefused(f"{runtime} ended with code {finished.returncode}: {_last_words(finished.stderr)}")
        answers: RuntimeOutputs = {}
        with np.load(outputs) as archive:
            version = str(archive["version"])
            for key in archive.files:
                if key != "version":
                    signature, name = key.split("/", 1)
                    answers.setdefault(signature, {})[name] = archive[key]
    return RuntimeAnswers(version=version, answers=answers)


def _last_words(stderr: str) -> str:
    """The message of the exception that ended a process (it may have several lines), or its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return " ".join(lines[errors[-1] if errors else -1 :]) or "it said nothing"


def tflite_2_16_folder() -> Path:
    """Where that environment is or will be: a new lock file or Python makes a new one."""
    cache = Path(os.environ.get("POCKETBERT_CACHE") or Path.home() / ".cache" / "pocketbert")
    fingerprint = hashlib.sha256(LOCK_FILE.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache / "runtimes" / f"{TFLITE_2_16}-{fingerprint}"


def environment_of_tflite_2_16() -> Path:
    """The Python of an environment with TFLite 2.16.1, made on first use and kept in the cache.

    The cache folder is `$POCKETBERT_CACHE`, or `~/.cache/pocketbert`. The packages are those of
    `tflite_2_16.lock`, by hash, fetched with pip (about 300 MB, 1.3 GB on disk).

    Raises:
      UserError: pip could not make it, or no Python here is old enough.
    """
    folder = tflite_2_16_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    python, complete = folder / "bin" / "python", folder / "complete"
    with open(folder.with_name(f"{folder.name}.lock"), "w") as guard:
        # Two gates at once must not install over one another.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if complete.exists():
            return python
        base = _python_for_tflite_2_16()
        log_info(f"making an environment for TFLite 2.16.1 in {folder} (once; about 300 MB to fetch)")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", str(folder)], stdin=subprocess.DEVNULL, capture_output=True, check=True)
        finished = subprocess.run(
            [
                str(python),
                *"-m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:".split(),
                "-r",
                str(LOCK_FILE),
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if finished.returncode != 0:
            reason = " ".join(finished.stderr.split()[-40:])
            raise UserError(f"runtime {TFLITE_2_16} needs tensorflow-cpu 2.16.1 in {folder}; pip said: {reason}")
        complete.touch()
    return python


def _python_for_tflite_2_16() -> str:
    """A Python with wheels of tensorflow-cpu 2.16.1: this one, or an older one on PATH or under pyenv."""
    if sys.version_info < (3, 13):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in ("3.12", "3.11"):
        for candidate in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python3")):
            # pyenv's commands may be there and refuse to run.
            if candidate and not subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True).returncode:
                return str(candidate)
    raise UserError(
        f"runtime {TFLITE_2_16} needs Python 3.11 or 3.12 with venv, because tensorflow-cpu 2.16.1 has no wheels for "
        f"Python {sys.version_info[0]}.{sys.version_info[1]}; found neither on PATH nor under pyenv; install one, or "
        f"use --runtime={LITERT}"
    )


# Name → what gives the Python to run and the package that holds the interpreter there.
RUNTIMES: dict[str, Callable[[], tuple[str, str]]] = {
    LITERT: lambda: (sys.executable, "litert"),
    TFLITE_2_16: lambda: (str(environment_of_tflite_2_16()), "tensorflow"),
}
