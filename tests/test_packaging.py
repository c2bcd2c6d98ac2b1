"""What pip gets to know: version bounds that the locked versions satisfy, and all files of the packages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import wheel_check

ROOT = Path(__file__).resolve().parents[1]
TESTED = {
    "ai-edge-litert",
    "ai-edge-quantizer",
    "tensorflow",
    "tensorflow-model-optimization",
    "tensorflow-text",
    "tf-keras",
    "tf-models-official",
}


PYTHONS = ("3.11", "3.12", "3.13")


def locked(python: str) -> dict[str, Version]:
    lines = (ROOT / "requirements" / f"{python}.lock").read_text(encoding="utf-8").splitlines()
    return {m[1]: Version(m[2]) for line in lines if (m := re.match(r"([a-z0-9-]+)==(\S+)", line))}


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {requirement.name: requirement for requirement in map(Requirement, project["dependencies"])}


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", sorted(TESTED))
def test_dependency_is_bound_to_the_locked_minor_version(name, python):
    specifier, version = requirements()[name].specifier, locked(python)[name]
    assert version in specifier
    assert Version(f"{version.major}.{version.minor + 1}.0") not in specifier
    assert version.minor == 0 or Version(f"{version.major}.{version.minor - 1}.99") not in specifier


@pytest.mark.parametrize("python", PYTHONS)
def test_locked_versions_satisfy_all_bounds(python):
    versions = locked(python)
    assert "torch" not in versions
    assert not [
        str(requirement) for name, requirement in requirements().items() if versions[name] not in requirement.specifier
    ]
    assert "7.0.0" not in requirements()["protobuf"].specifier


def test_every_supported_python_has_a_lock():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = SpecifierSet(project["requires-python"])
    assert PYTHONS == tuple(f"3.{minor}" for minor in range(30) if f"3.{minor}.5" in supported)
    assert {path.stem for path in (ROOT / "requirements").glob("*.lock")} == set(PYTHONS)
    assert {f"Programming Language :: Python :: {python}" for python in PYTHONS} <= set(project["classifiers"])


@pytest.fixture
def find_python(tmp_path):
    """Runs tools/find_python.sh where only the interpreters given are found."""

    def find(programs: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        for name in ("dirname", "grep", "ls", "sed", "sort"):
            (tmp_path / name).symlink_to(shutil.which(name))
        for name, version in programs.items():
            # As the script's check ends: 0 if the version in it is this one's.
            body = f'case "$*" in --version) echo Python {version}.0 ;; *"\'{version}\'"*) ;; *) exit 1 ;; esac'
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
            (tmp_path / name).chmod(0o755)
        return subprocess.run(
            [ROOT / "tools/find_python.sh", *arguments],
            env={"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return find


def test_newest_python_that_runs_is_found(find_python, tmp_path):
    # A pyenv shim is there and fails; python3 may be too new.
    done = find_python({"python3.13": "broken", "python3.12": "3.12", "python3.11": "3.11", "python3": "3.14"})
    assert (done.returncode, done.stdout.strip()) == (0, str(tmp_path / "python3.12"))


def test_python3_of_a_supported_version_is_found(find_python, tmp_path):
    assert find_python({"python3": "3.13"}).stdout.strip() == str(tmp_path / "python3")


@pytest.mark.parametrize(
    "arguments, received",
    [
        ((), "found none on PATH or under pyenv"),
        (("3.10",), "received '3.10'"),
        (("python3",), "received 'python3', Python 3.10.0"),
    ],
)
def test_no_suitable_python_is_one_line(find_python, arguments, received):
    done = find_python({"python3": "3.10"}, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == (
        f"PocketBERT needs Python 3.13 or 3.12 or 3.11 with venv and pip; {received}. "
        "Install one, or name it: make venv PYTHON=/path/to/python"
    )


@pytest.mark.parametrize("ci, code", [("true", 1), ("", 0)])
def test_missing_python_fails_in_ci_alone(monkeypatch, tmp_path, capsys, ci, code):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(wheel_check, "FOLDER", tmp_path / "check")
    monkeypatch.setattr(wheel_check, "_built_wheel", lambda: tmp_path / "pocketbert.whl")
    assert wheel_check.main(["3.99"]) == code
    assert "needs Python 3.13 or 3.12 or 3.11 with venv and pip; received '3.99'" in capsys.readouterr().err


def test_wheel_has_a_copy_of_the_runtime(tmp_path):
    """setup.py moves it to a folder that a .pth file adds to the end of the path: another one comes first."""
    for name in ("setup.py", "pyproject.toml", "README.md", "runtime", "modeling", "export", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    build = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", "built"]
    for _ in range(2):
        subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    built = tmp_path / "built"
    names = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert names == {*wheel_check.package_files(), "pocketbert_wheel.pth"}
    program = (
        "import site, sys; site.addsitedir(sys.argv[1]); import pocketbert_runtime as found; print(found.__file__)"
    )

    def found(**environment):
        command = [sys.executable, "-S", "-c", program, built]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert found() == str(built / "pocketbert_wheel" / "pocketbert_runtime" / "__init__.py")
    assert found(PYTHONPATH=str(ROOT / "runtime")) == str(ROOT / "runtime" / "pocketbert_runtime" / "__init__.py")


def test_wheel_check_names_files_that_a_wheel_lacks(tmp_path):
    wheel = tmp_path / "pocketbert-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in wheel_check.package_files():
            if not path.endswith(("report.html", "tflite_2_16.lock")):
                archive.writestr(path, "")
    assert wheel_check.missing_files(wheel) == [
        "pocketbert_bench/templates/report.html",
        "pocketbert_export/tflite/tflite_2_16.lock",
    ]
