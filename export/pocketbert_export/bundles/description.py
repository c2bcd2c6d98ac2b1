"""Describe an exported model in `bundle.json`."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import __version__, files
from pocketbert._keras import tf_keras
from pocketbert.checkpoints.module_layout import stored_weights
from pocketbert.configs import TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert.model import Model
from pocketbert.recipes import Recipe
from pocketbert.tokenizers.vocabulary import Vocabulary
from pocketbert_export.bundles.bundle import BUNDLE_FILE
from pocketbert_export.bundles.schema import OTHER_TOKENIZERS_VERSION, SCHEMA_VERSION
from pocketbert_export.tflite.runtimes import LITERT
from pocketbert_export.tflite.signatures import signature_name


def describe(
    model: Model,
    optimized: Model,
    recipe: Recipe,
    lengths: Sequence[int],
    runtime: str,
    decided: Mapping[str, str],
    output_type: str,
) -> dict[str, Any]:
    """The entries that model and options determine.

    Args:
      model: the model.
      optimized: the model with optimized graph.
      recipe: number formats of the file.
      lengths: its sequence lengths.
      runtime: oldest supported runtime.
      decided: what each graph optimization did.
      output_type: type of the outputs.
    """
    tokenizer = model.tokenizer
    assert tokenizer is not None
    kind = tokenizer.vocabulary.kind
    is_wordpiece = kind == "wordpiece"
    outputs = model({name: np.zeros([1, lengths[0]], np.int32) for name in INPUT_NAMES}, training=False)
    return {
        "schema_version": SCHEMA_VERSION if is_wordpiece else OTHER_TOKENIZERS_VERSION,
        "task": _task(model.task),
        "signatures": [{"name": signature_name(length), "length": length} for length in lengths],
        "inputs": [{"name": name, "dtype": "int32"} for name in INPUT_NAMES],
        "outputs": [{"name": name, "dtype": output_type} for name in outputs],
        "tokenizer": {
            **(dataclasses.asdict(tokenizer.vocabulary.options) if is_wordpiece else {"kind": kind}),
            **({"add_prefix_space": True} if tokenizer.vocabulary.add_prefix_space else {}),
            **_added(tokenizer.vocabulary),
            "vocab_size": int(tokenizer.vocab_size),
        },
        "recipe": recipe.name,
        "runtimes": [LITERT] if runtime == LITERT else [LITERT, runtime],
        "graph_optimizations": dict(decided),
        "num_parameters": _num_parameters(optimized, lengths),
        "tools": _tool_versions(),
    }


def _added(vocabulary: Vocabulary) -> dict[str, Any]:
    if not vocabulary.added:
        return {}
    spaces = {"keeps_space": vocabulary.keeps_space} if vocabulary.kind == "unigram" else {}
    return {"added_tokens": [dataclasses.asdict(token) for token in vocabulary.added], **spaces}


def _tool_versions() -> dict[str, str]:
    # From the modules: a checkout on PYTHONPATH, Bazel's runfiles and zipped applications have no package metadata.
    import ai_edge_litert
    import tensorflow as tf

    return {
        "python": platform.python_version(),
        "pocketbert": __version__,
        "tensorflow": tf.__version__,
        "tf_keras": tf_keras.__version__,
        "ai-edge-litert": ai_edge_litert.__version__,
    }


def _task(task: TaskConfig | None) -> dict[str, Any] | None:
    if task is None:
        return None
    threshold = {} if task.null_threshold is None else {"null_threshold": task.null_threshold}
    embedding = {} if task.embedding is None else {"embedding": dataclasses.asdict(task.embedding)}
    activation = {} if task.activation is None else {"activation": task.activation}
    return {"kind": task.kind, "name": task.name, "labels": list(task.labels), **threshold, **embedding, **activation}


def _num_parameters(optimized: Model, lengths: Sequence[int]) -> int:
    """Number of weights in the file: position embeddings count once per signature, with the rows that it reads."""
    counts = {path: int(np.prod(variable.shape)) for path, variable in optimized.weights_by_path().items()}
    counts["encoder.embeddings.position.table"] = sum(lengths) * int(
        optimized.encoder.embeddings.position.table.shape[1]
    )
    return sum(counts.values())


def file_entries(folder: Path) -> dict[str, dict[str, Any]]:
    """Name → SHA-256 and size of all files but `bundle.json`."""
    return {
        path.name: {"sha256": files.sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
        if path.name != BUNDLE_FILE
    }


def weight_digests(model_directory: Path) -> dict[str, str]:
    """Path in a model directory → SHA-256 of the weight files that the model is read from."""
    return {name: files.sha256(path) for name, path in stored_weights(model_directory).items()}


def saved_weight_digests(model: Model) -> dict[str, str]:
    """Digests of the weights as `save_pretrained` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder) / "model")
        return weight_digests(Path(folder) / "model")
