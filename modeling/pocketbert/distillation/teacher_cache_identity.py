"""A teacher cache's identity: everything that determines a stage's targets.

A run reads a cache only if its identity matches, so the cached targets equal a live teacher's. The module compares file
digests; it neither imports TensorFlow nor reads weights.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.checkpoints.module_layout import model_files, stored_weights
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.manifests import MANIFEST_NAME
from pocketbert.data.teacher_cache.layout import (
    TeacherCacheIdentity,
    TeacherCacheManifest,
    dataset_digest,
    read_manifest,
)
from pocketbert.distillation.method import Method
from pocketbert.errors import UserError
from pocketbert.files import digest_files, sha256
from pocketbert.training.stage import Stage

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer

# The identity has separate fields for these.
_OWN_FIELDS = ("name", "teacher_features", "options")


def teacher_cache_identity(
    method: Method,
    stage: Stage,
    encoded: EncodedExamples,
    *,
    teacher_directory: str | os.PathLike[str] | None,
    tokenizer: Tokenizer | None,
) -> TeacherCacheIdentity:
    """Returns the identity that a stage's cache must have.

    Its `options` are all method options and stage values; a cache keeps those read by `targets`.

    Args:
      method: the method.
      stage: a stage that reads the teacher.
      encoded: the stage's examples.
      teacher_directory: the teacher's model directory; its files are hashed. None accepts any teacher.
      tokenizer: the examples' tokenizer; None accepts any tokenizer.
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
    """Returns a SHA-256 over configuration and weights; raises a `UserError` if the folder is not a model directory."""
    weights = stored_weights(directory)
    files = weights | {name: path for name, path in model_files(directory).items() if path.name == "config.json"}
    if not weights or weights == files:
        raise UserError(f"the teacher must be a model directory with config.json and weights; received {directory}")
    return digest_files({name: sha256(path) for name, path in files.items()})


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Returns a SHA-256 over everything that determines a text's ids."""
    return tokenizer.vocabulary.digest()


def cached_manifests(cache: Path, names: Collection[str] | None = None) -> dict[str, TeacherCacheManifest]:
    """Reads a teacher cache's manifests: stage name → manifest.

    Args:
      cache: teacher cache folder, with one folder per stage.
      names: stages to read, if they exist; None for all.
    Raises:
      UserError: a manifest is damaged.
    """
    stages = sorted(path.parent.name for path in cache.glob(f"*/{MANIFEST_NAME}"))
    return {name: read_manifest(cache / name) for name in stages if names is None or name in names}


def one_origin_problems(manifests: Mapping[str, TeacherCacheManifest]) -> list[str]:
    """Returns a problem if a run's caches come from different teachers or tokenizers."""
    problems = []
    for what in ("teacher", "tokenizer"):
        digests = {name: str(getattr(manifest.identity, what)) for name, manifest in manifests.items()}
        if len(set(digests.values())) > 1:
            received = ", ".join(f"SHA-256 {digest[:12]}… in {name}" for name, digest in digests.items())
            problems.append(
                f"the caches of all stages must come from the same {what}; received {received}; create them with one "
                "cache-teacher command"
            )
    return problems


def teacher_caches_digest(folder: Path, names: Collection[str]) -> str:
    """Returns a SHA-256 over the manifests that a run reads."""
    digests = [sha256(path) for path in sorted(folder.glob(f"*/{MANIFEST_NAME}")) if path.parent.name in names]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def watched(stage: Stage) -> tuple[Stage, set[str]]:
    """Returns a stage copy, and a growing set with the names read from it and its options, as in the identity."""
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

    # A subclass with the same name, so that methods, properties and `isinstance` still work.
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
