"""Builds the APK with both dexers, checks its content, and checks that faults are found."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import bundle_folders
import pytest

import apk_artifacts
import apk_checks
import build_apk
from pocketbert_bench import results

pytestmark = pytest.mark.android

APP = Path(__file__).parents[2] / "android_app"
BUNDLE = APP / "core/src/test/resources/bundles/dynamic_wi8"
PAGE = build_apk.PAGE_BYTES


@pytest.fixture(scope="session")
def artifacts() -> apk_artifacts.Artifacts:
    return apk_artifacts.fetch("r8")


@pytest.fixture(scope="session")
def built(artifacts: apk_artifacts.Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with an APK built by ProGuard and dx."""
    folder = tmp_path_factory.mktemp("dx")
    build_apk.build(folder, artifacts, build_apk.throw_away_key(), "dx", [BUNDLE])
    return folder


def test_activity_results_match_the_schema() -> None:
    for name in ("api_28.json", "api_35.json"):
        result = results.read(APP / "app/target/results" / name)
        assert result.measured_on == "device"
        (measurement,) = result.measurements
        assert measurement.status == "ok"
        assert measurement.device is not None
        assert result.machine.packages["android_api"] == name[4:6]


def test_dx_builds_an_apk_with_bundle(built: Path) -> None:
    apk_checks.check(built / "signed.apk", PAGE, [BUNDLE], "javacpp")
    with zipfile.ZipFile(built / "signed.apk") as apk:
        shipped = [name for name in apk.namelist() if name.startswith("assets/bundles/dynamic_wi8/")]
    assert {Path(name).name for name in shipped} >= {"bundle.json", "model.tflite", "vocab.txt"}


@pytest.mark.parametrize("dexer", ["r8", "dx"])
def test_gpu_build_passes_its_own_checks(dexer: str, tmp_path: Path) -> None:
    archive = apk_artifacts.fetch("r8", "aar")
    apk = build_apk.build(tmp_path, archive, build_apk.throw_away_key(), dexer, [])
    apk_checks.check(apk, PAGE, [], "aar")
    with pytest.raises(apk_artifacts.BuildError) as raised:
        apk_checks.check(apk, PAGE, [], "javacpp")
    assert "the native libraries must be libjnijavacpp.so" in str(raised.value)
    (dex,) = [path.read_bytes() for path in (tmp_path / "dex").glob("*.dex")]
    for name in (b"Lorg/tensorflow/lite/gpu/GpuDelegate;", b"Lorg/tensorflow/lite/ExecutionPlan;", b"createDelegate"):
        assert name in dex
    assert b"Lorg/bytedeco/" not in dex


