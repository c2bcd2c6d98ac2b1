"""What an APK is made of and with: Debian's packages and Maven's artifacts, each artifact with its SHA-256.

`python3 tools/apk_artifacts.py --packages` prints the packages, `--require` ends with exit code 2 and one line if one
is missing, `--record` writes the sums anew (look at the difference before you commit it).
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

# What runs networks in the app: the JavaCPP presets, on the processor, or TensorFlow Lite's last archive for Android,
# which has the GPU too.
RUNTIMES = ("javacpp", "aar")

# Command or file → the Debian package that has it.
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
    """One line for people: the rule, what was found, what to do."""


@dataclass(frozen=True)
class Artifacts:
    """Fetched files.

    Attributes:
      name: of the runtime, one of `RUNTIMES`.
      android: Android's classes, to compile against.
      runtime: classes that go into the app.
      natives: archives with native libraries that go into the app.
      tools: R8 or ProGuard and dx, with what they need.
    """

    name: str
    android: Path
    runtime: tuple[Path, ...]
    natives: tuple[Path, ...]
    tools: tuple[Path, ...]


def require_packages(packages: Mapping[str, str] = PACKAGES, user: str = "an APK") -> None:
    """Raises `BuildError` with what to install if a tool is missing.

    Args:
      packages: command or file → the Debian package that has it.
      user: what needs them.
    """
    missing = [what for what in packages if not (shutil.which(what) or os.path.exists(what))]
    if missing:
        names = " ".join(dict.fromkeys(packages[what] for what in missing))
        raise BuildError(
            f"{user} needs {', '.join(missing)}, which this machine has not; "
            f"on Debian 12: apt-get install --no-install-recommends {names}"
        )


def fetch(dexer: str, runtime: str = "javacpp") -> Artifacts:
    """Lets Maven fetch the pinned artifacts, of which each has to have its recorded SHA-256.

    Args:
      dexer: `r8` fetches R8 too.
      runtime: one of `RUNTIMES`; `aar` fetches the archive too.

    Raises:
      BuildError: Maven fails, or a file has another content.
    """
    shutil.rmtree(FETCHED, ignore_errors=True)
    profiles = ",".join(["apk", *["r8"] * (dexer == "r8"), *["aar"] * (runtime == "aar")])
    hint = "; R8 comes from Google's Maven repository: name it in Maven's settings, or take --dexer dx"
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
    """Lets Maven fetch what a module names, or raises `BuildError`."""
    command = ["mvn", "--quiet", "--batch-mode", *os.environ.get("MAVEN_FLAGS", "").split()]
    command += ["--file", str(APP / "pom.xml"), "-P", profiles, "-pl", module, "package"]
    if subprocess.run(command, check=False).returncode:
        raise BuildError(f"Maven must fetch what android_app/{module}/pom.xml names; it failed{hint}")


def require_sums(paths: Iterable[Path], expected: Mapping[str, str], sums: Path = SUMS) -> None:
    """Raises `BuildError` unless every file has the SHA-256 that is expected of its name.

    Args:
      paths: the files.
      expected: name → SHA-256.
      sums: the file to name in the error.
    """
    problems = []
    for path in paths:
        found = sha256(path)
        if expected.get(path.name) != found:
            problems.append(f"{path.name} must have the sha256 {expected.get(path.name, 'of a list')}; it has {found}")
    if problems:
        raise BuildError("; ".join(problems) + f"; compare with {sums.name}, and build nothing from it")


def fetched() -> list[Path]:
    """What Maven brought, without what was made of it."""
    return sorted(path for path in FETCHED.glob("*.*") if path.suffix in (".jar", ".aar"))


def _classes(archive: Path) -> Path:
    """The classes inside an Android archive, as a file of their own."""
    jar = archive.parent / "classes" / f"{archive.stem}.jar"
    jar.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive) as content:
        jar.write_bytes(content.read("classes.jar"))
    return jar


def recorded(sums: Path = SUMS) -> dict[str, str]:
    """File name → SHA-256, as `sha256sum` writes them."""
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
    choice.add_argument("--packages", action="store_true", help="print Debian's packages")
    choice.add_argument("--require", action="store_true", help="say which of them are missing")
    choice.add_argument("--record", action="store_true", help="write the sums of what was fetched last")
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
