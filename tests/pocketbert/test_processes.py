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


def test_process_ends_with_another(tmp_path: Path) -> None:
    """As Beam's workers, which a shell starts that does not end with the runner."""
    number = tmp_path / "number"
    child = f"""
import os, sys, time
from pathlib import Path
from pocketbert.processes import end_with
end_with(int(sys.argv[1]))
Path({str(number)!r}).write_text(str(os.getpid()))
time.sleep(60)
"""
    program = f"""
import os, subprocess, sys
subprocess.run(["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, {child!r}, str(os.getpid())])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(forks.SOURCES)}
    runner = subprocess.Popen([sys.executable, "-c", program], env=environment)
    killing.seconds_until(lambda: number.exists() and number.read_text())
    pid = int(number.read_text())
    assert killing.is_alive(pid)
    runner.kill()
    assert killing.seconds_until(lambda: not killing.is_alive(pid)) < 2
    runner.wait()
