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
from pocketbert.layers.relative_attention import num_exported_values
from pocketbert.model import Model
from pocketbert.recipes import Recipe
from pocketbert_export.bundles.bundle import BUNDLE_FILE
from pocketbert_export.tflite.runtimes import LITERT
from pocketbert_runtime.bundles.description import SCHEMA_VERSION, signature_name
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD


def describe(
    model: Model,
    optimized: Model,
    recipe: Recipe,
    lengths: Sequence[int],
    runtime: str,
    decided: Mapping[str, str],
    output_type: str,
) -> dict[str, Any]:
    """Returns the entries for `bundle.json` from model and options; `runtime` is the oldest supported one."""
    assert model.tokenizer is not None
    vocabulary = model.tokenizer.vocabulary
    rules = vocabulary.rules
    tokenizer: dict[str, Any] = (
        dataclasses.asdict(vocabulary.options) if rules.has_options else {"kind": vocabulary.kind}
    )
    if vocabulary.layout != XLM_R:
        tokenizer["layout"] = vocabulary.layout
    if vocabulary.add_prefix_space:
        tokenizer["add_prefix_space"] = True
    if vocabulary.truncation != HEAD:
        tokenizer["truncation"] = vocabulary.truncation
    if vocabulary.added:
        tokenizer["added_tokens"] = [dataclasses.asdict(token) for token in vocabulary.added]
        if rules.joins_spaces:
            tokenizer["keeps_space"] = vocabulary.keeps_space
    outputs = model({name: np.zeros([1, lengths[0]], np.int32) for name in INPUT_NAMES}, training=False)
    return {
        "schema_version": SCHEMA_VERSION,
        "task": task_fields(model.task),
        "signatures": [{"name": signature_name(length), "length": length} for length in lengths],
        "inputs": [{"name": name, "dtype": "int32"} for name in INPUT_NAMES],
        "outputs": [{"name": name, "dtype": output_type} for name in outputs],
        "tokenizer": {**tokenizer, "vocab_size": int(model.tokenizer.vocab_size)},
        "recipe": recipe.name,
        "runtimes": [LITERT] if runtime == LITERT else [LITERT, runtime],
        "graph_optimizations": dict(decided),
        "num_parameters": _num_parameters(optimized, lengths),
        "tools": _tool_versions(),
    }


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


def task_fields(task: TaskConfig | None) -> dict[str, Any] | None:
    """Returns a task as in `bundle.json`."""
    if task is None:
        return None
    fields = ("null_threshold", "embedding", "activation", "decisions")
    options = {name: dataclasses.asdict(task)[name] for name in fields}
    described = {name: option for name, option in options.items() if option is not None}
    if task.tasks:
        described["tasks"] = [task_fields(part) for part in task.tasks]
    return {"kind": task.kind, "name": task.name, "labels": list(task.labels), **described}


def _num_parameters(optimized: Model, lengths: Sequence[int]) -> int:
    """Number of weights in the file: position embeddings count once per signature, with the rows it reads."""
    config, weights = optimized.config, optimized.weights_by_path()
    counts = {path: int(np.prod(variable.shape)) for path, variable in weights.items()}
    if (path := "encoder.embeddings.position.table") in weights:
        counts[path] = sum(lengths) * int(weights[path].shape[1])
    if config.relative:
        counts = {path: count for path, count in counts.items() if not path.startswith("encoder.relative.")}
        single = optimized.encoder.get_config()["graph"]["first_token_only"]
        counts["distances"] = num_exported_values(config, lengths, first_token_only=single)
    return sum(counts.values())


def file_entries(folder: Path) -> dict[str, dict[str, Any]]:
    """Name → SHA-256 and size, for all files but `bundle.json`."""
    return {
        path.name: {"sha256": files.sha256(path), "size_bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
        if path.name != BUNDLE_FILE
    }


def weight_digests(model_directory: Path) -> dict[str, str]:
    """Path in a model directory → SHA-256, for the model's weight files."""
    return {name: files.sha256(path) for name, path in stored_weights(model_directory).items()}


def saved_weight_digests(model: Model) -> dict[str, str]:
    """Digests of the weights as `save_pretrained` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(Path(folder) / "model")
        return weight_digests(Path(folder) / "model")
