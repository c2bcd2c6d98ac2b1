"""Walks all constants of a file, damages each in four ways, and requires that the gate refuses what changes answers.

Run with `-s` to see the counts: faults, faults that change an answer by more than the recipe's bound, refused ones.
"""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bundle_folders
import networks
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from tiny_tokenizers import unigram_file

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert.model import Model
from pocketbert.presets import preset
from pocketbert.recipes import RECIPES
from pocketbert.tasks.registry import get_task
from pocketbert_export.bundles import bundle as layout
from pocketbert_export.checks import outputs as checks
from pocketbert_export.tflite import runtimes
from pocketbert_export.tflite.graph import read_model, write_model
from pocketbert_export.verification.default_texts import default_examples
from pocketbert_export.verification.verify import verify_bundle
from pocketbert_export.verification.weight_checks import check_weights
from pocketbert_runtime.embedding_config import EmbeddingConfig

LENGTHS = (7, 19)
ANSWERS = 1000
# The kernel of so many labels is large, and has few rows.
MOODS = TaskConfig(kind="classification", name="mood", labels=tuple("abcdefg"))
SPAN = TaskConfig(kind="span", name="squad")
EMBEDDING = TaskConfig(kind="embedding", embedding=EmbeddingConfig(pooling="mean"))
NETWORKS = {
    "classifier, WordPiece": ("wordpiece", MOODS),
    "embedding, WordPiece": ("wordpiece", EMBEDDING),
    "spans, WordPiece": ("wordpiece", SPAN),
    "classifier, unigram": ("unigram", networks.SENTIMENT),
}
_NUMBERS = {
    schema.TensorType.FLOAT32: np.float32,
    schema.TensorType.FLOAT16: np.float16,
    schema.TensorType.INT8: np.int8,
    schema.TensorType.INT32: np.int32,
}
Outputs = dict[int, dict[str, np.ndarray]]


class Fault(NamedTuple):
    """A damaged file: what was done, the tensor's shape, and the content."""

    kind: str
    tensor: str
    content: bytes


def make(name: str, folder: Path) -> tuple[Model, Path]:
    kind, task = NETWORKS[name]
    tokenizer: Any
    if kind == "wordpiece":
        tokenizer, family = pb.WordPieceTokenizer(networks.vocabulary(folder)), "tinybert_4l_312d"
    else:
        tokenizer, family = pb.UnigramTokenizer(unigram_file(folder)), "xlm_r_base"
    sizes = networks.bert_config(vocab_size=tokenizer.vocab_size)
    names = ("vocab_size", "hidden_size", "embedding_size", "num_layers", "num_attention_heads", "head_size")
    changes = {field: getattr(sizes, field) for field in (*names, "intermediate_size", "max_position_embeddings")}
    model = networks.network(preset(family).config.replace(**changes), (task,), tokenizer)
    model.save_pretrained(folder / "model")
    return pb.from_pretrained(folder / "model"), folder


def rows_of(model: Model) -> dict[int, dict[str, np.ndarray]]:
    """Random texts that use all tokens, positions and segments."""
    generator = np.random.default_rng(11)
    rows = {}
    for length in LENGTHS:
        count = ANSWERS // len(LENGTHS)
        mask = (np.arange(length) < generator.integers(3, length + 1, [count, 1])).astype(np.int32)
        segments = max(model.config.type_vocab_size, 1)
        rows[length] = {
            "input_word_ids": generator.integers(0, model.config.vocab_size, mask.shape).astype(np.int32) * mask,
            "input_mask": mask,
            "input_type_ids": generator.integers(0, segments, mask.shape).astype(np.int32) * mask,
        }
    return rows


