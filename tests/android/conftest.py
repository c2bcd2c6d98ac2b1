"""Runs the Android core's classes, built by Maven (`make android-test`)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "android_app" / "core" / "target"

Java = Callable[..., None]


@pytest.fixture(scope="session")
def java() -> Java:
    """Runs a class of the core or of its tests: `java("org.pocketbert.…", argument…)`."""
    for name in ("classes", "test-classes"):
        if not (CORE / name).is_dir():
            pytest.fail(f"android_app/core/target/{name} is not there: run make android-test", pytrace=False)

    def run(main: str, *arguments: object) -> None:
        path = f"{CORE / 'classes'}:{CORE / 'test-classes'}"
        command = ["java", "-cp", path, main, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    return run
