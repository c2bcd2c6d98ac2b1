"""Directories that sentence-transformers 1.2 to 6.2 saved: they load, or one line names what is not supported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pocketbert.checkpoints.directory import ModelDirectory, read_directory
from pocketbert.checkpoints.huggingface import read_config
from pocketbert.checkpoints.module_layout import read_layout, transformer_folder
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.errors import UserError

SAVERS = Path(__file__).resolve().parents[2] / "goldens" / "savers"
FOLDERS = sorted(path for path in SAVERS.glob("sentence-transformers-*/*") if path.is_dir())
TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# Case → pooling, normalize, dimensions, residual, maximum length. make.py gives the arguments.
EMBEDDINGS = {
    "embedding": ("mean", True, None, False, 16),
    "embedding_dense": ("mean", False, 4, False, None),
    "embedding_dense_identity": ("mean", False, 4, False, None),
    "embedding_dense_residual": ("mean", False, 6, True, None),
    "embedding_without_limit": ("cls", False, None, False, None),
}
# Case → kind and activation; versions 2.7 and 3.4 save no activation.
CROSS_ENCODERS = {
    "cross_encoder_identity": ("regression", "identity"),
    "cross_encoder_sigmoid": ("regression", "sigmoid"),
    "cross_encoder_default": ("regression", "sigmoid"),
    "cross_encoder_three_labels": ("classification", None),
}
REFUSED = {
    "embedding_two_poolings": "the pooling must be one of mean, cls, max; received .* and ",
    "embedding_prompts": "include_prompt must be true, since our pooling includes the prompt; received false",
}


def with_weights(source: Path, folder: Path) -> Path:
    """A copy with random weights that fit, and the tokenizer files that the case shares."""
    shutil.copytree(source, folder)
    target, shared = transformer_folder(folder), transformer_folder(source.parent / "embedding")
    for name in TOKENIZER_FILES:
        if not (target / name).exists() and (shared / name).exists():
            shutil.copyfile(shared / name, target / name)
    random = np.random.default_rng(3)
    content = json.loads((target / "config.json").read_text())
    config, tasks = read_config(content, ["bert.pooler.dense.weight"])
    shapes = {spec.name: spec.shape for spec in tensor_specs(config, tasks).values()}
    save(target, {name: random.normal(size=shape) for name, shape in shapes.items()})
    for module in read_layout(folder, []):
        if module.kind == "Dense":
            dense = json.loads((module.folder / "config.json").read_text())
            weights = {"linear.weight": random.normal(size=(dense["out_features"], dense["in_features"]))}
            save(module.folder, weights | ({"linear.bias": np.ones(dense["out_features"])} if dense["bias"] else {}))
    return folder


def save(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    arrays = {name: np.asarray(tensor, np.float32) for name, tensor in tensors.items()}
    save_file(arrays, folder / "model.safetensors", {"format": "pt"})


def found(source: Path, tmp_path: Path) -> ModelDirectory:
    return read_directory(with_weights(source, tmp_path / "model"))


def cases(names: object) -> list[object]:
    return [pytest.param(path, id=f"{path.parent.name}/{path.name}") for path in FOLDERS if path.name in names]  # type: ignore[operator]


@pytest.mark.parametrize("source", cases(EMBEDDINGS))
def test_saved_embedding_loads(source: Path, tmp_path: Path) -> None:
    read = found(source, tmp_path)
    embedding = read.tasks[0].embedding
    assert embedding is not None and read.vocabulary is not None
    fields = embedding.pooling, embedding.normalize, embedding.dimensions, embedding.dense_residual
    assert (*fields, embedding.max_length) == EMBEDDINGS[source.name]


@pytest.mark.parametrize("source", cases(CROSS_ENCODERS))
def test_saved_cross_encoder_loads(source: Path, tmp_path: Path) -> None:
    read = found(source, tmp_path)
    kind, activation = CROSS_ENCODERS[source.name]
    has_key = any(name in (source / "config.json").read_text() for name in ("sentence_transformers", "sbert_ce"))
    recorded = has_key or (source / "modules.json").exists()
    assert (read.tasks[0].kind, read.tasks[0].activation) == (kind, activation if recorded else None)


@pytest.mark.parametrize("source", cases(REFUSED))
def test_unsupported_part_is_named(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=REFUSED[source.name]):
        found(source, tmp_path)


def test_every_saved_case_is_tried() -> None:
    names = {path.name for path in FOLDERS} - {*EMBEDDINGS, *CROSS_ENCODERS, *REFUSED}
    # Shortened vectors, and lower-casing that two files state.
    assert names == {"embedding_dot", "embedding_lowercase"}


def test_shortened_vectors_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="truncate_dim must be None; received 3"):
        found(SAVERS / "sentence-transformers-6.2.0" / "embedding_dot", tmp_path)
