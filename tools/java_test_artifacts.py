"""Checks the SHA-256 of files that Maven fetched for Java: class paths, and Robolectric's Android versions.

`python3 tools/java_test_artifacts.py core host` finds the files in these modules' Surefire reports, and those of
`samples/java` in its folder `target/lib`. It ends with exit code 2 and one line if a file differs or is not recorded.
`--record` rewrites `android_app/tests.sha256` from all modules; check the difference before you commit it.
`apk_artifacts` checks the app's own dependencies before the build.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

from apk_artifacts import APP, BuildError, recorded, require_sums, sha256

SUMS = APP / "tests.sha256"
MODULES = ("core", "host", "app")
# Without tests; Maven copies their class path.
SAMPLES = ("samples/java", "samples/kotlin")
ARCHIVES = (".jar", ".aar")


def used(modules: Iterable[str], app: Path = APP) -> list[Path]:
    """Finds the archives used by the modules' tests and by samples, without the project's own.

    Raises:
      BuildError: a module's tests left no report, or a sample no class path.
    """
    archives: set[Path] = set()
    for module in modules:
        target = app / module / "target"
        if module in SAMPLES:
            jars = [path for path in target.glob("lib/*.jar") if not path.name.startswith("pocketbert-")]
            if not jars:
                raise BuildError(f"{module} must be built; it has no class path; make android-library builds it")
            archives |= {*jars}
            continue
        reports = list((target / "surefire-reports").glob("TEST-*.xml"))
        if not reports:
            raise BuildError(f"the tests of {module} must have run; they left no report; make android runs them")
        for report in reports:
            for element in ElementTree.parse(report).iter("property"):
                if element.get("name") == "surefire.test.class.path":
                    archives |= {Path(path) for path in (element.get("value") or "").split(":")}
        # Not on a class path: Robolectric's SDKs, and unpacked AARs.
        archives |= {*target.glob("sdks/*"), *target.glob("aar/*")}
    folders = {app / module / "target" for module in MODULES}
    return sorted(path for path in archives if path.suffix in ARCHIVES and path.parent not in folders)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"modules that just ran: {', '.join((*MODULES, *SAMPLES))}")
    parser.add_argument("--record", action="store_true", help="record the sums of all modules")
    arguments = parser.parse_args()
    try:
        if arguments.record:
            lines = {f"{sha256(path)}  {path.name}\n" for path in used((*MODULES, *SAMPLES))}
            SUMS.write_text("".join(sorted(lines, key=lambda line: line.split()[1])), encoding="ascii")
        else:
            require_sums(used(arguments.modules), recorded(SUMS), SUMS)
    except BuildError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
