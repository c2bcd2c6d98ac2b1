"""The Java core as a library: its repository, its coordinates in every build, and samples that use it from there."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import pytest

from pocketbert_runtime.bundles.bundle import Bundle

ROOT = Path(__file__).parents[2]
APP = ROOT / "android_app"
REPOSITORY = ROOT / "out" / "maven"
SAMPLES = ("java", "kotlin")
SOURCES = {"java": "src/main/java/Labels.java", "kotlin": "src/main/kotlin/Labels.kt"}


def text(name: str) -> str:
    return (APP / name).read_text(encoding="utf-8")


def coordinates(pom: Path) -> tuple[str, str, str]:
    """Group, artifact and version, of a module also from its parent."""
    root = ElementTree.parse(pom).getroot()
    # A written POM has a namespace, ours have none.
    parent = root.find("{*}parent")
    values = [
        root.findtext(f"{{*}}{name}") or (parent.findtext(f"{{*}}{name}") if parent is not None else None)
        for name in ("groupId", "artifactId", "version")
    ]
    group, artifact, version = (value or "" for value in values)
    return group, artifact, version


def test_all_builds_have_the_same_coordinates() -> None:
    group, artifact, version = coordinates(APP / "core/pom.xml")
    gradle, catalogue = text("core/build.gradle.kts"), tomllib.loads(text("gradle/libs.versions.toml"))
    assert f'group = "{group}"' in gradle and f'artifactId = "{artifact}"' in gradle
    assert "version = libs.versions.pocketbert.get()" in gradle
    assert catalogue["versions"]["pocketbert"] == version
    assert f'implementation("{group}:{artifact}:{version}")' in text("README.md")
    natives = {name: catalogue["versions"][name] for name in ("javacpp", "tflite")}
    for sample in SAMPLES:
        pom = text(f"samples/{sample}/pom.xml")
        versions = dict(re.findall(r"<(\w+)\.version>([^<]+)</", pom))
        assert {name: versions[name] for name in (*natives, "pocketbert")} == {**natives, "pocketbert": version}
        assert f"<groupId>{group}</groupId>\n      <artifactId>{artifact}</artifactId>" in pom
        assert "<maven.compiler.release>8</maven.compiler.release>" in pom


def test_samples_are_short() -> None:
    lines = {sample: len(text(f"samples/{sample}/{SOURCES[sample]}").splitlines()) for sample in SAMPLES}
    assert lines["java"] < 40 and lines["kotlin"] <= 20


@pytest.mark.android
def test_repository_has_sources_and_documentation() -> None:
    group, artifact, version = coordinates(APP / "core/pom.xml")
    folder = REPOSITORY / group.replace(".", "/") / artifact / version
    pom = folder / f"{artifact}-{version}.pom"
    assert coordinates(pom) == (group, artifact, version)
    content = pom.read_text("utf-8")
    # Another project has neither the parent nor a repository in this checkout.
    assert "<parent>" not in content and "file://" not in content and "junit" not in content
    assert "<artifactId>tensorflow-lite</artifactId>" in content
    for classifier, name in (
        ("", "org/pocketbert/Pipeline.class"),
        ("-sources", "org/pocketbert/Pipeline.java"),
        ("-javadoc", "org/pocketbert/Pipeline.html"),
    ):
        with zipfile.ZipFile(folder / f"{artifact}-{version}{classifier}.jar") as jar:
            assert name in jar.namelist()
            assert classifier or "META-INF/proguard/pocketbert-core.pro" in jar.namelist()


@pytest.mark.android
@pytest.mark.parametrize("sample", SAMPLES)
def test_sample_gives_the_labels_of_python(sample: str, tmp_path: Path) -> None:
    # It imports TensorFlow, which the other tests do not need.
    import runtime_bundles

    jar = APP / "samples" / sample / "target" / "labels.jar"
    assert jar.is_file(), "run make android-library"
    folder = runtime_bundles.export_bundle(tmp_path) / "bundle"
    archive = shutil.make_archive(str(tmp_path / "moods"), "zip", folder)
    texts = [one for one in runtime_bundles.TEXTS if one]
    for path in (archive, folder) if sample == "java" else (archive,):
        done = subprocess.run(
            ["java", "-jar", jar, path, *texts], capture_output=True, encoding="utf-8", timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        for line, answer, one in zip(done.stdout.splitlines(), Bundle.open(folder).predict(texts), texts, strict=True):
            label, probability, rest = line.split(" ", 2)
            assert (label, rest) == (answer["label"], one)
            assert float(probability) == pytest.approx(answer["probabilities"][label], abs=1e-5)
    done = subprocess.run(
        ["java", "-jar", jar, APP / "pom.xml", "a"], capture_output=True, encoding="utf-8", timeout=300, check=False
    )
    assert done.returncode != 0 and "must be a complete zip file" in done.stderr