def run(content: bytes, batches: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    interpreter = Interpreter(model_content=content, num_threads=1)
    answers = {}
    for signature, inputs in batches.items():
        runner = interpreter.get_signature_runner(signature)
        rows = [
            runner(**{name: array[row : row + 1] for name, array in inputs.items()})
            for row in range(len(inputs["input_mask"]))
        ]
        answers[signature] = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    return answers


def faults(content: bytes, every: int) -> Iterator[Fault]:
    """Four faults in each constant, and of these one in `every`."""
    places = [
        (graph_index, index)
        for graph_index, graph in enumerate(read_model(content).subgraphs)
        for index in sorted({int(index) for operator in graph.operators for index in operator.inputs if index >= 0})
    ]
    damaged = set()
    for (graph_index, index), (number, kind) in [*itertools.product(places, enumerate(CHANGES))][::every]:
        model = read_model(content)
        tensor = model.subgraphs[graph_index].tensors[index]
        data, scales = model.buffers[tensor.buffer].data, tensor.quantization and tensor.quantization.scale
        is_index = tensor.type == schema.TensorType.INT32 and (scales is None or not len(scales))
        if data is None or is_index or (tensor.buffer, kind) in damaged:
            continue
        damaged.add((tensor.buffer, kind))
        generator = np.random.default_rng(101 * index + number)
        if CHANGES[kind](model, model.subgraphs[graph_index], tensor, generator):
            yield Fault(kind, f"{tensor.name} {[int(size) for size in tensor.shape]}", write_model(model))


def change_numbers(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Any:
    def apply(model: Any, graph: Any, tensor: Any, generator: np.random.Generator) -> bool:
        shape = [int(size) for size in tensor.shape] or [1]
        data = np.asarray(model.buffers[tensor.buffer].data, np.uint8)
        if tensor.type == schema.TensorType.INT4:
            halves = (np.stack([data << 4, data & 0xF0], axis=1).view(np.int8) >> 4).reshape(-1)
            numbers, low, high = halves[: math.prod(shape)], -8, 7
        else:
            numbers = data.view(_NUMBERS[tensor.type])
            exact = np.issubdtype(numbers.dtype, np.floating)
            low, high = (-np.inf, np.inf) if exact else (np.iinfo(numbers.dtype).min, np.iinfo(numbers.dtype).max)
        rows = (
            numbers.reshape(-1, shape[-1]) if len(shape) > 1 and math.prod(shape[:-1]) > 1 else numbers.reshape(-1, 1)
        )
        if len(rows) < 2 and tensor.shape is not None and change is not CHANGED["scaled"]:
            return False
        changed = np.clip(change(rows.astype(np.float64), generator), low, high)
        changed = (changed if low == -np.inf else np.round(changed)).astype(numbers.dtype).reshape(-1)
        if np.array_equal(changed, numbers.reshape(-1)):
            return False
        if tensor.type == schema.TensorType.INT4:
            pairs = np.pad(changed, (0, len(changed) % 2)).view(np.uint8) & 15
            changed = pairs[0::2] | (pairs[1::2] << 4)
        model.buffers[tensor.buffer].data = np.ascontiguousarray(changed).view(np.uint8)
        return True

    return apply


def change_scale(model: Any, graph: Any, tensor: Any, generator: np.random.Generator) -> bool:
    quantization = tensor.quantization
    if quantization is not None and isinstance(quantization.details, schema.BlockwiseQuantizationT):
        buffer = model.buffers[graph.tensors[quantization.details.scales].buffer]
        scales = np.array(buffer.data, np.uint8).view(np.float16)
        scales[generator.integers(len(scales))] *= np.float16(1.5)
        buffer.data = scales.view(np.uint8)
        return True
    if quantization is None or quantization.scale is None or not len(quantization.scale):
        return False
    quantized = [
        other.quantization
        for other_graph in model.subgraphs
        for other in other_graph.tensors
        if other.buffer == tensor.buffer
    ]
    channel = generator.integers(len(quantization.scale))
    for shared in quantized:
        shared.scale = np.array(shared.scale, np.float32)
        shared.scale[channel] *= 1.5
    return True


def replaced(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    changed = rows.copy()
    row = generator.integers(len(rows))
    changed[row] = generator.permutation(rows.reshape(-1))[: rows.shape[1]]
    return changed


def swapped(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    changed = rows.copy()
    one, other = generator.choice(len(rows), 2, replace=False)
    changed[[one, other]] = rows[[other, one]]
    return changed


def scaled(rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return np.where(generator.random(rows.shape) < 0.1, 1.1 * rows, rows)


CHANGED = {"replaced": replaced, "swapped": swapped, "scaled": scaled}
CHANGES: dict[str, Any] = {
    "one row replaced": change_numbers(replaced),
    "two rows swapped": change_numbers(swapped),
    "a tenth of the values scaled by 1.1": change_numbers(scaled),
    "a scale changed": change_scale,
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs files here: a process for each would take most of the time."""

    def here(runtime: str, model: Path, batches: runtimes.Batches) -> runtimes.RuntimeAnswers:
        return runtimes.RuntimeAnswers("here", run(model.read_bytes(), dict(batches)))

    monkeypatch.setattr("pocketbert_export.verification.verify.run_on", here)


@pytest.mark.nightly
@pytest.mark.parametrize("recipe", ["dynamic_wi8", "dynamic_wi4"])
@pytest.mark.parametrize("name", NETWORKS)
def test_faults_that_change_answers_are_refused(name: str, recipe: str, tmp_path: Path) -> None:
    check_faults(name, recipe, tmp_path)


def test_every_seventh_fault_is_refused(tmp_path: Path) -> None:
    # Seven has no factor in common with the four kinds.
    check_faults("classifier, WordPiece", "dynamic_wi8", tmp_path, every=7)


def check_faults(name: str, recipe: str, folder: Path, every: int = 1) -> None:
    model, folder = make(name, folder)
    bundle = pb.export(folder / "model", folder / "bundle", recipe=recipe, lengths=LENGTHS)
    task, bounds = get_task(model.task), RECIPES[recipe].bounds
    batches = {bundle.signature(length): rows for length, rows in rows_of(model).items()}
    content = bundle.model_path.read_bytes()
    good = run(content, batches)
    data = default_examples(model.task)
    counts = {"faults": 0, "change answers": 0, "refused": 0, "refused by texts alone": 0}
    missed = []
    for fault in faults(content, every):
        counts["faults"] += 1
        answers = run(fault.content, batches)
        changes = 0.0
        for signature, rows in batches.items():
            pair = [checks.real_values(outputs[signature], rows["input_mask"]) for outputs in (good, answers)]
            largest = checks.check_difference(pair[0], pair[1], bounds, task=task)[0]
            changes = max(changes, math.inf if largest.measured is None else largest.measured)
        if changes <= bounds.largest_difference:
            continue
        counts["change answers"] += 1
        if not check_weights(fault.content, model).passed:
            counts["refused"] += 1
            continue
        copy = Path(shutil.copytree(folder / "bundle", folder / "copy", dirs_exist_ok=True))
        (copy / layout.MODEL_FILE).write_bytes(fault.content)
        bundle_folders.describe_again(copy)
        passed = verify_bundle(copy, reference=model, examples=data).passed
        counts["refused"] += not passed
        counts["refused by texts alone"] += not passed
        if passed:
            missed.append(f"{fault.kind}: {fault.tensor} changes an answer by {changes:.3g}")
    print(f"\n{name}, {recipe}: {counts}")
    assert counts["change answers"]
    assert not missed
