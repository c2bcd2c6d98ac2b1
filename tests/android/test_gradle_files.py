"""Gradle, Maven, the manifest and the command that drives the app say the same; nothing here can build with Gradle."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import apk_artifacts
from pocketbert_bench import phone_app

ROOT = Path(__file__).parents[2]
APP = ROOT / "android_app"
ANDROID = "{http://schemas.android.com/apk/res/android}"
MODULES = ("core", "app")


@pytest.fixture(scope="module")
def catalogue() -> dict[str, dict[str, object]]:
    return tomllib.loads((APP / "gradle/libs.versions.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def manifest() -> ElementTree.Element:
    return ElementTree.parse(APP / "app/src/main/AndroidManifest.xml").getroot()


def script(name: str) -> str:
    return (APP / name).read_text(encoding="utf-8")


def test_versions_are_mavens(catalogue: dict[str, dict[str, object]]) -> None:
    maven = dict(re.findall(r"<(\w+)\.version>([^<]+)</", script("pom.xml")))
    versions = catalogue["versions"]
    shared = {"javacpp", "junit", "tflite"}
    assert {name: versions[name] for name in shared} == {name: maven[name] for name in shared}
    coordinates = {each["module"]: each["version"] for each in catalogue["libraries"].values()}  # type: ignore[index]
    assert coordinates == {
        "org.bytedeco:javacpp": {"ref": "javacpp"},
        "junit:junit": {"ref": "junit"},
        "org.bytedeco:tensorflow-lite": {"ref": "tflite"},
    }
    # The Android that Maven compiles against is the one of compileSdk: 15 is API 35.
    assert maven["android"].startswith("15-") and versions["compileSdk"] == "35"


def test_the_app_is_the_manifests(catalogue: dict[str, dict[str, object]], manifest: ElementTree.Element) -> None:
    versions, gradle = catalogue["versions"], script("app/build.gradle.kts")
    uses_sdk = manifest.find("uses-sdk")
    assert uses_sdk is not None
    found = {
        "minSdk": uses_sdk.get(f"{ANDROID}minSdkVersion"),
        "targetSdk": uses_sdk.get(f"{ANDROID}targetSdkVersion"),
        "versionCode": manifest.get(f"{ANDROID}versionCode"),
        "versionName": manifest.get(f"{ANDROID}versionName"),
    }
    assert found == {name: versions[name] for name in found}
    assert set(re.findall(r"libs\.versions\.(\w+)\.get", gradle)) == {*found, "compileSdk"}
    assert re.search(r'applicationId = "([^"]+)"', gradle)[1] == manifest.get("package")  # type: ignore[index]
    sources = [path.read_text(encoding="utf-8") for path in (APP / "app/src/main/java").rglob("*.java")]
    (namespace,) = re.findall(r'namespace = "([^"]+)"', gradle)
    assert len(sources) >= 4 and all(f"package {namespace};" in text for text in sources)
    assert f'"{phone_app.ABI}"' in gradle


def test_the_command_knows_the_app_by_its_names(manifest: ElementTree.Element) -> None:
    activities = {each.get(f"{ANDROID}name"): each for each in manifest.iter("activity")}
    application, _, benchmark = phone_app.BENCHMARK.partition("/")
    assert application == phone_app.APPLICATION == manifest.get("package")
    assert set(activities) == {benchmark, phone_app.SCREEN.partition("/")[2]}
    assert phone_app.PROCESS == f"{application}{activities[benchmark].get(f'{ANDROID}process')}"
    uses_sdk = manifest.find("uses-sdk")
    assert uses_sdk is not None and uses_sdk.get(f"{ANDROID}minSdkVersion") == str(phone_app.OLDEST_API)


def test_both_builds_have_the_same_sources() -> None:
    included = re.findall(r'":(\w+)"', script("settings.gradle.kts"))
    assert tuple(included) == MODULES
    mavens = set(re.findall(r"<module>(\w+)</module>", script("pom.xml")))
    # The command for computers is none of Android Studio's; `apk` and `arm64` fetch what commands of ours need.
    assert mavens == {*MODULES, "host", "apk", "arm64"}
    in_modules = [path for name in MODULES for path in (APP / name / "src/main/java").rglob("*.java")]
    others = {path.relative_to(APP).parts[0] for path in APP.rglob("src/main/**/*.java") if path not in in_modules}
    assert len(in_modules) >= 30 and others == {"host"}
    assert (APP / "app/proguard-rules.pro").is_file() and '"proguard-rules.pro"' in script("app/build.gradle.kts")


def test_both_builds_have_the_processors_runtime() -> None:
    assert 'java.srcDir("src/javacpp/java")' in script("app/build.gradle.kts")
    assert "<source>src/javacpp/java</source>" in script("app/pom.xml")
    engines = {path.relative_to(APP / "app/src").parts[0] for path in (APP / "app/src").rglob("Engines.java")}
    assert engines == set(apk_artifacts.RUNTIMES)


def test_java_is_as_old_as_mavens() -> None:
    assert "<maven.compiler.release>8</maven.compiler.release>" in script("pom.xml")
    assert "tasks.compileJava {\n    options.release = 8\n}" in script("core/build.gradle.kts")
    assert set(re.findall(r"JavaVersion\.(\w+)", script("app/build.gradle.kts"))) == {"VERSION_1_8"}


def test_the_build_script_takes_levels_from_the_manifest_and_rules_from_the_same_file() -> None:
    text = (ROOT / "tools/build_apk.py").read_text(encoding="utf-8")
    assert "minSdkVersion=" in text and "proguard-rules.pro" in text
    assert not re.search(r"min-(?:sdk-version|api)\W+\d", text), "levels are written in the manifest alone"


def test_they_say_that_they_were_not_built() -> None:
    files = ["settings.gradle.kts", "build.gradle.kts", "core/build.gradle.kts", "app/build.gradle.kts"]
    assert all("Not built here" in script(name) for name in [*files, "gradle/libs.versions.toml"])
