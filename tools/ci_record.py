"""What CI has already shown: digests of the inputs of green jobs, and the last nightly run.

    python tools/ci_record.py unchanged smoke   exit code 0 if the job was green with the same inputs
    python tools/ci_record.py green smoke       records the inputs of a green run
    python tools/ci_record.py nightly JUNIT     records the result of `make test-nightly`
    python tools/ci_record.py failed-nightly    prints the failed tests, one per line
    python tools/ci_record.py again-nightly JUNIT
                                                records the result of `make test-nightly-failed`
    python tools/ci_record.py check-nightly     exit code 1 if the last nightly run failed

The records are `.ci/green-JOB.json` and `.ci/nightly.json`. Commit them; `make green` runs the jobs whose files changed
and writes the records. This script needs no packages, because it runs before `make venv`.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / ".ci"
_NIGHTLY = "nightly.json"
_PRODUCT = (
    "Makefile", "pyproject.toml", "requirements", "tools/find_python.sh",
    "runtime", "modeling", "export", "benchmarks/pocketbert_bench",
)  # fmt: skip
_ANDROID_TOOLS = ("tools/*apk*.py", "tools/arm64_check.py", "tools/java_*.py")
_ANDROID_TESTS = ("tests/conftest.py", "tests/android", "tests/conformance", "tests/goldens", "tests/helpers")
_SMOKE_TOOLS = tuple(f"tools/{name}.py" for name in ("environment_steps", "runtime_wheel_check", "wheel_check"))
# Job → files and folders that decide its result, as Git's patterns.
INPUTS = {
    "smoke": (*_PRODUCT, "README.md", "setup.py", *_SMOKE_TOOLS),
    "android": (*_PRODUCT, "android_app", *_ANDROID_TOOLS, *_ANDROID_TESTS),
}
MOST_COMMITS = 100


def digest(job: str) -> str:
    """SHA-256 of the paths and contents of the committed inputs of a job."""
    total = hashlib.sha256()
    for path in sorted(_git("ls-files", "-z", "--", *INPUTS[job]).split("\0")):
        file = ROOT / path
        if path and file.is_file():
            total.update(f"{path}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()


def unchanged(job: str) -> bool:
    """Whether a job was green with the same inputs; then prints a line."""
    if _read(_green(job)).get("inputs") != digest(job):
        return False
    print(f"{job}: green before with the same files, so it does not run again; make {job} runs it")
    return True


def record_green(job: str) -> None:
    """Records the inputs of a green run."""
    _write(_green(job), {"inputs": digest(job)})


def record_nightly(junit: Path) -> None:
    """Records commit, counts, seconds and failed tests of a pytest report in JUnit's format."""
    suite = _suite(junit)
    record = {
        "commit": _head(),
        "tests": int(suite.attrib["tests"]),
        "failed": [name for name, outcome in _outcomes(suite).items() if outcome == "failed"],
        "passed_later": {},
        "skipped": int(suite.attrib["skipped"]),
        "seconds": round(float(suite.attrib["time"])),
    }
    _write(RECORDS / _NIGHTLY, record)
    print(json.dumps(record))


def record_again(junit: Path) -> None:
    """Adds to the record which of the failed tests pass at this commit."""
    record, outcomes = _read(RECORDS / _NIGHTLY), _outcomes(_suite(junit))
    passed = [name for name in record["failed"] if outcomes.get(name) == "passed"]
    record["failed"] = [name for name in record["failed"] if name not in passed]
    record["passed_later"] |= dict.fromkeys(passed, _head())
    _write(RECORDS / _NIGHTLY, record)
    print(json.dumps(record))


def _suite(junit: Path) -> ElementTree.Element:
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    return suite


def _outcomes(suite: ElementTree.Element) -> dict[str, str]:
    """Test, as pytest takes it → `passed`, `failed` or `skipped`; one that passes can fail in its clean-up."""
    outcomes: dict[str, str] = {}
    for test in suite.findall("testcase"):
        name = f"{test.attrib['classname'].replace('.', '/')}.py::{test.attrib['name']}"
        parts = {part.tag for part in test}
        outcome = "failed" if parts & {"failure", "error"} else "skipped" if "skipped" in parts else "passed"
        outcomes[name] = "failed" if outcomes.get(name) == "failed" else outcome
    return outcomes


def _head() -> str:
    return _git("rev-parse", "HEAD").strip()


def nightly_problem() -> str:
    """Why the last nightly run does not count, in one line; empty if it does. Prints a warning about an old one."""
    record = _read(RECORDS / _NIGHTLY)
    if not record:
        print("warning: no nightly run is recorded; run make test-nightly and commit .ci/nightly.json")
        return ""
    if record["failed"]:
        names = ", ".join(record["failed"][:3])
        return f"the nightly run of {record['commit'][:8]}: {len(record['failed'])} tests failed, such as {names}"
    try:
        commits = int(_git("rev-list", "--count", f"{record['commit']}..HEAD"))
    except (OSError, subprocess.CalledProcessError):
        print(f"warning: {record['commit'][:8]}, the commit of the last nightly run, is not in this history")
        return ""
    if commits > MOST_COMMITS:
        print(f"warning: the last nightly run is {commits} commits old; run make test-nightly")
    return ""


def _green(job: str) -> Path:
    """The record of a job; one each, because jobs run side by side."""
    return RECORDS / f"green-{job}.json"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Runs one command; returns the exit code."""
    match arguments:
        case ["unchanged", job] if job in INPUTS:
            return 0 if unchanged(job) else 1
        case ["green", job] if job in INPUTS:
            record_green(job)
        case ["nightly", junit]:
            record_nightly(Path(junit))
        case ["failed-nightly"]:
            print(*_read(RECORDS / _NIGHTLY)["failed"], sep="\n")
        case ["again-nightly", junit]:
            record_again(Path(junit))
        case ["check-nightly"]:
            problem = nightly_problem()
            if problem:
                print(problem, file=sys.stderr)
            return 1 if problem else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
