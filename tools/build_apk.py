"""Builds, aligns, signs and checks the Android app without Gradle or Google's SDK.

Run `python3 tools/build_apk.py [--runtime aar] [--bundle DIR]…`. `apk_artifacts.py` lists the runtimes and the required
Debian packages. The APK is built twice, in two folders. It is kept only if both have the same bytes and pass all checks
in `apk_checks.py`. Exit codes: 0 for success, 2 with one line if something is missing or a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import apk_checks
from apk_artifacts import APP, FRAMEWORK_RESOURCES, RUNTIMES, Artifacts, BuildError, fetch, require_packages, sha256

OUTPUT = APP / "out"
MAIN = APP / "app" / "src" / "main"
CORE = APP / "core" / "src" / "main"
RULES = (APP / "app" / "proguard-rules.pro", CORE / "resources" / "META-INF" / "proguard" / "pocketbert-core.pro")
MANIFEST = MAIN / "AndroidManifest.xml"
GRADLE = APP / "app" / "build.gradle.kts"
MANIFEST_NAMESPACE = "http://schemas.android.com/apk/res/android"
# Runtime → sources in the core that need another runtime's classes.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "javacpp": (),
    "aar": ("BundleEngines.java", "Pipeline.java", "TfLiteEngine.java"),
}
# Java's class libraries for the shrinkers, in the folder of javac.
JAVA_HOME = Path(shutil.which("javac") or "/usr/bin/javac").resolve().parents[1]
# Android's pages have 4 or 16 KB; alignment to 16 KB works on both.
PAGE_BYTES = 16384
# The oldest date in zip files. A fixed date gives equal bytes for equal inputs.
DATE = (1980, 1, 1, 0, 0, 0)
ABI = "arm64-v8a"
NAMES = {"javacpp": "pocketbert-benchmark.apk", "aar": "pocketbert-benchmark-aar.apk"}


def main() -> None:
    """The command line."""
    arguments = _arguments()
    try:
        require_packages()
        artifacts = fetch(arguments.dexer, arguments.runtime)
        key = arguments.keystore or throw_away_key()
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            folders = (Path(first), Path(second))
            apks = [build(folder, artifacts, key, arguments.dexer, arguments.bundle) for folder in folders]
            apk_checks.same(*apks)
            apk_checks.check(apks[0], PAGE_BYTES, arguments.bundle, arguments.runtime)
            output = arguments.output or OUTPUT / NAMES[arguments.runtime]
            output.parent.mkdir(parents=True, exist_ok=True)
            aside = output.with_suffix(".part")
            shutil.copyfile(apks[0], aside)
            aside.replace(output)
    except BuildError as error:
        print(f"build_apk: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{os.path.relpath(output)}: {output.stat().st_size} bytes, by {arguments.dexer}, sha256 {sha256(output)}")


def build(folder: Path, artifacts: Artifacts, key: Path, dexer: str, bundles: Sequence[Path]) -> Path:
    """Makes a signed APK.

    Args:
      folder: an empty folder for all files.
      artifacts: files for one runtime.
      key: keystore; its password is in the environment variable KEYSTORE_PASSWORD.
      dexer: `r8` or `dx`.
      bundles: folders to include.
    """
    run("aapt2", "compile", "--dir", MAIN / "res", "-o", folder / "resources.zip")
    run(
        "aapt2", "link", "-I", FRAMEWORK_RESOURCES, *_manifest(folder, artifacts.name),
        "--custom-package", "org.pocketbert.app",
        "--java", folder / "generated", "--proguard", folder / "aapt.pro", "-o", folder / "base.apk",
        folder / "resources.zip",
    )  # fmt: skip
    roots = (CORE / "java", MAIN / "java", MAIN.with_name(artifacts.name) / "java", folder / "generated")
    sources = [path for root in roots for path in root.rglob("*.java") if path.name not in LEFT_OUT[artifacts.name]]
    # Java 8 is the last version that dx reads, so both dexers use the same classes.
    run(
        "javac", "--release", "8", "-Xlint:-options", "-encoding", "UTF-8", "-d", folder / "classes",
        "-cp", _class_path(*artifacts.runtime, artifacts.android), *sorted(sources),
    )  # fmt: skip
    (folder / "dex").mkdir()
    if dexer == "r8":
        run_r8(folder, artifacts, "--min-api", _min_sdk(), "--output", folder / "dex")
    else:
        _run_dx(folder, artifacts)
    entries = {path.name: path.read_bytes() for path in sorted((folder / "dex").glob("*.dex"))}
    entries |= java_resources(artifacts)
    entries |= {f"lib/{ABI}/{name}": data for name, data in _natives(folder, artifacts).items()}
    for bundle in bundles:
        listed = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["files"]
        for name in ("bundle.json", *sorted(listed)):
            entries[f"assets/bundles/{bundle.name}/{name}"] = (bundle / name).read_bytes()
    _write_apk(folder / "base.apk", entries, folder / "unaligned.apk")
    run("zipalign", "-f", PAGE_BYTES, folder / "unaligned.apk", folder / "aligned.apk")
    run(
        "apksigner", "sign", "--ks", key, "--ks-pass", "env:KEYSTORE_PASSWORD", "--v1-signing-enabled", "false",
        "--v2-signing-enabled", "true", "--v3-signing-enabled", "true", "--out", folder / "signed.apk",
        folder / "aligned.apk",
    )  # fmt: skip
    return folder / "signed.apk"


def _manifest(folder: Path, runtime: str) -> list[object]:
    """Writes the manifest with its package and the runtime's additions; returns aapt2's arguments for it."""
    ElementTree.register_namespace("android", MANIFEST_NAMESPACE)
    manifest = ElementTree.parse(MANIFEST)
    manifest.getroot().set("package", application_id())
    (application,) = manifest.iter("application")
    more = MAIN.with_name(runtime) / MANIFEST.name
    if more.exists():
        for addition in ElementTree.parse(more).iter("application"):
            application.extend(addition)
    written = folder / MANIFEST.name
    manifest.write(written, encoding="utf-8", xml_declaration=True)
    if not more.exists():
        return ["--manifest", written]
    # Debian's aapt2 does not know uses-native-library; apk_checks compares the result.
    return ["--manifest", written, "--warn-manifest-validation"]


def run(*command: object) -> str:
    """Runs a tool and returns its standard output.

    Raises:
      BuildError: the tool failed; the message has the end of its output.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        output = " ".join((done.stderr or done.stdout).split())
        raise BuildError(f"{words[0]} must succeed; it ended with {done.returncode}: {output[-2000:]}")
    return done.stdout


