"""A model directory's folders, as in modules.json from sentence-transformers, or the directory alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.stored_tensors import weight_files
from pocketbert.errors import UserError
from pocketbert.json_reading import has_type, read_values
from pocketbert.notation import command
from pocketbert_runtime.json_reading import read_json

MODULES_NAME = "modules.json"
PACKAGE = "sentence_transformers"
# Module classes in their only order; the last two may be missing.
MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
# Classes in version 0.2; later versions load them as Transformer.
_OLD_TRANSFORMERS = ("BERT", "RoBERTa", "DistilBERT", "XLMRoBERTa")
_KEYS: dict[str, tuple[type, object]] = {"type": (str, ""), "path": (str, "")}
# Call arguments are for other packages' models.
_FIXED: dict[str, object] = {"kwargs": []}
_KNOWN = ("idx", "name")
# File endings in a model, apart from its weights.
_SETTINGS = (".json", ".txt", ".model")


def load_headless() -> str:
    """Remedy for an unsupported head."""
    python = "pb.from_pretrained(…, headless=True)"
    return f"load it headless ({command('convert', python=python, from_='hf', headless=True)})"


@dataclass(frozen=True)
class Module:
    """An entry in modules.json.

    Attributes:
      kind: a name in `MODULES`.
      folder: folder with its files.
    """

    kind: str
    folder: Path


def read_layout(path: Path, problems: list[str]) -> list[Module]:
    """Returns a directory's modules in order; none for a directory without modules.json, or with a problem."""
    if not (path / MODULES_NAME).is_file():
        return []
    try:
        content = read_json(path / MODULES_NAME, where=MODULES_NAME)
    except UserError as error:
        problems.append(str(error))
        return []
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        problems.append(f"{MODULES_NAME} must be a list of objects; received {content!r:.80}")
        return []
    modules: list[Module] = []
    module_problems: list[str] = []
    for entry in content:
        values = read_values(entry, _KEYS, fixed=_FIXED, known=_KNOWN, problems=module_problems)
        kind = _kind(values.get("type", ""))
        if kind is None:
            module_problems.append(
                f"a module must be one of {', '.join(MODULES)} of {PACKAGE}; received {entry.get('type')!r:.80}; for "
                f"the encoder alone, {load_headless()}"
            )
        elif not _is_folder(values.get("path")):
            module_problems.append(
                f"the path of a module must be a folder beside {MODULES_NAME}; received {entry.get('path')!r:.80}"
            )
        elif kind in [module.kind for module in modules]:
            module_problems.append(f"each module may occur once; received {kind} twice")
        else:
            modules.append(Module(kind, path / values["path"]))
    problems += [f"{MODULES_NAME}: {problem}" for problem in module_problems]
    return [] if module_problems else modules


def transformer_folder(directory: str | os.PathLike[str]) -> Path:
    """The folder with config.json, weights and tokenizer: the directory, or one such as 0_Transformer in it."""
    path = Path(directory)
    try:
        content = read_json(path / MODULES_NAME) if (path / MODULES_NAME).is_file() else []
    except UserError:
        # `read_layout` reports it.
        return path
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict) and _kind(entry.get("type")) == MODULES[0] and _is_folder(entry.get("path")):
            return path / entry["path"]
    return path


def stored_weights(directory: str | os.PathLike[str]) -> dict[str, Path]:
    """A model's weight files by path in the directory, including a dense layer's."""
    path = Path(directory)
    folders = [transformer_folder(path)]
    folders += [module.folder for module in read_layout(path, []) if module.kind == "Dense"]
    return _by_name(path, (file for folder in folders for file in weight_files(folder, [])))


def model_files(directory: str | os.PathLike[str]) -> dict[str, Path]:
    """All files with an effect on the model's outputs, by path in the directory."""
    path = Path(directory)
    folders = {path, transformer_folder(path), *(module.folder for module in read_layout(path, []))}
    settings = (file for folder in folders if folder.is_dir() for file in folder.iterdir())
    chosen = (file for file in settings if file.suffix in _SETTINGS and file.is_file())
    return dict(sorted((_by_name(path, chosen) | stored_weights(path)).items()))


def _by_name(path: Path, files: Iterable[Path]) -> dict[str, Path]:
    return {file.relative_to(path).as_posix(): file for file in files if file.is_file()}


def _kind(class_name: Any) -> str | None:
    """The module for a class such as sentence_transformers.models.Pooling; None for other classes."""
    package, _, name = str(class_name).partition(".")
    name = name.rpartition(".")[2]
    if package == PACKAGE and name in _OLD_TRANSFORMERS:
        return MODULES[0]
    return name if package == PACKAGE and name in MODULES else None


def _is_folder(path: Any) -> bool:
    return has_type(path, str) and re.fullmatch(r"([A-Za-z0-9_][\w.-]{0,99}/?)?", path) is not None
