"""The BUILD files and the tree: nothing that Bazel should know is missing, and nothing is named that is not there.

BUILD files are Python with other functions: they are run here with functions that note what they are told.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "runtime": "pocketbert_runtime",
    "modeling": "pocketbert",
    "export": "pocketbert_export",
    "benchmarks": "pocketbert_bench",
}
IGNORED = {line for line in (ROOT / ".bazelignore").read_text(encoding="utf-8").splitlines() if line}
Rules = dict[str, dict[str, Any]]


def evaluate(folder: str) -> Rules:
    """The rules of a folder's BUILD by name, globs resolved to paths from the folder."""
    directory, rules = ROOT / folder, {}

    def glob(patterns: list[str], exclude: list[str] | None = None) -> list[str]:
        def of(pattern: str) -> set[str]:
            return {str(path.relative_to(directory)) for path in directory.glob(pattern) if path.is_file()}

        left_out = {name for pattern in exclude or [] for name in of(pattern)}
        names_matched = {name for pattern in patterns for name in of(expanded(pattern))} - left_out
        return sorted(name for name in names_matched if "__pycache__" not in name)

    def rule(kind: str) -> Any:
        def note(**attributes: Any) -> None:
            name = attributes.pop("name", kind)
            assert name not in rules, f"{folder}: {name} twice"
            rules[name] = {"kind": kind, **attributes}

        return note

    kinds = ["py_library", "filegroup", "genrule", "sys_java_library", "sys_junit_test", "pytest_tests", "package"]
    names = {**{kind: rule(kind) for kind in kinds}, "glob": glob}
    names |= {"load": lambda *_: None, "exports_files": lambda *_: None}
    exec((directory / "BUILD").read_text(encoding="utf-8"), names)
    return rules


def expanded(pattern: str) -> str:
    """Bazel's `a/**` means files at every depth, Python's folders."""
    return f"{pattern}/*" if pattern.endswith("**") else pattern


def imported(path: Path) -> set[str]:
    """The packages that a file imports when it runs; the imports of type checkers are no dependencies."""
    names: set[str] = set()
    module = ast.parse(path.read_text(encoding="utf-8"))
    types = [
        statement
        for statement in module.body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
    ]
    skipped = {node for block in types for statement in block.body for node in ast.walk(statement)}
    for node in ast.walk(module):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("root", PACKAGES)