def run_r8(folder: Path, artifacts: Artifacts, *options: object) -> None:
    """Shrinks and translates the classes that `build` compiled in a folder."""
    # Android's jar lacks most of java.*, so Java's own classes are a library too.
    libraries = ("--lib", artifacts.android, "--lib", JAVA_HOME)
    rules = [word for path in (folder / "aapt.pro", *RULES) for word in ("--pg-conf", path)]
    inputs = [*sorted((folder / "classes").rglob("*.class")), *artifacts.runtime]
    tool = (_class_path(*artifacts.tools), "com.android.tools.r8.R8", "--release")
    run("java", "-Xmx2g", "-cp", *tool, *libraries, *rules, *options, *inputs)


def _run_dx(folder: Path, artifacts: Artifacts) -> None:
    """Shrinks and replaces lambdas with ProGuard, then translates with dx."""
    tools, shrunk = _class_path(*artifacts.tools), folder / "shrunk"
    lines = ["-target 1.7", "-dontoptimize", "-dontnote", f"-injars {folder / 'classes'}"]
    lines += [f"-injars {path}(!META-INF/**)" for path in artifacts.runtime]
    lines += [f"-outjars {shrunk}", f"-libraryjars {artifacts.android}"]
    modules = [JAVA_HOME / "jmods" / f"{name}.jmod" for name in ("java.base", "java.logging")]
    lines += [f"-libraryjars {module}(!**.jar;!module-info.class)" for module in modules]
    (folder / "dx.pro").write_text("\n".join(lines), encoding="utf-8")
    rules = [f"@{path}" for path in (folder / "dx.pro", folder / "aapt.pro", *RULES)]
    run("java", "-Xmx2g", "-cp", tools, "proguard.ProGuard", *rules)
    dx = ("com.android.dx.command.Main", "--dex", f"--min-sdk-version={_min_sdk()}")
    run("java", "-Xmx1g", "-cp", tools, *dx, f"--output={folder / 'dex' / 'classes.dex'}", shrunk)


def _class_path(*jars: Path) -> str:
    return os.pathsep.join(map(str, jars))


def application_id() -> str:
    """Reads the application id from Gradle's file."""
    (identifier,) = re.findall(r'applicationId = "([^"]+)"', GRADLE.read_text(encoding="utf-8"))
    return str(identifier)


