"""APK checks that need no Android tool."""

from __future__ import annotations

import copy
import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import apk_artifacts
import apk_checks
import java_test_artifacts
from pocketbert_export.tflite import runtimes

APP = Path(__file__).parents[2] / "android_app"


def test_the_intended_manifest_is_good() -> None:
    manifest = copy.deepcopy(apk_checks.MANIFEST)
    assert apk_checks.manifest_problems(manifest, "javacpp") == []
    # Only the GPU build may declare vendor libraries.
    (problem,) = apk_checks.manifest_problems(manifest, "aar")
    assert problem == "the manifest must have 3 of uses-native-library; it has 0"
    manifest |= copy.deepcopy(apk_checks.MORE_MANIFEST["aar"])
    assert apk_checks.manifest_problems(manifest, "aar") == []
    (problem,) = apk_checks.manifest_problems(manifest, "javacpp")
    assert problem == "the manifest must have 0 of uses-native-library; it has 3"
    manifest["uses-native-library"][1]["required"] = "true"
    (problem,) = apk_checks.manifest_problems(manifest, "aar")
    assert "required must be false; it is true" in problem


def test_only_archive_libraries_allow_small_pages() -> None:
    assert set(apk_checks.SMALL_PAGES) == set(apk_checks.LIBRARIES["aar"]) - set(apk_checks.LIBRARIES["javacpp"])
    assert set(apk_checks.SMALL_PAGES.values()) == {4096}


def test_gpu_build_requires_archive_runtime(tmp_path: Path) -> None:
    assert apk_checks.TFLITE_2_16 == runtimes.TFLITE_2_16
    bundle = tmp_path / "sst2"
    bundle.mkdir()
    (bundle / "bundle.json").write_text('{"runtimes": ["litert"]}', encoding="utf-8")
    (problem,) = apk_checks.bundle_problems(bundle, "aar")
    assert "exported with --runtime=tflite-2.16, the archive's release; it lists litert" in problem
    (bundle / "bundle.json").write_text('{"runtimes": ["litert", "tflite-2.16"]}', encoding="utf-8")
    # The remaining problems concern outputs, as for any bundle.
    assert not any("must be exported" in problem for problem in apk_checks.bundle_problems(bundle, "aar"))


@pytest.mark.parametrize(
    ("element", "attribute", "value", "problem"),
    [
        ("application", "debuggable", "true", "debuggable must be None; it is true"),
        ("application", "allowBackup", None, "allowBackup must be false; it is None"),
        ("activity", "permission", "android.permission.DUMP", "permission must be None"),
        ("uses-sdk", "targetSdkVersion", "28", "targetSdkVersion must be 36; it is 28"),
        ("manifest", "sharedUserId", "x", "sharedUserId must be None; it is x"),
    ],
)
def test_another_manifest_is_not(element: str, attribute: str, value: str | None, problem: str) -> None:
    manifest = copy.deepcopy(apk_checks.MANIFEST)
    if value is None:
        del manifest[element][0][attribute]
    else:
        manifest[element][0][attribute] = value
    (message,) = apk_checks.manifest_problems(manifest, "javacpp")
    assert problem in message


@pytest.mark.parametrize(
    "element", ["provider", "service", "receiver", "uses-permission", "activity-alias", "activity"]
)
def test_a_further_door_is_noticed(element: str) -> None:
    manifest = copy.deepcopy(apk_checks.MANIFEST)
    manifest.setdefault(element, []).append({"name": "x"})
    assert any(f"of {element}; it has" in problem for problem in apk_checks.manifest_problems(manifest, "javacpp"))


def test_every_pom_version_has_a_sum() -> None:
    pom, apk = ((APP / path).read_text(encoding="utf-8") for path in ("pom.xml", "apk/pom.xml"))
    versions = dict(re.findall(r"<(\w+)\.version>([^<]+)</", pom))
    dependencies = re.findall(r"<artifactId>([\w-]+)</artifactId>\s*<version>([^<]+)</version>(?!\s*</parent>)", apk)
    names = set()
    for artifact, version in dependencies:
        property_name = re.fullmatch(r"\$\{(\w+)\.version\}", version)
        names.add(f"{artifact}-{versions[property_name.group(1)] if property_name else version}")
    names -= {f"pocketbert-android-{re.search(r'<version>([^<]+)', pom).group(1)}"}  # type: ignore[union-attr]
    assert len(names) >= 10
    recorded = apk_artifacts.recorded()
    assert not [name for name in names if not any(file.startswith(name) for file in recorded)]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in recorded.values())


