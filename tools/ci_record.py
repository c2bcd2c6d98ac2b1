"""What CI has already shown: digests of the inputs of green jobs, and the last nightly run.

    python tools/ci_record.py unchanged smoke   exit code 0 if the job was green with the same inputs
    python tools/ci_record.py green smoke       records the inputs of a green run
    python tools/ci_record.py nightly JUNIT ALONE
                                                records the result of `make test-nightly`; ALONE is the report of the
                                                failed tests, which ran again, and is absent if none failed
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


def record_nightly(junit: Path, alone: Path) -> None:
    """Records commit, counts and seconds of a pytest report in JUnit's format.

    Args:
      junit: the report of all tests.
      alone: the report of those that failed, which ran again without others; may be absent.
    """
    suite = _suite(junit)
    failed = _failed(suite)
    again = _suite(alone) if alone.exists() else None
    # A worker that died leaves no test to run again.
    if again is not None and len(again.findall("testcase")) >= len(failed) > 0:
        failed_alone = _failed(again)
    else:
        failed_alone = failed
    record = {
        "commit": _git("rev-parse", "HEAD").strip(),
        "tests": int(suite.attrib["tests"]),
        "failed": len(failed_alone),
        "passed_alone": [name for name in failed if name not in failed_alone],
        "skipped": int(suite.attrib["skipped"]),
        "seconds": round(sum(float(part.attrib["time"]) for part in (suite, again) if part is not None)),
    }
    _write(RECORDS / "nightly.json", record)
    print(json.dumps(record))


def _suite(junit: Path) -> ElementTree.Element:
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    return suite


def _failed(suite: ElementTree.Element) -> list[str]:
    """Names of the failed tests, each once; a test can fail and have an error in its clean-up."""
    names = [
        f"{test.attrib['classname']}::{test.attrib['name']}"
        for test in suite.findall("testcase")
        if test.find("failure") is not None or test.find("error") is not None
    ]
    return list(dict.fromkeys(names))


def nightly_problem() -> str:
    """Why the last nightly run does not count, in one line; empty if it does. Prints a warning about an old one."""
    record = _read(RECORDS / "nightly.json")
    if not record:
        print("warning: no nightly run is recorded; run make test-nightly and commit .ci/nightly.json")
        return ""
    if record["failed"]:
        return f"the nightly run of {record['commit'][:8]} failed: {record['failed']} of {record['tests']} tests"
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
        case ["nightly", junit, alone]:
            record_nightly(Path(junit), Path(alone))
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
