"""What decides a stage's targets, so that a store stands in for a live teacher only where it gives the same.

Nothing here imports TensorFlow or reads weights: a run from a store compares files' digests alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.teacher_cache_layout import (
    MANIFEST_NAME,
    TeacherCacheIdentity,
    TeacherCacheManifest,
    dataset_digest,
    read_manifest,
)
from pocketbert.distillation.method import Method
from pocketbert.errors import UserError
from pocketbert.files import sha256
from pocketbert.training.stage import Stage

# Compared in a store's identity on their own.
_OWN_FIELDS = ("name", "teacher_features", "options")


class Tokenizer(Protocol):
    """What a tokenizer's identity is made of."""

    vocab_path: Any
    lowercase: bool


def teacher_cache_identity(
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    *,
    teacher_directory: str | os.PathLike[str] | None,
    tokenizer: Tokenizer | None,
) -> TeacherCacheIdentity:
    """What a store of a stage's targets is made from, or has to be made from.

    Args:
      method: the method.
      stage: one that reads something of the teacher.
      encoded: the stage's examples.
      teacher_directory: the teacher's model directory, of which files are hashed; None in a run that does not have it,
        which takes any store's.
      tokenizer: what encoded the examples; None as above.

    Returns:
      Its `options` are all of the method's options and all of the stage's values; a store keeps those that `targets`
      read.
    """
    return TeacherCacheIdentity(
        teacher=None if teacher_directory is None else teacher_digest(teacher_directory),
        tokenizer=None if tokenizer is None else tokenizer_digest(tokenizer),
        dataset=dataset_digest(encoded),
        method=method.name,
        stage=stage.name,
        features={name: tuple(layers) for name, layers in stage.teacher_features.items()},
        options=_values(stage),
    )


def teacher_digest(directory: str | os.PathLike[str]) -> str:
    """SHA-256 of a model directory's configuration and weights.

    Raises:
      UserError: the folder is no model directory.
    """
    folder = Path(directory)
    files = sorted(
        [*folder.glob("config.json"), *folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")]
    )
    if not {"config.json"} < {file.name for file in files}:
        raise UserError(
            f"the teacher must be a model directory with config.json and model.safetensors; received {folder}"
        )
    return hashlib.sha256("".join(f"{file.name} {sha256(file)}\n" for file in files).encode()).hexdigest()


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 of a vocabulary and of whether texts are lower-cased."""
    return hashlib.sha256(f"{sha256(tokenizer.vocab_path)} lowercase={bool(tokenizer.lowercase)}".encode()).hexdigest()


def cached_manifests(store: Path, names: Collection[str] | None = None) -> dict[str, TeacherCacheManifest]:
    """The manifests in a store, by the names of the stages' folders.

    Args:
      store: the folder of stores.
      names: these folders alone, as far as they are there; None for all.

    Raises:
      UserError: one is damaged.
    """
    found = sorted(path.parent.name for path in store.glob(f"*/{MANIFEST_NAME}"))
    return {name: read_manifest(store / name) for name in found if names is None or name in names}


def one_origin_problems(manifests: Mapping[str, TeacherCacheManifest]) -> list[str]:
    """What keeps the stores of a run's stages from standing for one teacher and its tokenizer.

    Args:
      manifests: theirs, by the stages' names.
    """
    problems = []
    for what in ("teacher", "tokenizer"):
        digests = {name: str(getattr(manifest.identity, what)) for name, manifest in manifests.items()}
        if len(set(digests.values())) > 1:
            received = ", ".join(f"SHA-256 {digest[:12]}… in {name}" for name, digest in digests.items())
            problems.append(
                f"the stages' targets must be of one {what}; received {received}; make them with one cache-teacher "
                "command"
            )
    return problems


def teacher_caches_digest(folder: Path, names: Collection[str]) -> str:
    """SHA-256 of the manifests of a run's stages.

    Args:
      folder: the stages' caches.
      names: the stages that read them.
    """
    digests = [sha256(path) for path in sorted(folder.glob(f"*/{MANIFEST_NAME}")) if path.parent.name in names]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def watched(stage: Stage) -> tuple[Stage, set[str]]:
    """A copy of a stage, and the names of what has been read from it and its options: a set that grows.

    The names are those of `teacher_cache_identity`'s options.
    """
    read: set[str] = set()
    if stage.options is None:
        return _watched(stage, "stage.", read), read
    options = _watched(stage.options, "options.", read)
    return _watched(dataclasses.replace(stage, options=options), "stage.", read), read


def _watched(value: Any, prefix: str, read: set[str]) -> Any:
    fields = {field.name for field in dataclasses.fields(value)}

    def getter(self: Any, name: str) -> Any:
        if name in fields:
            read.add(prefix + name)
        return object.__getattribute__(self, name)

    # A class of the same name: methods, properties and isinstance work as ever.
    copy: Any = object.__new__(type(type(value).__name__, (type(value),), {"__getattribute__": getter}))
    for name in fields:
        object.__setattr__(copy, name, getattr(value, name))
    read.clear()
    return copy


def _values(stage: Stage) -> dict[str, Any]:
    described = stage.describe()
    options = described.get("options") or {}
    values = {f"stage.{name}": value for name, value in described.items() if name not in _OWN_FIELDS}
    values |= {f"options.{name}": value for name, value in options.items()}
    return values