def _min_sdk() -> str:
    match = re.search(r'android:minSdkVersion="(\d+)"', MANIFEST.read_text(encoding="utf-8"))
    assert match is not None
    return match.group(1)


def java_resources(artifacts: Artifacts) -> dict[str, bytes]:
    """Files that classes load by name: the tokenizers' tables, and JavaCPP's properties for the platform."""
    folder = CORE / "resources"
    files = [path for path in sorted((folder / "org").rglob("*")) if path.is_file()]
    resources = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    for jar in artifacts.runtime:
        pattern = r"org/bytedeco/javacpp/properties/(android-arm64|generic)\.properties"
        resources |= _members(jar, pattern)
    return resources


def _natives(folder: Path, artifacts: Artifacts) -> dict[str, bytes]:
    """Builds or extracts the native libraries; returns name → content."""
    natives: dict[str, bytes] = {}
    for jar in artifacts.natives:
        natives |= {Path(name).name: data for name, data in _members(jar, rf"(lib|jni)/{ABI}/[^/]+\.so").items()}
    for name, data in natives.items():
        (folder / name).write_bytes(data)
    # A helper that calls the runtime must name its library.
    linked = [f"-L{folder}", "-Wl,--as-needed", *(f"-l:{name}" for name in natives)]
    for source in sorted(path for root in (MAIN, MAIN.with_name(artifacts.name)) for path in root.glob("jni/*.c")):
        library = folder / f"libpocketbert_{source.stem}.so"
        run(
            "clang", f"--target=aarch64-linux-android{_min_sdk()}", "-nostdlib", "-ffreestanding", "-shared", "-fPIC",
            "-O2", "-Wall", "-Wextra", "-Werror", "-s", "-fuse-ld=lld", f"-Wl,-z,max-page-size={PAGE_BYTES}",
            "-Wl,--build-id=none", f"-Wl,-soname,{library.name}", "-o", library, source, *linked,
        )  # fmt: skip
        natives[library.name] = library.read_bytes()
    return natives


def _members(archive: Path, pattern: str) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as content:
        return {name: content.read(name) for name in sorted(content.namelist()) if re.fullmatch(pattern, name)}


def _write_apk(base: Path, entries: Mapping[str, bytes], out: Path) -> None:
    """Copies `base` and adds entries with a fixed date. Libraries and bundles are not compressed."""
    with zipfile.ZipFile(base) as source, zipfile.ZipFile(out, "w") as target:
        content = [(name, source.read(name), source.getinfo(name).compress_type) for name in source.namelist()]
        for name, data in entries.items():
            stored = name.startswith(("lib/", "assets/"))
            content.append((name, data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED))
        for name, data, kind in content:
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type, entry.external_attr = kind, 0o644 << 16
            target.writestr(entry, data)


def throw_away_key() -> Path:
    """Creates a key for trying the app, once. It is never committed."""
    path = OUTPUT / "throw-away.p12"
    os.environ["KEYSTORE_PASSWORD"] = "throw-away"
    if not path.exists():
        OUTPUT.mkdir(parents=True, exist_ok=True)
        run(
            "keytool", "-genkeypair", "-keystore", path, "-storetype", "PKCS12", "-storepass:env", "KEYSTORE_PASSWORD",
            "-alias", "key", "-keyalg", "RSA", "-keysize", "3072", "-validity", "10000", "-dname", "CN=throw-away",
        )  # fmt: skip
    return path


def _bundle(value: str) -> Path:
    path = Path(value).resolve()
    if not (path / "bundle.json").is_file() or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", path.name):
        raise argparse.ArgumentTypeError(
            "a bundle must be a folder written by pocketbert export, named with letters, digits, dots, dashes and "
            f"underscores; received {value}"
        )
    return path


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Build the Android app twice, compare and check the APKs, and keep one.",
        epilog="To sign with your own key: KEYSTORE_PASSWORD=… python3 tools/build_apk.py --keystore FILE.",
    )
    parser.add_argument(
        "--bundle", type=_bundle, action="append", default=[], help="include this bundle in the app; repeat for more"
    )
    parser.add_argument(
        "--dexer",
        choices=("r8", "dx"),
        default="r8",
        help="dx runs after ProGuard; use it if Maven cannot find R8 (default: r8)",
    )
    parser.add_argument("--keystore", type=Path, help="sign with this key (default: a throw-away key)")
    parser.add_argument(
        "--runtime", choices=RUNTIMES, default="javacpp",
        help="TensorFlow Lite from the JavaCPP presets, or from its last Android archive, with GPU (default: javacpp)",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="the APK to write (default: a file in android_app/out)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
