"""Dependencies and tools for the APK: Debian packages, and Maven artifacts with their SHA-256.

`python3 tools/apk_artifacts.py --packages` prints the packages. `--require` ends with exit code 2 and one line if one
is missing. `--record` rewrites the sums; check the difference before you commit it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

APP = Path(__file__).resolve().parents[1] / "android_app"
SUMS = APP / "apk" / "artifacts.sha256"
FETCHED = APP / "apk" / "target" / "artifacts"
FRAMEWORK_RESOURCES = Path("/usr/share/android-framework-res/framework-res.apk")

# Runtimes of the app: the JavaCPP presets for the CPU, or TensorFlow Lite's last Android archive for CPU and GPU.
RUNTIMES = ("javacpp", "aar")

# Command or file → its Debian package.
PACKAGES = {
    "mvn": "maven",
    "javac": "openjdk-17-jdk-headless",
    "aapt2": "aapt",
    "zipalign": "zipalign",
    "apksigner": "apksigner",
    "dexdump": "dexdump",
    "readelf": "binutils",
    "clang": "clang",
    "ld.lld": "lld",
    str(FRAMEWORK_RESOURCES): "android-framework-res",
}


class BuildError(Exception):
    """A failed build or check; one line with the rule, what was found and the remedy."""


@dataclass(frozen=True)
class Artifacts:
    """Fetched files.

    Attributes:
      name: the runtime, one of `RUNTIMES`.
      android: Android's classes for the compiler.
      runtime: classes for the app.
      natives: archives with native libraries for the app.
      tools: R8, or ProGuard and dx, with their dependencies.
    """

    name: str
    android: Path
    runtime: tuple[Path, ...]
    natives: tuple[Path, ...]
    tools: tuple[Path, ...]


def require_packages(packages: Mapping[str, str] = PACKAGES, user: str = "an APK") -> None:
    """Raises `BuildError` with the packages to install if a tool is missing.

    Args:
      packages: command or file → its Debian package.
      user: name of the step that needs them.
    """
    missing = [what for what in packages if not (shutil.which(what) or os.path.exists(what))]
    if missing:
        names = " ".join(dict.fromkeys(packages[what] for what in missing))
        raise BuildError(
            f"{user} needs {', '.join(missing)}, which this machine lacks; "
            f"on Debian 12: apt-get install --no-install-recommends {names}"
        )


def fetch(dexer: str, runtime: str = "javacpp") -> Artifacts:
    """Fetches the pinned artifacts with Maven and compares their SHA-256 with the recorded ones.

    Args:
      dexer: `r8` also fetches R8.
      runtime: one of `RUNTIMES`; `aar` also fetches the archive.

    Raises:
      BuildError: Maven fails, or a file differs.
    """
    shutil.rmtree(FETCHED, ignore_errors=True)
    profiles = ",".join(["apk", *["r8"] * (dexer == "r8"), *["aar"] * (runtime == "aar")])
    hint = "; R8 is in Google's Maven repository: add it to your Maven settings, or use --dexer dx"
    run_maven("apk", profiles, hint * (dexer == "r8"))
    require_sums(fetched(), recorded())
    archives = [path for path in fetched() if path.suffix == ".aar"]
    jars = [path for path in fetched() if path.suffix == ".jar"]
    natives = [path for path in jars if path.name.endswith("-android-arm64.jar")]
    classes = [path for path in jars if path.name.startswith(("javacpp-", "tensorflow-lite-")) and path not in natives]
    (android,) = FETCHED.glob("android-all-*.jar")
    tools = [path for path in jars if path not in (*natives, *classes, android)]
    if runtime == "aar":
        natives, classes = archives, [_classes(path) for path in archives]
    return Artifacts(name=runtime, android=android, runtime=tuple(classes), natives=tuple(natives), tools=tuple(tools))


def run_maven(module: str, profiles: str, hint: str = "") -> None:
    """Fetches a module's artifacts with Maven; raises `BuildError` on failure."""
    command = ["mvn", "--quiet", "--batch-mode", *os.environ.get("MAVEN_FLAGS", "").split()]
    command += ["--file", str(APP / "pom.xml"), "-P", profiles, "-pl", module, "package"]
    if subprocess.run(command, check=False).returncode:
        raise BuildError(f"Maven must fetch the artifacts in android_app/{module}/pom.xml; it failed{hint}")


def require_sums(paths: Iterable[Path], expected: Mapping[str, str], sums: Path = SUMS) -> None:
    """Raises `BuildError` unless every file has the expected SHA-256.

    Args:
      paths: the files.
      expected: name → SHA-256.
      sums: the file to name in the error.
    """
    problems = []
    for path in paths:
        digest = sha256(path)
        if expected.get(path.name) != digest:
            rule = f"the sha256 {expected[path.name]}" if path.name in expected else "a recorded sha256"
            problems.append(f"{path.name} must have {rule}; it has {digest}")
    if problems:
        raise BuildError("; ".join(problems) + f"; compare with {sums.name} before you use the files")


def fetched() -> list[Path]:
    """Files fetched by Maven, without files derived from them."""
    return sorted(path for path in FETCHED.glob("*.*") if path.suffix in (".jar", ".aar"))


def _classes(archive: Path) -> Path:
    """Extracts the classes in an Android archive into a jar."""
    jar = archive.parent / "classes" / f"{archive.stem}.jar"
    jar.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive) as content:
        jar.write_bytes(content.read("classes.jar"))
    return jar


def recorded(sums: Path = SUMS) -> dict[str, str]:
    """Reads file name → SHA-256, in the format of `sha256sum`."""
    lines = sums.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def sha256(path: Path) -> str:
    """A file's digest in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--packages", action="store_true", help="print the Debian packages")
    choice.add_argument("--require", action="store_true", help="list missing packages")
    choice.add_argument("--record", action="store_true", help="record the sums of the files fetched last")
    arguments = parser.parse_args()
    if arguments.packages:
        print(" ".join(PACKAGES.values()))
    elif arguments.require:
        try:
            require_packages()
        except BuildError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
    else:
        lines = [f"{sha256(path)}  {path.name}\n" for path in fetched()]
        SUMS.write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
