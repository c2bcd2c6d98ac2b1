"""Reads weight files in model directories: safetensors (single file or shards) and Keras' tf_model.h5.

Files from transformers' TensorFlow classes look like PyTorch's: variables get PyTorch's names, and kernels, [in, out],
are read as [out, in].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from pocketbert.checkpoints.families.registry import FAMILIES
from pocketbert.checkpoints.name_maps import modern_name
from pocketbert.errors import UserError
from pocketbert_runtime.json_reading import read_json

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
KERAS_NAME = "tf_model.h5"

_LAST = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
_KERAS_TYPES = {"float16": "F16", "float32": "F32", "float64": "F64"}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in an open file, with its values read on demand.

    Attributes:
      shape: shape in PyTorch's layout.
      dtype: type name in safetensors.
      load: reads the stored values.
      transposed: whether the file holds the transpose.
    """

    shape: tuple[int, ...]
    dtype: str
    load: Callable[[], np.ndarray]
    transposed: bool = False

    def read(self) -> np.ndarray:
        """Returns the values in `shape`."""
        if self.dtype == "BF16":
            import ml_dtypes  # noqa: F401  # gives NumPy the type's name
        array = self.load()
        return array.T if self.transposed else array


def open_weights(
    path: Path, stack: ExitStack, problems: list[str], library: str = "transformers"
) -> dict[str, StoredTensor]:
    """Opens all weight files and returns their tensors by PyTorch name."""
    files = weight_files(path, problems, library)
    if files and files[0].name == KERAS_NAME:
        return _open_keras(files[0], stack, problems)
    stored: dict[str, StoredTensor] = {}
    for file_path in files:
        try:
            file = stack.enter_context(safe_open(file_path, framework="numpy"))
        except (SafetensorError, OSError) as error:
            problems.append(f"{file_path.name} must be a complete safetensors file; received {error}; copy it again")
            continue
        stored |= _open_safetensors(file)
    return stored


def weight_files(path: Path, problems: list[str], library: str = "transformers") -> list[Path]:
    """The weight files for `open_weights`: one file, or all shards."""
    if (path / WEIGHTS_NAME).exists():
        return [path / WEIGHTS_NAME]
    if not (path / INDEX_NAME).exists():
        if (path / KERAS_NAME).exists():
            return [path / KERAS_NAME]
        others = sorted(item.name for item in path.glob("*") if item.suffix in (".bin", ".msgpack", ".onnx", ".ckpt"))
        remedy = f"; it has {', '.join(others)}: load and save it with {library}" if others else ""
        problems.append(f"the folder must hold {WEIGHTS_NAME} or {KERAS_NAME}; received neither{remedy}")
        return []
    try:
        index = read_json(path / INDEX_NAME, where=INDEX_NAME)
    except UserError as error:
        problems.append(str(error))
        return []
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        problems.append(f"{INDEX_NAME} must map tensor names to files under 'weight_map'; received {shards!r:.200}")
        return []
    # File names from the index must stay inside the folder.
    return [path / Path(name).name for name in sorted(set(shards.values()))]


def _open_safetensors(file: Any) -> dict[str, StoredTensor]:
    stored = {}
    for name in file.keys():
        piece = file.get_slice(name)

        def load(name: str = name) -> np.ndarray:
            return file.get_tensor(name)

        stored[name] = StoredTensor(tuple(piece.get_shape()), piece.get_dtype(), load)
    if (file.metadata() or {}).get("format") == "tf" or any(name.endswith(":0") for name in stored):
        return _from_tensorflow(stored)
    return {modern_name(name): tensor for name, tensor in stored.items()}


def _open_keras(path: Path, stack: ExitStack, problems: list[str]) -> dict[str, StoredTensor]:
    import h5py

    stored: dict[str, StoredTensor] = {}
    foreign: list[str] = []

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            foreign.append(name)
        # The first part is the layer's group; the variable's name follows.
        variable = name.partition("/")[2]
        stored[variable] = StoredTensor(
            tuple(item.shape or ()), _KERAS_TYPES.get(str(item.dtype), str(item.dtype)), item.__array__
        )

    try:
        stack.enter_context(h5py.File(path, "r")).visititems(visit)
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        problems.append(f"{path.name} must be a complete HDF5 file; received {reason}; copy it again")
        return {}
    if foreign:
        problems.append(f"{path.name} must contain all values; received a link to another file, {foreign[0]}")
        return {}
    return _from_tensorflow(stored)


def _from_tensorflow(stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    tensors, roots = {}, _roots()
    for name, tensor in stored.items():
        # "layer_._0" is item 0 of a list; "mlm___cls" is `cls` in a layer with another name.
        parts = [part.rpartition("___")[2] for part in name.removesuffix(":0").replace("_._", "/").split("/")]
        if len(parts) > 1 and parts[0] not in roots:
            parts = parts[1:]
        transposed = parts[-1] == "kernel"
        parts[-1] = _LAST.get(parts[-1], parts[-1])
        shape = tensor.shape[::-1] if transposed else tensor.shape
        tensors[".".join(parts)] = dataclasses.replace(tensor, shape=shape, transposed=transposed)
    return tensors


def _roots() -> set[str]:
    """First parts of tensor names, as they are without the model's name."""
    names = {"cls", "classifier", "qa_outputs"}
    for family in FAMILIES.values():
        names |= {family.tensor_prefix, family.sentence_dense, *family.names.values(), *family.unread_heads.values()}
    return {name.partition(".")[0] for name in names} - {""}
