"""Compares Gradle, Maven, the manifest and the command for phones, without running Gradle."""

from __future__ import annotations

import re
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest

import apk_artifacts
import build_apk
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
    coordinates = {library["module"]: library["version"] for library in catalogue["libraries"].values()}  # type: ignore[index]
    assert coordinates == {
        "org.bytedeco:javacpp": {"ref": "javacpp"},
        "junit:junit": {"ref": "junit"},
        "org.bytedeco:tensorflow-lite": {"ref": "tflite"},
    }
    # Maven compiles against Android 15 (API 35), Robolectric's last one on JDK 17. Newer versions include all of it.
    assert maven["android"].startswith("15-") and versions["compileSdk"] == versions["targetSdk"] == "36"


def test_the_app_is_the_manifests(catalogue: dict[str, dict[str, object]], manifest: ElementTree.Element) -> None:
    versions, gradle = catalogue["versions"], script("app/build.gradle.kts")
    uses_sdk = manifest.find("uses-sdk")
    assert uses_sdk is not None
    values = {
        "minSdk": uses_sdk.get(f"{ANDROID}minSdkVersion"),
        "targetSdk": uses_sdk.get(f"{ANDROID}targetSdkVersion"),
        "versionCode": manifest.get(f"{ANDROID}versionCode"),
        "versionName": manifest.get(f"{ANDROID}versionName"),
    }
    assert values == {name: versions[name] for name in values}
    assert set(re.findall(r"libs\.versions\.(\w+)\.get", gradle)) == {*values, "compileSdk"}
    (application,) = re.findall(r'applicationId = "([^"]+)"', gradle)
    assert application == phone_app.APPLICATION == build_apk.application_id()
    assert f"<application.id>{application}</application.id>" in script("app/pom.xml")
    sources = [path.read_text(encoding="utf-8") for path in (APP / "app/src/main/java").rglob("*.java")]
    (namespace,) = re.findall(r'namespace = "([^"]+)"', gradle)
    assert len(sources) >= 4 and all(f"package {namespace};" in text for text in sources)
    assert f'"{phone_app.ABI}"' in gradle


def test_command_has_the_app_names(manifest: ElementTree.Element) -> None:
    activities = {activity.get(f"{ANDROID}name"): activity for activity in manifest.iter("activity")}
    application, _, benchmark = phone_app.BENCHMARK.partition("/")
    assert application == phone_app.APPLICATION
    assert set(activities) == {benchmark, phone_app.SCREEN.partition("/")[2]}
    assert phone_app.PROCESS == f"{application}{activities[benchmark].get(f'{ANDROID}process')}"
    uses_sdk = manifest.find("uses-sdk")
    assert uses_sdk is not None and uses_sdk.get(f"{ANDROID}minSdkVersion") == str(phone_app.OLDEST_API)


def test_both_builds_have_the_same_sources() -> None:
    included = re.findall(r'":(\w+)"', script("settings.gradle.kts"))
    assert tuple(included) == MODULES
    mavens = set(re.findall(r"<module>(\w+)</module>", script("pom.xml")))
    # Android Studio does not build `host`; `apk` and `arm64` fetch dependencies of our commands.
    assert mavens == {*MODULES, "host", "apk", "arm64"}
    in_modules = [path for name in MODULES for path in (APP / name / "src/main/java").rglob("*.java")]
    others = {path.relative_to(APP).parts[0] for path in APP.rglob("src/main/**/*.java") if path not in in_modules}
    # The samples are projects of their own.
    assert len(in_modules) >= 30 and others == {"host", "samples"}
    assert (APP / "app/proguard-rules.pro").is_file() and '"proguard-rules.pro"' in script("app/build.gradle.kts")


def test_both_builds_have_the_processors_runtime() -> None:
    assert 'java.srcDir("src/javacpp/java")' in script("app/build.gradle.kts")
    assert "<source>src/javacpp/java</source>" in script("app/pom.xml")
    engines = {path.relative_to(APP / "app/src").parts[0] for path in (APP / "app/src").rglob("Engines.java")}
    assert engines == set(apk_artifacts.RUNTIMES)


def test_manifest_omits_settings_refused_by_gradle(manifest: ElementTree.Element) -> None:
    """AGP 8 refuses a package in the manifest, and its lint fails release builds with `debuggable`."""
    assert manifest.get("package") is None
    assert not [element for element in manifest.iter() if f"{ANDROID}debuggable" in element.attrib]
    assert "isDebuggable" not in script("app/build.gradle.kts")


def test_nothing_is_written_while_gradle_configures() -> None:
    for name in ("settings.gradle.kts", *(f"{module}build.gradle.kts" for module in ("", "core/", "app/"))):
        assert not re.search(r"writeText|mkdirs|writeBytes|\.copyTo\(|\.readText", script(name)), name


def test_wrapper_pins_a_compatible_gradle(catalogue: dict[str, dict[str, object]]) -> None:
    lines = script("gradle/wrapper/gradle-wrapper.properties").splitlines()
    wrapper = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert set(wrapper) == {
        "distributionBase", "distributionPath", "distributionUrl", "distributionSha256Sum", "networkTimeout",
        "validateDistributionUrl", "zipStoreBase", "zipStorePath",
    }  # fmt: skip
    # AGP 8.13 supports Gradle 8.13 and later 8.x. Gradle 9 removed functions it calls.
    assert re.fullmatch(
        r"https\\://services\.gradle\.org/distributions/gradle-8\.13-bin\.zip", wrapper["distributionUrl"]
    )
    assert str(catalogue["versions"]["agp"]).startswith("8.13.")
    assert re.fullmatch("[0-9a-f]{64}", wrapper["distributionSha256Sum"])


@pytest.mark.android
def test_jars_share_no_resource_name() -> None:
    """AGP fails the build on duplicates, except for the manifest, which it always omits."""
    artifacts = apk_artifacts.fetch("r8")
    excluded = re.search(r"resources\.excludes \+= setOf\(([^)]*)\)", script("app/build.gradle.kts"))
    assert excluded
    folders = tuple(pattern.removesuffix("**") for pattern in re.findall(r'"([^"]+)"', excluded[1]))
    assert all(folder.startswith("META-INF/") and folder.endswith("/") for folder in folders)
    jars = [*artifacts.runtime, *artifacts.natives]
    assert len(jars) == 4
    owners: dict[str, list[str]] = {}
    for jar in jars:
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if not name.endswith("/") and name != "META-INF/MANIFEST.MF" and not name.startswith(folders):
                    owners.setdefault(name, []).append(jar.name)
    assert {name: jars for name, jars in owners.items() if len(jars) > 1} == {}


def test_java_is_as_old_as_mavens() -> None:
    assert "<maven.compiler.release>8</maven.compiler.release>" in script("pom.xml")
    assert "tasks.compileJava {\n    options.release = 8\n}" in script("core/build.gradle.kts")
    assert set(re.findall(r"JavaVersion\.(\w+)", script("app/build.gradle.kts"))) == {"VERSION_1_8"}
