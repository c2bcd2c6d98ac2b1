"""Records of CI: which jobs run again, and which nightly runs count."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import ci_record


def report(path: Path, *failed: str, passed: tuple[str, ...] = ()) -> str:
    """Writes a report in JUnit's format, with a failure of each of the named tests."""
    cases = "".join(f'<testcase classname="tests.some" name="{name}"><failure/></testcase>' for name in failed)
    cases += "".join(f'<testcase classname="tests.some" name="{name}"/>' for name in passed)
    path.write_text(f'<testsuites><testsuite tests="7" skipped="2" time="12.4">{cases}</testsuite></testsuites>')
    return str(path)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, as the root of the records."""
    monkeypatch.setattr(ci_record, "ROOT", tmp_path)
    monkeypatch.setattr(ci_record, "RECORDS", tmp_path)
    for folder in ("modeling", "android_app", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("1")
    _git(tmp_path, "init", "-q")
    _commit(tmp_path)
    return tmp_path


def _git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True)


def _commit(folder: Path) -> None:
    _git(folder, "add", ".")
    _git(folder, "commit", "-qm", "Change", "--allow-empty")


@pytest.mark.parametrize(
    ("changed", "jobs"),
    [("docs/file", set()), ("android_app/file", {"android"}), ("modeling/file", {"smoke", "android"})],
)
def test_changed_inputs_run_their_jobs_again(repository: Path, changed: str, jobs: set[str]) -> None:
    assert all(ci_record.main(["unchanged", job]) == 1 for job in ci_record.INPUTS)
    for job in ci_record.INPUTS:
        assert ci_record.main(["green", job]) == 0
    assert all(ci_record.main(["unchanged", job]) == 0 for job in ci_record.INPUTS)
    (repository / changed).write_text("2")
    assert {job for job in ci_record.INPUTS if ci_record.main(["unchanged", job]) == 1} == jobs


def test_renamed_and_new_inputs_run_their_jobs_again(repository: Path) -> None:
    ci_record.main(["green", "smoke"])
    _git(repository, "mv", "modeling/file", "modeling/other")
    assert ci_record.main(["unchanged", "smoke"]) == 1
    ci_record.main(["green", "smoke"])
    (repository / "modeling/new").write_text("")
    _commit(repository)
    assert ci_record.main(["unchanged", "smoke"]) == 1


def test_a_red_nightly_run_fails_until_its_tests_pass(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ci_record.main(["check-nightly"]) == 0
    junit = report(repository / "nightly.xml", "one", "two[a b]", passed=("three",))
    assert ci_record.main(["nightly", junit]) == 0
    assert ci_record.main(["check-nightly"]) == 1
    capsys.readouterr()
    ci_record.main(["failed-nightly"])
    assert capsys.readouterr().out == "tests/some.py::one\ntests/some.py::two[a b]\n"
    ci_record.main(["again-nightly", report(repository / "again.xml", "two[a b]", passed=("one",))])
    assert ci_record.main(["check-nightly"]) == 1
    _commit(repository)
    # A test that does not run again stays failed.
    ci_record.main(["again-nightly", report(repository / "again.xml", passed=("three",))])
    assert ci_record.main(["check-nightly"]) == 1
    ci_record.main(["again-nightly", report(repository / "again.xml", passed=("two[a b]",))])
    assert ci_record.main(["check-nightly"]) == 0
    record = json.loads((repository / "nightly.json").read_text())
    first, second = record["passed_later"].values()
    assert (first, second != first) == (record["commit"], True) and record["failed"] == []


def test_an_old_nightly_run_warns(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ci_record, "MOST_COMMITS", 2)
    ci_record.main(["nightly", report(repository / "nightly.xml")])
    for warned in (False, False, True):
        _commit(repository)
        assert ci_record.main(["check-nightly"]) == 0
        assert ("3 commits old" in capsys.readouterr().out) == warned


def test_a_nightly_run_of_another_history_warns(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ci_record.main(["nightly", report(repository / "nightly.xml")])
    record = repository / "nightly.json"
    record.write_text(record.read_text().replace('"commit": "', '"commit": "0'))
    assert ci_record.main(["check-nightly"]) == 0
    assert "not in this history" in capsys.readouterr().out