def test_missing_tools_are_listed_with_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(apk_artifacts.PACKAGES, "no-such-tool", "its-package")
    with pytest.raises(apk_artifacts.BuildError, match="no-such-tool.*--no-install-recommends.*its-package") as raised:
        apk_artifacts.require_packages()
    assert "\n" not in str(raised.value)


def test_the_packages_are_told() -> None:
    tool = Path(apk_artifacts.__file__)
    done = subprocess.run([sys.executable, str(tool), "--packages"], capture_output=True, text=True, check=True)
    assert {"aapt", "apksigner", "clang", "openjdk-17-jdk-headless"} <= set(done.stdout.split())


def test_java_test_files_match_recorded_sums(tmp_path: Path) -> None:
    def report(module: str, *paths: Path) -> None:
        folder = tmp_path / module / "target" / "surefire-reports"
        folder.mkdir(parents=True)
        value = ":".join(map(str, paths))
        (folder / "TEST-x.xml").write_text(f'<a><property name="surefire.test.class.path" value="{value}"/></a>')

    jars = [tmp_path / name for name in ("junit.jar", "android.jar")]
    for jar in jars:
        jar.write_bytes(jar.name.encode())
    with pytest.raises(apk_artifacts.BuildError, match="the tests of core must have run; they left no report"):
        java_test_artifacts.used(["core"], tmp_path)
    core_jar = tmp_path / "core" / "target" / "pocketbert-core.jar"
    report("core", tmp_path / "core" / "target" / "classes", core_jar, jars[0])
    report("app", core_jar, jars[0])
    (tmp_path / "app" / "target" / "sdks").mkdir()
    jars.append(jars[1].rename(tmp_path / "app" / "target" / "sdks" / "android.jar"))
    archives = java_test_artifacts.used(["core", "app"], tmp_path)
    assert sorted(archives) == sorted([jars[0], jars[2]])
    with pytest.raises(apk_artifacts.BuildError, match="samples/java must be built; it has no class path"):
        java_test_artifacts.used(["samples/java"], tmp_path)
    libraries = tmp_path / "samples" / "java" / "target" / "lib"
    libraries.mkdir(parents=True)
    for name in ("pocketbert-core-0.1.0.jar", "stdlib.jar"):
        (libraries / name).write_bytes(b"a library")
    assert java_test_artifacts.used(["samples/java"], tmp_path) == [libraries / "stdlib.jar"]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}
    apk_artifacts.require_sums(archives, sums)
    jars[0].write_bytes(b"another")
    del sums["android.jar"]
    with pytest.raises(apk_artifacts.BuildError) as raised:
        apk_artifacts.require_sums(archives, sums, java_test_artifacts.SUMS)
    for output in ("junit.jar must have the sha256", "android.jar must have a recorded sha256", "tests.sha256"):
        assert output in str(raised.value)


def test_recorded_sums_match_maven_versions() -> None:
    names = set(apk_artifacts.recorded(java_test_artifacts.SUMS))
    pom = (APP / "app" / "pom.xml").read_text(encoding="utf-8")
    # Dependencies of tests have their own scope, type or folder; plugins do not.
    pattern = r"<artifactId>([^<]*)</artifactId>\s*<version>([0-9][^<$]*)</version>\s*<(?:type|scope|out)"
    told = re.findall(pattern, pom)
    assert {artifact for artifact, _ in told} == {
        "robolectric", "monitor", "espresso-idling-resource", "android-all-instrumented",
    }  # fmt: skip
    for artifact, version in told:
        assert any(name.startswith(f"{artifact}-{version}.") for name in names), (artifact, version)
