"""The runtime imports neither PocketBERT's other packages nor anything beyond its own requirements."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pocketbert
import pocketbert_runtime
from pocketbert import _runtime, errors
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.tokenizers.extras import SENTENCEPIECE

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "runtime" / "pocketbert_runtime"
# LiteRT requires protobuf (`google`) and tqdm, too. Modules import the extras inside functions.
REQUIRED = {"ai_edge_litert", "google", "numpy", "tqdm"}
EXTRAS = {"sentencepiece"}
FILES = ("runtime/pyproject.toml", "pyproject.toml")


def imported(path: Path) -> set[str]:
    """Top-level packages of all imports, also of those in functions and for type checkers."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_only_required_packages_are_imported(path: Path) -> None:
    assert imported(path) <= {*sys.stdlib_module_names, *REQUIRED, *EXTRAS, "pocketbert_runtime"}


def test_litert_requires_the_other_packages() -> None:
    names = {Requirement(line).name for line in importlib.metadata.requires("ai-edge-litert") or ()}
    assert {"numpy", "protobuf", "tqdm"} <= names


def test_modules_import_no_tensorflow() -> None:
    modules = [path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py")]
    names = [".".join(module.parts).removesuffix(".__init__") for module in modules]
    assert len(names) >= 3
    unwanted = {"ai_edge_litert", "google.protobuf", "pocketbert", "tensorflow", "tokenizers", *EXTRAS}
    program = f"import sys, {', '.join(names)}; print({unwanted!r} & {{*sys.modules}})"
    environment = {"PYTHONPATH": str(SOURCE.parent)}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout == "set()\n"


def test_both_packages_share_one_error() -> None:
    assert errors.UserError is UserError is pocketbert.UserError


def test_both_distributions_have_one_version() -> None:
    projects = [tomllib.loads((ROOT / name).read_text("utf-8"))["project"] for name in FILES]
    assert {project["version"] for project in projects} == {pocketbert.__version__} == {pocketbert_runtime.__version__}


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pocketbert_runtime, "__version__", "0.0.9")
    with pytest.raises(ImportError, match="received 0.0.9 in .*; install both from one version, or run: pip uninstall"):
        importlib.reload(_runtime)


@pytest.mark.parametrize("program", ["/usr/bin/pocketbert", "-m"])
def test_another_version_ends_a_command(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pocketbert_runtime, "__version__", "0.0.9")
    monkeypatch.setattr(sys, "argv", [program])
    with pytest.raises(SystemExit) as raised:
        importlib.reload(_runtime)
    assert raised.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "received 0.0.9 in" in line


def test_missing_runtime_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pocketbert_runtime", None)
    with pytest.raises(ImportError, match="it is missing; run: pip install --force-reinstall --no-deps pocketbert$"):
        importlib.reload(_runtime)


def test_copy_answers_without_a_path_file(tmp_path: Path) -> None:
    """As after `pip install --target`: the copy is in a folder next to `pocketbert`."""
    (tmp_path / "pocketbert").mkdir()
    shutil.copy(_runtime.__file__, tmp_path / "pocketbert" / "_runtime.py")
    shutil.copytree(SOURCE, tmp_path / "pocketbert_wheel" / "pocketbert_runtime")
    program = "import pocketbert._runtime as runtime; print(runtime.pocketbert_runtime.__file__)"
    answer = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(answer.stdout.strip()) == tmp_path / "pocketbert_wheel" / "pocketbert_runtime" / "__init__.py"


def test_requirements_are_bounded_alike() -> None:
    small, whole = (tomllib.loads((ROOT / name).read_text("utf-8"))["project"] for name in FILES)
    extras = [requirement for group in small["optional-dependencies"].values() for requirement in group]
    assert {*small["dependencies"], *extras} <= {*whole["dependencies"]}
    assert {SENTENCEPIECE} == {*extras}
