"""Checks of an APK before it is kept."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from apk_artifacts import APP, BuildError, sha256

# Name in bundles of the Python runtime with the archive's release.
TFLITE_2_16 = "tflite-2.16"
HOST = APP / "host" / "target" / "pocketbert-host.jar"
# The core's files, which classes load by name. Without them, an APK starts but fails at the first text.
_CORE = APP / "core" / "src" / "main" / "resources"
_TABLES = tuple(sorted(path.relative_to(_CORE).as_posix() for path in _CORE.rglob("*.txt")))
# Runtime → files that must be in the APK; javacpp's name native libraries.
RESOURCES = {
    "javacpp": (
        *_TABLES,
        "org/bytedeco/javacpp/properties/android-arm64.properties",
        "org/bytedeco/javacpp/properties/generic.properties",
    ),
    "aar": _TABLES,
}
# Runtime → native libraries.
LIBRARIES = {
    "javacpp": (
        "libjnijavacpp.so",
        "libjnitensorflowlite.so",
        "libpocketbert_affinity.so",
        "libpocketbert_weight_cache.so",
    ),
    "aar": ("libpocketbert_affinity.so", "libtensorflowlite_gpu_jni.so", "libtensorflowlite_jni.so"),
}
# Linked for 4 KB pages in the last release. Phones with larger pages cannot load them, and the app says so.
SMALL_PAGES = {"libtensorflowlite_gpu_jni.so": 4096, "libtensorflowlite_jni.so": 4096}
# Libraries that apps may load on every Android version.
PUBLIC_LIBRARIES = ("liblog.so", "libdl.so", "libm.so", "libc.so", "libEGL.so", "libGLESv3.so")
# The expected manifest, element by element. Other elements must not occur.
MANIFEST: dict[str, list[dict[str, str]]] = {
    "manifest": [{"package": "org.pocketbert.benchmark"}],
    "uses-sdk": [{"minSdkVersion": "26", "targetSdkVersion": "36"}],
    "application": [{"allowBackup": "false", "extractNativeLibs": "false", "usesCleartextTraffic": "false"}],
    "profileable": [{"shell": "true"}],
    "activity": [
        {"name": "org.pocketbert.app.MainActivity", "exported": "true"},
        {
            "name": "org.pocketbert.app.BenchmarkActivity",
            "exported": "true",
            "permission": "android.permission.DUMP",
            "process": ":measure",
        },
    ],
    "intent-filter": [{}],
    "action": [{"name": "android.intent.action.MAIN"}],
    "category": [{"name": "android.intent.category.LAUNCHER"}],
}
# An element must have these attributes exactly if `MANIFEST` lists them. Apps are not debuggable by default.
WANTED_ONLY = {"permission", "exported", "sharedUserId", "process", "debuggable", "testOnly"}
# Runtime → additional elements.
MORE_MANIFEST: dict[str, dict[str, list[dict[str, str]]]] = {
    "javacpp": {},
    "aar": {
        "uses-native-library": [
            {"name": name, "required": "false"} for name in ("libOpenCL.so", "libOpenCL-car.so", "libOpenCL-pixel.so")
        ]
    },
}


def check(apk: Path, page_bytes: int, bundles: Sequence[Path], runtime: str) -> None:
    """Checks a signed APK.

    Args:
      apk: the file.
      page_bytes: alignment of native code.
      bundles: bundles inside the APK.
      runtime: the runtime inside the APK.

    Raises:
      BuildError: lists all problems.
    """
    problems = [*signature_problems(apk), *manifest_problems(built_manifest(apk), runtime), *permission_problems(apk)]
    if _run("zipalign", "-c", str(page_bytes), str(apk)).returncode:
        problems.append(f"every uncompressed entry must start at a multiple of {page_bytes} bytes")
    with zipfile.ZipFile(apk) as content, tempfile.TemporaryDirectory() as folder:
        names = content.namelist()
        problems += [f"{name} must be in the APK" for name in RESOURCES[runtime] if name not in names]
        libraries = sorted(name for name in names if name.endswith(".so"))
        if libraries != [f"lib/arm64-v8a/{name}" for name in LIBRARIES[runtime]]:
            required = ", ".join(LIBRARIES[runtime])
            problems.append(f"the native libraries must be {required}; received {', '.join(libraries)}")
        for name in names:
            if name.endswith((".so", ".dex")):
                path = Path(content.extract(name, folder))
                problems += dex_problems(path) if name.endswith(".dex") else library_problems(path, page_bytes)
    problems += [problem for bundle in bundles for problem in bundle_problems(bundle, runtime)]
    if problems:
        raise BuildError("; ".join(problems))


def same(first: Path, second: Path) -> None:
    """Raises `BuildError` unless two builds have the same bytes."""
    if sha256(first) != sha256(second):
        with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
            names = sorted({*one.namelist(), *other.namelist()})
            differing = [name for name in names if _bytes(one, name) != _bytes(other, name)]
        raise BuildError(f"two builds must give the same bytes; they differ in {', '.join(differing) or 'the order'}")


def signature_problems(apk: Path) -> list[str]:
    """Requires schemes 2 and 3, which cover the whole file, without scheme 1, which does not."""
    output = _run("apksigner", "verify", "--verbose", str(apk))
    if output.returncode:
        return [
            f"the signature must be valid; apksigner says {' '.join((output.stdout + output.stderr).split())[:300]}"
        ]
    schemes = dict(re.findall(r"Verified using v([1-4]) scheme [^:]*: (true|false)", output.stdout))
    expected = {"1": "false", "2": "true", "3": "true"}
    verified = {scheme: schemes.get(scheme) for scheme in expected}
    return [] if verified == expected else [f"the signature must have schemes 2 and 3 only; received {verified}"]


def permission_problems(apk: Path) -> list[str]:
    """Requires that the app requests no permission."""
    output = _run("aapt2", "dump", "permissions", str(apk)).stdout
    extra = [line for line in output.splitlines() if not line.startswith("package: ")]
    return [f"the app must request no permission; received {', '.join(extra)}"] if extra else []


def built_manifest(apk: Path) -> dict[str, list[dict[str, str]]]:
    """Reads the binary manifest: element → attributes of each occurrence."""
    elements: dict[str, list[dict[str, str]]] = {}
    current: dict[str, str] = {}
    for line in _run("aapt2", "dump", "xmltree", "--file", "AndroidManifest.xml", str(apk)).stdout.splitlines():
        if element := re.match(r" *E: ([\w-]+) ", line):
            current = {}
            elements.setdefault(element.group(1), []).append(current)
        elif attribute := re.match(r" *A: (?:\S*:)?(\w+)(?:\(0x[0-9a-f]+\))?=(?:\"([^\"]*)\"|(\S+))", line):
            current[attribute.group(1)] = attribute.group(3) or attribute.group(2)
    return elements


def manifest_problems(elements: dict[str, list[dict[str, str]]], runtime: str) -> list[str]:
    """Compares a manifest with the expected one; attributes without influence on security may differ."""
    problems = []
    manifest = {**MANIFEST, **MORE_MANIFEST[runtime]}
    for element in sorted({*elements, *manifest}):
        here, required = elements.get(element, []), manifest.get(element, [])
        if len(here) != len(required):
            problems.append(f"the manifest must have {len(required)} of {element}; it has {len(here)}")
        for attributes, intended in zip(here, required, strict=False):
            for name in intended.keys() | (attributes.keys() & WANTED_ONLY):
                if attributes.get(name) != intended.get(name):
                    problems.append(f"{element}'s {name} must be {intended.get(name)}; it is {attributes.get(name)}")
    return problems


def dex_problems(path: Path) -> list[str]:
    """Requires that lambdas are compiled to classes, because Android cannot link them as Java does."""
    count = sum("invoke-custom" in line for line in _run("dexdump", "-d", str(path)).stdout.splitlines())
    return [f"{path.name} must have no invoke-custom instruction; it has {count}"] if count else []


def library_problems(path: Path, page_bytes: int) -> list[str]:
    """Checks the alignment of mapped segments, and the libraries that a library needs."""
    problems = []
    lines = [line.split() for line in _run("readelf", "-lW", str(path)).stdout.splitlines()]
    loads = [int(words[-1], 16) for words in lines if words[:1] == ["LOAD"]]
    page_size = SMALL_PAGES.get(path.name, page_bytes)
    if not loads or min(loads) < page_size:
        problems.append(f"{path.name}'s segments must be aligned to {page_size}; received {loads}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", _run("readelf", "-d", str(path)).stdout)
    library_names = {*PUBLIC_LIBRARIES, *(name for names in LIBRARIES.values() for name in names)}
    missing = [name for name in needed if name not in library_names]
    if missing:
        problems.append(f"{path.name} must need no library that apps cannot load; it needs {', '.join(missing)}")
    return problems


def bundle_problems(bundle: Path, runtime: str) -> list[str]:
    """Requires that the bundle reproduces its golden examples at every length, with the app's code and runtime release.

    The archive's code needs Android, so for it the export must have used its release (`TFLITE_2_16`).
    """
    if runtime == "aar":
        claimed = json.loads((bundle / "bundle.json").read_text(encoding="utf-8"))["runtimes"]
        if TFLITE_2_16 not in claimed:
            return [
                f"bundle {bundle.name} must be exported with --runtime={TFLITE_2_16}, the archive's release; "
                f"it lists {', '.join(claimed)}"
            ]
    if not HOST.is_file():
        return [f"{HOST.name}, which runs golden examples, must be built first; run make android-test"]
    done = _run("java", "-jar", str(HOST), str(bundle))
    output = " ".join((done.stderr if done.returncode == 2 else done.stdout).split())
    return [f"bundle {bundle.name} must reproduce its golden examples; {output[-500:]}"] if done.returncode else []


def _bytes(archive: zipfile.ZipFile, name: str) -> bytes | None:
    return archive.read(name) if name in archive.namelist() else None


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
