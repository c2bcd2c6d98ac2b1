"""The suite's own guard: real data that is not used must be noticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = """
import pytest

@pytest.mark.data
def test_real(shared):
    assert shared.is_dir()

@pytest.mark.data
def test_marked_alone():
    pass

def test_plain():
    pass
"""
NIGHTLY = """
import pytest

@pytest.mark.one_of_each
@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("name", ["bert", "tiny"])
def test_cases(name, size):
    pass

@pytest.mark.one_of_each("5")
@pytest.mark.parametrize("size", [3, 5, 7])
def test_named(size):
    pass

@pytest.mark.nightly
def test_dear():
    pass

def test_plain():
    pass
"""
SKIPPING = """
import pytest

@pytest.mark.data
def test_real(shared):
    pytest.skip("for another reason")

def test_plain():
    pass
"""


@pytest.fixture
def checkout(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with this suite's conftest, no shared folder beside it, and not on CI."""
    monkeypatch.delenv("CI", raising=False)
    folder = pytester.mkdir("checkout")
    (folder / "tests").mkdir()
    shutil.copy(CONFTEST, folder / "tests/conftest.py")
    markers = "\n    ".join(("", "data", "nightly", "one_of_each"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers ={markers}\naddopts = --strict-markers\n")
    monkeypatch.chdir(folder)
    return folder


def _run(pytester: pytest.Pytester, checkout: Path, tests: str, *options: str) -> pytest.RunResult:
    (checkout / "tests/test_it.py").write_text(tests)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options, str(checkout / "tests"))


def test_absent_data_skips_and_says_so(pytester: pytest.Pytester, checkout: Path) -> None:
    result = _run(pytester, checkout, TESTS)
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*REAL DATA*", "2 of 2 tests marked `data` did not run (../shared is ABSENT)*"])
    assert result.ret == 0


def test_absent_data_fails_on_ci(pytester: pytest.Pytester, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = _run(pytester, checkout, TESTS)
    assert result.ret == 1
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(["*CI=true and the real data is not there*"])


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_present_data_is_used_quietly(
    pytester: pytest.Pytester, checkout: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CI", "true")
    (checkout.parent / "shared").mkdir()
    result = _run(pytester, checkout, TESTS, *options)
    result.assert_outcomes(passed=3)
    assert result.ret == 0 and "REAL DATA" not in result.stdout.str()


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_ci_fails_when_data_is_there_and_nothing_read_it(
    pytester: pytest.Pytester, checkout: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    (checkout.parent / "shared").mkdir()
    assert _run(pytester, checkout, SKIPPING, *options).ret == 0
    monkeypatch.setenv("CI", "true")
    result = _run(pytester, checkout, SKIPPING, *options)
    result.stdout.fnmatch_lines(["1 of 1 tests marked `data` did not run (../shared is there)*"])
    assert result.ret == 1
    # Nobody selected them: nothing is missed.
    assert _run(pytester, checkout, SKIPPING, "-m", "not data", *options).ret == 0


def test_one_of_each_kind_stays_in_the_default_run(pytester: pytest.Pytester, checkout: Path) -> None:
    result = _run(pytester, checkout, NIGHTLY, "-v", "-m", "not nightly")
    result.assert_outcomes(passed=6, deselected=5)
    cases = ("bert-3", "bert-5", "bert-7", "tiny-3")
    passed = [
        *(f"*::test_cases?{case}? PASSED*" for case in cases),
        "*::test_named?5? PASSED*",
        "*::test_plain PASSED*",
    ]
    result.stdout.fnmatch_lines(passed)
    _run(pytester, checkout, NIGHTLY, "-m", "nightly").assert_outcomes(passed=5, deselected=6)
