"""What Maven brought for the Java tests, each file with its recorded SHA-256: class paths, and Robolectric's Androids.

`python3 tools/java_test_artifacts.py core host` compares what the tests of these modules ran with, as the reports of
Maven's Surefire name it, and ends with exit code 2 and one line where a file has another content or is in no list.
`--record` writes `android_app/tests.sha256` anew from all modules (look at the difference before you commit it). What
the app itself is made of is compared before anything is built from it (`apk_artifacts`).
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
ARCHIVES = (".jar", ".aar")


def used(modules: Iterable[str], app: Path = APP) -> list[Path]:
    """The archives that the modules' tests ran with, without the project's own.

    Raises:
      BuildError: a module's tests have left no report.
    """
    found: set[Path] = set()
    for module in modules:
        target = app / module / "target"
        reports = list((target / "surefire-reports").glob("TEST-*.xml"))
        if not reports:
            raise BuildError(f"the tests of {module} must have run; they left no report; make android runs them")
        for report in reports:
            for each in ElementTree.parse(report).iter("property"):
                if each.get("name") == "surefire.test.class.path":
                    found |= {Path(path) for path in (each.get("value") or "").split(":")}
        # Not on a class path: Robolectric finds one by itself, the build unpacks the other.
        found |= {*target.glob("sdks/*"), *target.glob("aar/*")}
    own = {app / module / "target" for module in MODULES}
    return sorted(path for path in found if path.suffix in ARCHIVES and path.parent not in own)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help=f"whose tests have just run: {', '.join(MODULES)}")
    parser.add_argument("--record", action="store_true", help="write the sums of all modules anew")
    arguments = parser.parse_args()
    try:
        if arguments.record:
            lines = {f"{sha256(path)}  {path.name}\n" for path in used(MODULES)}
            SUMS.write_text("".join(sorted(lines, key=lambda line: line.split()[1])), encoding="ascii")
        else:
            require_sums(used(arguments.modules), recorded(SUMS), SUMS)
    except BuildError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
