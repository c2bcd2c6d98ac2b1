"""Environments for conflicting packages, each from a lock file, created on first use."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pocketbert.data.assets import cache_folder
from pocketbert.errors import UserError
from pocketbert.progress import log_info

_INSTALL = "-m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all:"


@dataclass(frozen=True, kw_only=True)
class LockedEnvironment:
    """An environment in the cache: `$POCKETBERT_CACHE`, or `~/.cache/pocketbert`.

    Attributes:
      name: the environment's name, for the folder and messages.
      lock: lock file with hashes.
      package: main package with its version, for messages.
      download: approximate download size, for messages.
      base: returns the Python to create the environment with; raises `UserError` if there is none.
    """

    name: str
    lock: Path
    package: str
    download: str
    base: Callable[[], str] = lambda: sys.executable

    @property
    def folder(self) -> Path:
        """Folder of the environment; a new lock file or Python gets a new folder."""
        fingerprint = hashlib.sha256(self.lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
        return cache_folder() / "runtimes" / f"{self.name}-{fingerprint}"

    @property
    def exists(self) -> bool:
        """Whether the environment is complete."""
        return (self.folder / "complete").exists()

    def python(self) -> Path:
        """Returns the environment's Python, with packages fetched by hash on first use; a `UserError` if this fails."""
        folder = self.folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        python = folder / "bin" / "python"
        with open(folder.with_name(f"{folder.name}.lock"), "w") as guard:
            # Prevents two processes from installing over each other.
            fcntl.flock(guard, fcntl.LOCK_EX)
            if self.exists:
                return python
            base = self.base()
            log_info(f"creating an environment for {self.package} in {folder} (once; fetches about {self.download})")
            shutil.rmtree(folder, ignore_errors=True)
            for step, command in (
                ("venv", [base, "-m", "venv", str(folder)]),
                ("pip", [str(python), *_INSTALL.split(), "-r", str(self.lock)]),
            ):
                finished = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
                )
                if finished.returncode != 0:
                    # venv writes its own pip's messages to stdout.
                    reason = " ".join(f"{finished.stdout} {finished.stderr}".split()[-40:])
                    raise UserError(f"{self.name} needs {self.package} in {folder}; {step} said: {reason}")
            (folder / "complete").touch()
        return python
