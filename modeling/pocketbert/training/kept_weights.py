"""A stage's kept weights: model and adapters in a folder, with their digest."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save

from pocketbert.checkpoints.directory import WEIGHTS_NAME, read_directory
from pocketbert.errors import UserError
from pocketbert.files import sha256, write_bytes
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.training.objective import Adapters
from pocketbert.training.run_folder import ADAPTERS_FILE, MODEL_FOLDER
from pocketbert.training.step import adapter_variables


def save_kept(folder: Path, model: Model, adapters: Adapters, temperature: float = 1.0) -> str:
    """Saves model and adapters; returns their digest.

    Args:
      folder: receives `model/` and `adapters.safetensors`.
      model: the model.
      adapters: its adapters, if any.
      temperature: divisor for the saved logits; the model in memory stays as it is.
    """
    with _divided_logits(model, temperature):
        model.save_pretrained(folder / MODEL_FOLDER, overwrite=True)
    if adapters:
        arrays = {name: value.numpy() for name, value in adapter_variables(adapters).items()}
        write_bytes(folder / ADAPTERS_FILE, save(arrays))
    return digest_kept(folder)


def load_kept(folder: Path, model: Model, adapters: Adapters, digest: str) -> None:
    """Loads a stage's kept weights into a model and its adapters.

    Raises:
      UserError: the weights are not those saved by the run.
    """
    check_kept(folder, digest)
    tensors = read_directory(folder / MODEL_FOLDER).tensors
    for path, variable in model.weights_by_path().items():
        variable.assign(tensors[path])
    if adapters:
        arrays = load_file(folder / ADAPTERS_FILE)
        for name, variable in adapter_variables(adapters).items():
            variable.assign(arrays[name])


def digest_kept(folder: Path) -> str:
    """Returns the SHA-256 for weights in a folder: model directory and adapters, if any."""
    files = [folder / MODEL_FOLDER / WEIGHTS_NAME, folder / ADAPTERS_FILE]
    return hashlib.sha256(" ".join(sha256(file) for file in files if file.exists()).encode()).hexdigest()


def check_kept(folder: Path, expected: str) -> None:
    """Raises a `UserError` if a folder's weights are not those saved by the run."""
    if expected and digest_kept(folder) != expected:
        raise UserError(
            f"{folder / MODEL_FOLDER} is damaged: its weights differ from those that the run saved; pass "
            f"{argument('overwrite', True)} to repeat the run, or choose another output"
        )


@contextlib.contextmanager
def _divided_logits(model: Model, temperature: float) -> Iterator[None]:
    """Divides the first head's logits by a temperature within the context; then restores all bits."""
    variables = [] if temperature == 1 else next(iter(model.heads.values())).output_projection.weights
    before = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value / np.float32(temperature))
    yield
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
