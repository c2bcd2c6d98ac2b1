"""What an APK is held to, as far as no tool of Android's is needed."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest

import apk_artifacts
import apk_checks

APP = Path(__file__).parents[2] / "android_app"


def test_the_intended_manifest_is_good() -> None:
    assert apk_checks.manifest_problems(copy.deepcopy(apk_checks.MANIFEST)) == []


@pytest.mark.parametrize(
    ("element", "attribute", "value", "problem"),
    [
        ("application", "debuggable", "true", "debuggable must be false; it is true"),
        ("application", "allowBackup", None, "allowBackup must be false; it is None"),
        ("activity", "permission", "android.permission.DUMP", "permission must be None"),
        ("uses-sdk", "targetSdkVersion", "28", "targetSdkVersion must be 35; it is 28"),
        ("manifest", "sharedUserId", "x", "sharedUserId must be None; it is x"),
    ],
)
def test_another_manifest_is_not(element: str, attribute: str, value: str | None, problem: str) -> None:
    manifest = copy.deepcopy(apk_checks.MANIFEST)
    if value is None:
        del manifest[element][0][attribute]
    else:
        manifest[element][0][attribute] = value
    (found,) = apk_checks.manifest_problems(manifest)
    assert problem in found


@pytest.mark.parametrize(
    "element", ["provider", "service", "receiver", "uses-permission", "activity-alias", "activity"]
)
def test_a_further_door_is_noticed(element: str) -> None:
    manifest = copy.deepcopy(apk_checks.MANIFEST)
    manifest.setdefault(element, []).append({"name": "x"})
    assert any(f"of {element}; it has" in problem for problem in apk_checks.manifest_problems(manifest))


def test_every_version_of_the_poms_has_its_sum() -> None:
    pom, apk = ((APP / path).read_text(encoding="utf-8") for path in ("pom.xml", "apk/pom.xml"))
    versions = dict(re.findall(r"<(\w+)\.version>([^<]+)</", pom))
    dependencies = re.findall(r"<artifactId>([\w-]+)</artifactId>\s*<version>([^<]+)</version>(?!\s*</parent>)", apk)
    names = set()
    for artifact, version in dependencies:
        property_name = re.fullmatch(r"\$\{(\w+)\.version\}", version)
        names.add(f"{artifact}-{versions[property_name.group(1)] if property_name else version}")
    names -= {f"pocketbert-android-{re.search(r'<version>([^<]+)', pom).group(1)}"}  # type: ignore[union-attr]
    assert len(names) >= 6
    recorded = apk_artifacts.recorded()
    assert not [name for name in names if not any(file.startswith(name) for file in recorded)]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in recorded.values())


def test_missing_tools_are_a_line_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(apk_artifacts.PACKAGES, "no-such-tool", "its-package")
    with pytest.raises(apk_artifacts.BuildError, match="no-such-tool.*--no-install-recommends.*its-package") as raised:
        apk_artifacts.require_packages()
    assert "\n" not in str(raised.value)


def test_the_packages_are_told() -> None:
    tool = Path(apk_artifacts.__file__)
    done = subprocess.run([sys.executable, str(tool), "--packages"], capture_output=True, text=True, check=True)
    assert {"aapt", "apksigner", "clang", "openjdk-17-jdk-headless"} <= set(done.stdout.split())