def test_what_r8_keeps_measures_a_bundle(built: Path, artifacts: apk_artifacts.Artifacts, tmp_path: Path) -> None:
    """R8 writes class files for a JVM; the computer's native libraries have the same names as the phone's."""
    jar, host = tmp_path / "shrunk.jar", APP / "host" / "target"
    build_apk.run_r8(built, artifacts, "--classfile", "--output", jar)
    platform = "org/bytedeco/javacpp/properties/linux-x86_64.properties"
    (javacpp,) = [path for path in artifacts.runtime if path.name.startswith("javacpp-")]
    with zipfile.ZipFile(jar, "a") as content, zipfile.ZipFile(javacpp) as source:
        for name, data in {**build_apk.java_resources(artifacts), platform: source.read(platform)}.items():
            if name not in content.namelist():
                content.writestr(name, data)
        assert not [name for name in content.namelist() if name.startswith("org/bytedeco/javacpp/tools/Builder")]
    path = [jar, host / "classes", *sorted((host / "lib").glob("*-linux-x86_64.jar"))]
    command = ["java", "-cp", ":".join(map(str, path)), "org.pocketbert.host.Worker"]
    answer = tmp_path / "measurement.json"
    done = subprocess.run(
        [*command, "label", str(BUNDLE), "17", "1", str(answer)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measurement = json.loads(answer.read_text(encoding="ascii"))
    assert (measurement["status"], measurement["delegate"]["name"]) == ("ok", "XNNPACK")


def test_lambdas_that_nobody_rewrote_are_noticed(
    built: Path, artifacts: apk_artifacts.Artifacts, tmp_path: Path
) -> None:
    package = Path("org", "pocketbert", "app")
    shutil.copytree(built / "classes" / package, tmp_path / "classes" / package)
    dx = ("com.android.dx.command.Main", "--dex", "--min-sdk-version=26", f"--output={tmp_path / 'classes.dex'}")
    build_apk.run("java", "-cp", ":".join(map(str, artifacts.tools)), *dx, tmp_path / "classes")
    (problem,) = apk_checks.dex_problems(tmp_path / "classes.dex")
    assert "invoke-custom" in problem


def test_unloadable_libraries_are_found(tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    source = tmp_path / "empty.c"
    source.write_text("int f(void) { return 1; }\n", encoding="ascii")
    clang = ["clang", "--target=aarch64-linux-android26", "-nostdlib", "-shared", "-fPIC", "-fuse-ld=lld"]
    subprocess.run([*clang, "-Wl,-soname,libother.so", "-o", other, source], check=True)
    small = [*clang, "-Wl,-z,max-page-size=4096", "-Wl,--no-as-needed", "-o", tmp_path / "small.so", source, other]
    subprocess.run(small, check=True)
    problems = apk_checks.library_problems(tmp_path / "small.so", PAGE)
    assert len(problems) == 2
    assert "aligned to 16384" in problems[0]
    assert problems[1].endswith("it needs libother.so")


def test_a_changed_apk_is_noticed(built: Path, tmp_path: Path) -> None:
    lacking = tmp_path / "lacking.apk"
    with zipfile.ZipFile(built / "signed.apk") as source, zipfile.ZipFile(lacking, "w") as target:
        for name in source.namelist():
            if not name.endswith("/bert_unicode.txt"):
                target.writestr(name, source.read(name))
    with pytest.raises(apk_artifacts.BuildError) as raised:
        apk_checks.check(lacking, PAGE, [], "javacpp")
    for part in ("the signature must be valid", "multiple of 16384", "bert_unicode.txt must be in the APK"):
        assert part in str(raised.value)
    with pytest.raises(apk_artifacts.BuildError, match="they differ in org/pocketbert/tokenizer/bert_unicode.txt"):
        apk_checks.same(built / "signed.apk", lacking)


def test_an_old_signature_is_noticed(built: Path, tmp_path: Path) -> None:
    apk = tmp_path / "v1.apk"
    build_apk.run(
        "apksigner", "sign", "--ks", build_apk.throw_away_key(), "--ks-pass", "env:KEYSTORE_PASSWORD",
        "--v1-signing-enabled", "true", "--v2-signing-enabled", "true", "--v3-signing-enabled", "false", "--out", apk,
        built / "aligned.apk",
    )  # fmt: skip
    (problem,) = apk_checks.signature_problems(apk)
    assert "schemes 2 and 3 only" in problem


def test_bundle_with_wrong_outputs_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "wrong"
    shutil.copytree(BUNDLE, bundle)
    bundle_folders.change_answers(bundle, {"outputs/logits": lambda logits: logits + 1})
    (problem,) = apk_checks.bundle_problems(bundle, "javacpp")
    assert "those recorded at export" in problem


def test_changed_artifact_is_refused(artifacts: apk_artifacts.Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {**apk_artifacts.recorded(), artifacts.android.name: "0" * 64}
    monkeypatch.setattr(apk_artifacts, "recorded", lambda: sums)
    with pytest.raises(apk_artifacts.BuildError, match="android-all-.*must have the sha256 0{64}; it has e17105"):
        apk_artifacts.fetch("r8")
