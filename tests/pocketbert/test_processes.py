from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forks
import killing
import pytest

from pocketbert.processes import stderr_on_failure


def test_native_stderr_is_shown_only_on_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with stderr_on_failure():
        os.write(2, b"W0000 Ignored output_format.\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
    with pytest.raises(ValueError, match="no such op"), stderr_on_failure():
        os.write(2, b"error: no such op\n")
        raise ValueError("no such op")
    assert capfd.readouterr().err == "error: no such op\n"


def test_process_ends_with_its_starter(tmp_path: Path) -> None:
    """As Beam's workers, which `multiprocessing` does not start."""
    number = tmp_path / "number"
    child = f"""
import os, time
from pathlib import Path
from pocketbert.processes import end_with_starter
end_with_starter()
Path({str(number)!r}).write_text(str(os.getpid()))
time.sleep(60)
"""
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(forks.SOURCES)}
    starter = subprocess.Popen([sys.executable, "-c", program], env=environment)
    killing.seconds_until(lambda: number.exists() and number.read_text())
    pid = int(number.read_text())
    assert killing.is_alive(pid)
    starter.kill()
    starter.wait()
    assert killing.seconds_until(lambda: not killing.is_alive(pid)) < 2