def test_a_source_root_is_a_library_with_all_its_files_and_the_libraries_that_it_imports(root: str) -> None:
    (library,) = evaluate(root).values()
    there = {str(path.relative_to(ROOT / root)) for path in (ROOT / root).rglob("*.py")}
    assert set(library["srcs"]) == there and len(there) >= 3
    others = {
        str(path.relative_to(ROOT / root))
        for path in (ROOT / root / PACKAGES[root]).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert set(library.get("data", [])) == others
    used = set().union(*(imported(ROOT / root / name) for name in library["srcs"]))
    expected = [f"//{other}" for other, package in PACKAGES.items() if package in used and other != root]
    assert sorted(library.get("deps", [])) == sorted(expected)
    assert library["imports"] == ["."]


def test_the_tools_are_a_library_with_what_they_import() -> None:
    library = evaluate("tools")["tools"]
    assert set(library["srcs"]) == {path.name for path in (ROOT / "tools").glob("*.py")}
    used = set().union(*(imported(ROOT / "tools" / name) for name in library["srcs"]))
    assert sorted(library["deps"]) == sorted(f"//{root}" for root, package in PACKAGES.items() if package in used)


def test_the_subset_of_tests_is_there_has_some_of_every_root_and_imports_tensorflow() -> None:
    rules = evaluate("tests")
    paths = rules["pytest_tests"]["paths"]
    assert len(set(paths)) == len(paths) >= 8 and paths == sorted(paths)
    assert all((ROOT / "tests" / path).is_file() for path in paths)
    assert {path.partition("/")[0] for path in paths} == set(PACKAGES.values())
    assert any("tensorflow" in imported(ROOT / "tests" / path) for path in paths)
    # What tests share comes with them, whichever they are.
    support = rules["support"]
    helpers = {path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")}
    assert {ROOT / "tests" / name for name in support["srcs"]} == helpers - {ROOT / "tests/helpers/bazel_main.py"}
    assert sorted(support["deps"]) == sorted([*(f"//{root}" for root in PACKAGES), "//tools"])


def test_the_java_libraries_have_all_files_and_every_test_class() -> None:
    for module in ("core", "host"):
        folder, rules = ROOT / "android_app" / module, evaluate(f"android_app/{module}")
        for name, part in ((module, "main"), (f"{module}_tests", "test")):
            there = {str(path.relative_to(folder)) for path in (folder / "src" / part / "java").rglob("*.java")}
            assert set(rules[name]["srcs"]) == there and there
            release = 8 if name == "core" else 17
            assert rules[name].get("release", "8") == str(release)
        tests = {path.stem for path in (folder / "src/test/java").rglob("*Test.java")}
        assert {name.rpartition(".")[2] for name in rules[f"{module}_test"]["classes"]} == tests
    pom = (ROOT / "android_app/pom.xml").read_text(encoding="utf-8")
    assert "<maven.compiler.release>8</maven.compiler.release>" in pom


def test_jars_are_mavens() -> None:
    pom = (ROOT / "android_app/pom.xml").read_text(encoding="utf-8")
    versions = dict(re.findall(r"<(\w+)\.version>([^<]+)</", pom))
    jars = dict(re.findall(r'"(\w+)": "([\w.-]+:[\w.-]+:[^"]+)"', (ROOT / "WORKSPACE").read_text(encoding="utf-8")))
    natives = re.search(r"<natives>([^<]+)<", pom)
    assert natives
    assert jars == {
        # JUnit 4.13's own dependency.
        "hamcrest": "org.hamcrest:hamcrest-core:1.3",
        "javacpp": f"org.bytedeco:javacpp:{versions['javacpp']}",
        "javacpp_native": f"org.bytedeco:javacpp:{versions['javacpp']}:{natives[1]}",
        "jna": f"net.java.dev.jna:jna:{versions['jna']}",
        "junit": f"junit:junit:{versions['junit']}",
        "tflite": f"org.bytedeco:tensorflow-lite:{versions['tflite']}",
        "tflite_native": f"org.bytedeco:tensorflow-lite:{versions['tflite']}:{natives[1]}",
    }
    used = set()
    for module in ("core", "host"):
        for rule in evaluate(f"android_app/{module}").values():
            used |= {label.removeprefix("@maven//:") for label in rule.get("deps", []) if label.startswith("@maven")}
    assert used == set(jars)


def test_the_apk_is_manual_and_depends_on_all_sources_of_the_app() -> None:
    rules = evaluate("android_app")
    assert rules["apk"]["tags"] == ["manual"]
    folders = [ROOT / "android_app/app/src" / part for part in ("main", "javacpp")]
    sources = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert sources <= {ROOT / "android_app" / name for name in rules["apk"]["srcs"]} and len(sources) >= 8
    assert "//android_app/core:sources" in rules["apk"]["srcs"] and "tools/build_apk.py" in rules["apk"]["cmd"]


def test_every_label_names_a_rule() -> None:
    folders = []
    for path, below, names in os.walk(ROOT):
        folder = os.path.relpath(path, ROOT)
        # Installed packages have many folders.
        below[:] = [name for name in below if os.path.normpath(f"{folder}/{name}") not in IGNORED | {"third_party"}]
        folders += [folder] if "BUILD" in names else []
    assert {*PACKAGES, "tests", "tools", "android_app/core"} <= set(folders)
    rules = {folder: evaluate(folder) for folder in folders}
    checked = 0
    for folder, rules_of_folder in rules.items():
        for attributes in rules_of_folder.values():
            for label in [*attributes.get("deps", []), *attributes.get("data", []), *attributes.get("srcs", [])]:
                if label.startswith("@") or not label.startswith(("//", ":")):
                    continue
                package, _, name = label.removeprefix("//").partition(":")
                target = folder if label.startswith(":") else package
                assert (name or Path(package).name) in rules[target], f"{folder}: {label} is nowhere"
                checked += 1
    assert checked >= 10


def test_what_other_tools_make_is_ignored() -> None:
    # Bazel's //... would take in BUILD files of installed packages and of copies.
    assert {".venv", "out", "runs", "site"} <= IGNORED
    assert {f"android_app/{module}/target" for module in ("core", "host", "app", "apk")} <= IGNORED
