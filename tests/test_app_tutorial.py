"""The commands in docs/tutorials/app.md lead from the table to the printed label."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorials" / "app.md"
JAR = "android_app/host/target/pocketbert-host.jar"
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Steps that need an index or Maven, or belong to another test.
LEFT_OUT = ("python3 -m pip ", "make ", "java ")


def run(command: str, folder: Path) -> str:
    """Runs a command line of the page, with the checkout's packages, and returns what it prints."""
    packages = os.pathsep.join(str(ROOT / name) for name in ("runtime", "modeling", "export", "benchmarks"))
    words = re.sub(r"^pocketbert\b", f"{sys.executable} -m pocketbert", command)
    words = re.sub(r"^python3\b", sys.executable, words).replace("docs/examples", str(ROOT / "docs" / "examples"))
    environment = {**os.environ, "PYTHONPATH": packages}
    done = subprocess.run(words, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.nightly
def test_commands_print_the_pages_labels(tmp_path: Path) -> None:
    printed: dict[str, str] = {}
    last, expected = "", {}
    for language, body in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            (tmp_path / "app.py").write_text(body, encoding="utf-8")
        elif language == "console":
            for command in re.findall(r"^\$ (.*)$", body, re.MULTILINE):
                last = command
                if not command.startswith(LEFT_OUT):
                    printed[command] = run(command, tmp_path)
        else:
            expected[last] = body
    assert len(printed) == 6
    assert printed["head -4 tickets.csv"] == expected["head -4 tickets.csv"]
    (predict,) = (name for name in printed if name.startswith("pocketbert predict"))
    labels = [json.loads(line)["label"] for line in printed[predict].splitlines()]
    assert len(labels) == 3 and {*labels} <= {"account", "billing", "delivery"}
    assert printed["python3 app.py < new.txt"].splitlines() == labels
    # The Java core, where Maven has built it.
    if (ROOT / JAR).is_file():
        (java,) = re.findall(r"^\$ (java .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        rows = run(java.replace(JAR, str(ROOT / JAR)), tmp_path).splitlines()
        assert [json.loads(row)["label"] for row in rows] == labels
