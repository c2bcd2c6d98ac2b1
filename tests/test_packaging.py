"""What pip gets to know: version bounds that the locked versions satisfy, and all files of the packages."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
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


def locked() -> dict[str, Version]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return {m[1]: Version(m[2]) for line in lines if (m := re.match(r"([a-z0-9-]+)==(\S+)", line))}


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {each.name: each for each in map(Requirement, project["dependencies"])}


@pytest.mark.parametrize("name", sorted(TESTED))
def test_dependency_is_bound_to_the_locked_minor_version(name):
    specifier, version = requirements()[name].specifier, locked()[name]
    assert version in specifier
    assert Version(f"{version.major}.{version.minor + 1}.0") not in specifier
    assert version.minor == 0 or Version(f"{version.major}.{version.minor - 1}.99") not in specifier


def test_locked_versions_satisfy_all_bounds():
    versions = locked()
    assert not [str(each) for name, each in requirements().items() if versions[name] not in each.specifier]
    assert "7.0.0" not in requirements()["protobuf"].specifier


def test_wheel_check_names_files_that_a_wheel_lacks(tmp_path):
    wheel = tmp_path / "pocketbert-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in wheel_check.package_files():
            if not path.endswith(("report.html", "tflite_2_16.lock")):
                archive.writestr(path, "")
    assert wheel_check.missing_files(wheel) == [
        "pocketbert_bench/templates/report.html",
        "pocketbert_export/tflite_2_16.lock",
    ]
