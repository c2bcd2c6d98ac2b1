"""Rules of the house that no linter knows. Each looks at every tracked file, and at enough of them."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOTS = ("runtime", "modeling", "export", "benchmarks")
# Tables of cases make some test modules longer.
MAX_LINES, MAX_TEST_LINES = 400, 450


def tracked(*suffixes: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listing.returncode:
        pytest.skip("not a git checkout")
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return [path for path in paths if path.is_file() and (not suffixes or path.name.endswith(suffixes))]


def modules() -> list[Path]:
    modules = [path for path in tracked(".py") if path.relative_to(ROOT).parts[0] in SOURCE_ROOTS]
    assert len(modules) >= 30, f"only {len(modules)} modules found: is this the right folder?"
    return modules


def parsed(paths: list[Path], *words: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules with one of these words in their text, or all: parsing them takes long."""
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if not words or any(word in text for word in words):
            yield path, ast.parse(text)


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements at any depth, except those for type checkers alone."""
    stack: list[Any] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            stack += getattr(node, name, [])


def imported(tree: ast.AST) -> set[str]:
    """Top-level packages that a module imports anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def violations(pattern: str, paths: list[Path]) -> list[str]:
    """`path:line: text` of every line that matches."""
    violations = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        violations += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
            for number, line in enumerate(lines, start=1)
            if re.search(pattern, line)
        ]
    return violations


def text_files() -> list[Path]:
    # Locks are generated, and this file holds the patterns.
    return [path for path in tracked() if path.suffix != ".lock" and path != Path(__file__).resolve()]


def test_keras_2_is_never_reached_through_tensorflow() -> None:
    # tf.keras is Keras 3 or 2 by the environment's say-so (ADR 1).
    attribute = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in parsed(tracked(".py"), "keras")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "keras" and ast.unparse(node.value) in ("tf", "tensorflow")
    ]
    assert not attribute
    assert not violations(r"^\s*(from|import) (tensorflow\.keras|keras)\b", tracked(".py"))


def test_one_module_imports_keras() -> None:
    importers = [path.name for path, tree in parsed(modules(), "tf_keras") if "tf_keras" in imported(tree)]
    assert importers == ["_keras.py"]


def test_transformers_and_torch_are_for_studies_only() -> None:
    studies = ROOT / "benchmarks" / "studies"
    for path, tree in parsed(modules(), "transformers", "torch"):
        if studies not in path.parents:
            used = imported(tree) & {"transformers", "torch"}
            assert not used, f"{path.relative_to(ROOT)} imports {used}"


def test_no_path_of_one_machine() -> None:
    assert not violations(r"(?<![\w.~$}/])/(home|root|Users|work|mnt)/\w", text_files())


def test_no_registry_host_or_index_address() -> None:
    assert not violations(
        r"https?://[^ \"]*(pypi|pythonhosted|maven|npmjs|debian|crates|golang|mirror|artifact|registry)", text_files()
    )
    locks = tracked(".lock")
    assert locks
    assert not violations(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", locks)


def test_every_locked_package_is_pinned_with_a_hash() -> None:
    for lock in tracked(".lock"):
        packages = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"))
        assert len(packages) > 5
        for package in packages:
            assert re.match(r"[\w.\[\]-]+==\S+", package), f"{lock.name}: not pinned: {package[:60]}"
            assert "--hash=sha256:" in package, f"{lock.name}: no hash: {package[:60]}"
        assert not any(package.startswith("torch==") for package in packages)


def test_modules_are_small() -> None:
    long = {}
    for path in tracked(".py"):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > (MAX_TEST_LINES if "tests" in path.parts else MAX_LINES):
            long[str(path.relative_to(ROOT))] = lines
    assert not long, f"over {MAX_LINES} lines ({MAX_TEST_LINES} in tests); look for the second idea: {long}"


def undocumented(tree: ast.Module) -> list[str]:
    """Public methods without a docstring in classes that have nothing to override."""
    classes = [node for node in statements(tree) if isinstance(node, ast.ClassDef) and not node.bases]
    return [
        f"{node.name}.{method.name}"
        for node in classes
        for method in node.body
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and not ast.get_docstring(method)
        if not node.name.startswith("_")
    ]


def test_methods_that_override_nothing_have_docstrings() -> None:
    seen = undocumented(ast.parse("class A:\n def f(self): ...\nclass B(A):\n def f(self): ...\n"))
    assert seen == ["A.f"]
    missing = {path.name: names for path, tree in parsed(modules()) if (names := undocumented(tree))}
    assert not missing, missing


def test_no_modules_import_in_circles() -> None:
    """Imports inside functions count; imports for type checkers alone do not."""
    names = {module_name(path): path for path in modules()}
    graph = {}
    for path, tree in parsed([*names.values()]):
        name, links = module_name(path), set()
        for node in statements(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                links |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                links |= {alias.name for alias in node.names}
        # A package's `__init__` hands names on; what matters is the module behind them.
        graph[name] = {target for target in links & set(names) if names[target].name != "__init__.py"} - {name}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(f"these modules import one another: {' -> '.join(error.args[1])}") from None


def test_each_type_name_is_defined_once() -> None:
    defined = collections.defaultdict(set)
    for path, tree in parsed(modules(), "class "):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not extends_its_name(node):
                defined[node.name].add(str(path.relative_to(ROOT)))
    twice = {name: sorted(places) for name, places in defined.items() if len(places) > 1}
    assert not twice, f"one type name, one meaning: {twice}"


def extends_its_name(node: ast.ClassDef) -> bool:
    """Whether a class adds to the one with its name in a lower package, such as `class Bundle(runtime.Bundle)`."""
    return any(isinstance(base, ast.Attribute) and base.attr == node.name for base in node.bases)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_nothing_is_left_for_later_in_the_code() -> None:
    assert not violations(r"\b(TODO|FIXME|XXX|HACK)\b|assert False", modules())


def test_defining_modules_of_a_package_exist() -> None:
    """Every folder of modules is a package, so that an installed copy has it too."""
    for path in modules():
        if path.name != "__init__.py" and not (path.parent / "__init__.py").exists():
            raise AssertionError(f"{path.parent.relative_to(ROOT)} has no __init__.py")


def test_public_names_all_resolve_lazily() -> None:
    import pocketbert as pb

    assert len(pb.__all__) >= 8
    for name in pb.__all__:
        assert getattr(pb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Modle' .*; it has .*Model"):
        _ = pb.Modle


def test_presets_named_in_the_documentation_exist() -> None:
    import pocketbert as pb

    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    pattern = re.compile(r"`((?:bert|roberta|xlm_r|ib_bert|mobilebert|tinybert|minilmv2)_[a-z0-9_]+)`")
    named = {name for page in pages for name in pattern.findall(page.read_text(encoding="utf-8"))}
    named -= {path.stem for path in (ROOT / "benchmarks" / "studies").rglob("*.py")}
    assert named, "no page names a preset"
    assert named <= set(pb.presets()), f"no such presets: {named - set(pb.presets())}"


def test_the_suite_has_no_two_test_files_of_one_name() -> None:
    names = [path.name for path in tracked(".py") if path.name.startswith("test_")]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)
