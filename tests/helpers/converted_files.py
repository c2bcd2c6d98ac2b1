"""Keeps what the converter made: many tests convert the same small networks, which takes a second each."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import pytest

from pocketbert.model import Model
from pocketbert.recipes import Recipe
from pocketbert_export.conversion import convert

_convert = convert._converted
# What decides on a file → its content, for as long as the process lives.
_files: dict[object, bytes] = {}


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """A network with the same weights, form and lengths has the file of its first conversion.

    Only the names of layers, which number all of a process, may be others.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "_converted", _converted)
        yield


@contextlib.contextmanager
def anew() -> Iterator[None]:
    """Converts networks again, for tests of the conversion itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "_converted", _convert)
        yield


def _converted(model: Model, lengths: Sequence[int], *recipes: Recipe) -> list[bytes]:
    keys = [(*_key(model, lengths), repr(recipe)) for recipe in recipes]
    missing = {key: recipe for key, recipe in zip(keys, recipes, strict=True) if key not in _files}
    if missing:
        _files.update(zip(missing, _convert(model, lengths, *missing.values()), strict=True))
    return [_files[key] for key in keys]


def _key(model: Model, lengths: Sequence[int]) -> tuple[object, ...]:
    weights = hashlib.sha256()
    for path, variable in model.weights_by_path().items():
        weights.update(path.encode())
        weights.update(variable.numpy().tobytes())
    # Decisions are no part of the graph.
    tasks = [dataclasses.replace(task, decisions=None) for task in model.tasks]
    form = (model.config, tasks, model.encoder._graph, model.encoder.embeddings.padding_after_texts)
    # Tests replace what splits operators.
    return (repr(form), tuple(sorted(lengths)), weights.hexdigest(), convert.split_evenly)
