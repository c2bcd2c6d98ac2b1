"""XNNPACK's weight cache: packed weights in a file, mapped into memory by all of a model's lengths and later processes.

ai-edge-litert 2.3.0 offers it through CompiledModel only: `CpuOptions.xnnpack_weight_cache_path`. Its docstring asks
for a folder, but XNNPACK needs a file; with a folder, or in a missing one, it runs without a cache and reports nothing.
XNNPACK checks a cache's structure, not its content: changed bytes give wrong outputs, and another model's cache can end
the process. Therefore a record beside the cache has its SHA-256 and its model, runtime and processor. A cache is opened
only if all match.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pocketbert import files
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert.temporary import temporary_folder
from pocketbert_bench import machine
from pocketbert_runtime.json_reading import read_json

CACHE_SUFFIX = ".xnnpack"


def check_folder(folder: Path) -> None:
    """Creates a folder for weight caches; raises a `UserError` if this fails, or nothing can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"a weight cache needs a folder that you can write to; received {folder} ({error.strerror}); "
            "choose another folder"
        ) from error


def prepare(folder: Path, model_path: Path, build: Callable[[Path], None]) -> Path:
    """Returns a model's verified weight cache, and builds it if the folder has none.

    If a cache has another SHA-256 than its record, it is rebuilt, with a message.

    Args:
      folder: folder for the caches; see `check_folder`.
      model_path: a TFLite file.
      build: opens the model with a cache at the given path, which does not exist yet.
    Raises:
      UserError: the folder cannot be written to, or the runtime wrote no cache.
    """
    check_folder(folder)
    depends_on = _depends_on(model_path)
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()[:32]
    cache, record = folder / f"{key}{CACHE_SUFFIX}", folder / f"{key}.json"
    if problem := _problem(cache, record, depends_on):
        if cache.exists() or record.exists():
            log_info(f"weight cache {cache}: {problem}; it is built again")
        _build(cache, record, depends_on, build)
    return cache


def _build(cache: Path, record: Path, depends_on: dict[str, Any], build: Callable[[Path], None]) -> None:
    with temporary_folder(cache.parent) as folder:
        built = folder / cache.name
        build(built)
        if not built.is_file():
            raise UserError(f"LiteRT must write a weight cache to {cache.parent}; it wrote none; check the free space")
        content = {**depends_on, "sha256": files.sha256(built), "size_bytes": built.stat().st_size}
        # Between the two renames the record does not match; if a process ends there, the cache is rebuilt.
        os.replace(built, cache)
        files.write_json(record, content)


def _problem(cache: Path, record: Path, depends_on: dict[str, Any]) -> str:
    """Reason why a cache cannot be used; empty if it can."""
    if not cache.is_file() or not record.is_file():
        return "the cache or its record is missing"
    try:
        content = read_json(record)
    except UserError as error:
        return f"its record cannot be read ({error})"
    if not isinstance(content, dict) or {name: content.get(name) for name in depends_on} != depends_on:
        return "its record names another model, runtime or processor"
    if content.get("sha256") != files.sha256(cache):
        return "its content is not what LiteRT wrote"
    return ""


def _depends_on(model_path: Path) -> dict[str, Any]:
    here = machine.machine()
    return {
        "model_sha256": files.sha256(model_path),
        "runtime": f"litert {here.packages['ai-edge-litert']}",
        # XNNPACK packs weights for the processor's model and instruction sets.
        "cpu": f"{here.cpu} {here.architecture}",
        "cpu_sha256": hashlib.sha256("\n".join(machine.cpu_features()).encode()).hexdigest(),
    }
