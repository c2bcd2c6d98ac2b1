"""Changes to a bundle's files, with its sums made anew so that these do not hide the change."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from pocketbert.files import sha256

GOLDENS = "goldens.safetensors"
ANSWERS = "answers.jsonl"


def describe(folder: Path, description: dict[str, Any]) -> Path:
    """Writes `bundle.json` with the sums of the files as they are."""
    description["files"] = {
        path.name: {"sha256": sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
        if path.name != "bundle.json" and not path.name.startswith(".")
    }
    answers = description.get("answers")
    if ANSWERS in description["files"] and isinstance(answers, dict):
        description["answers"] = {**answers, "sha256": description["files"][ANSWERS]["sha256"]}
    (folder / "bundle.json").write_text(json.dumps(description), encoding="utf-8")
    return folder


def description_of(folder: Path) -> dict[str, Any]:
    """The content of `bundle.json`."""
    return json.loads((folder / "bundle.json").read_text(encoding="utf-8"))


def describe_again(folder: Path, **changes: Any) -> Path:
    """Writes `bundle.json` with the sums of the files as they are now, and with changed members."""
    return describe(folder, {**description_of(folder), **changes})


def golden_lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of `answers.jsonl`."""
    # Not splitlines: a text may have a line separator of Unicode.
    return [json.loads(line) for line in (folder / ANSWERS).read_text(encoding="utf-8").split("\n") if line]


def write_lines(folder: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Writes `answers.jsonl`, and `bundle.json` with its sum."""
    content = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / ANSWERS).write_text(content, encoding="utf-8")
    return describe_again(folder)


def change_answers(folder: Path, changes: Mapping[str, Callable[[np.ndarray], np.ndarray]]) -> Path:
    """Changes each raw golden output whose name ends as one of `changes` does."""
    path = folder / GOLDENS
    answers = load(path.read_bytes())
    for name, array in answers.items():
        for ending, change in changes.items():
            if name.endswith(ending):
                answers[name] = change(array).astype(np.float32)
    path.write_bytes(save(answers))
    return describe_again(folder)


def zipped(folder: Path, path: Path, inside: str = "") -> Path:
    """Packs a bundle's files; `inside` is their folder in the archive, with a slash at its end."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{inside}{file.name}")
    return path
