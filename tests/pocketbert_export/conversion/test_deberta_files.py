"""DeBERTa's file: its products by distance are constants, quantized and checked in each recipe that holds for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_distillation
from ai_edge_litert import schema_py_generated as schema

import pocketbert as pb
from pocketbert.model import Model
from pocketbert_export.conversion.graph_optimization import decide, optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.tflite.graph import operator_name, read_model, write_model
from pocketbert_export.verification.weight_checks import check_weights, distance_tables

# For 24 tokens, two blocks of 12 tokens meet 36 distances each. The converter quantizes these 2,160 values, and not the
# 900 for 10 tokens. With an odd length, whole texts of 24 tokens meet 48 distances.
LENGTHS, WITH_ODD = (10, 24), (9, 24)
CONFIG = tiny.DEBERTA.replace(num_layers=2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_distillation.write_teacher(tmp_path_factory.mktemp("deberta") / "model", CONFIG)


@pytest.fixture(scope="module")
def dynamic_wi8(directory: Path) -> bytes:
    pb.export(directory, directory.parent / "bundle", recipe="dynamic_wi8", lengths=LENGTHS)
    return (directory.parent / "bundle/model.tflite").read_bytes()


def products(model: schema.ModelT, graph: schema.SubGraphT) -> Iterator[tuple[schema.OperatorT, schema.TensorT]]:
    """Products with a constant."""
    for operator in graph.operators:
        if operator_name(model, operator) == "BATCH_MATMUL":
            tensor = graph.tensors[operator.inputs[1]]
            if model.buffers[tensor.buffer].data is not None:
                yield operator, tensor


def check_products(content: bytes, *sizes_of_products: int) -> None:
    model, sizes = read_model(content), []
    for graph in model.subgraphs:
        names = Counter(operator_name(model, operator) for operator in graph.operators)
        # Only the words are looked up.
        assert names["GATHER"] + names["EMBEDDING_LOOKUP"] == 1 and not names["GATHER_ND"]
        tensors = [tensor for _, tensor in products(model, graph)]
        # Queries and keys in the first layer; the last one computes a single query.
        assert len(tensors) == 3
        for tensor in tensors:
            sizes.append(int(np.prod(tensor.shape)))
            assert tensor.type == (schema.TensorType.INT8 if sizes[-1] >= 1024 else schema.TensorType.FLOAT32)
    assert sorted(sizes) == [*sizes_of_products]


def test_dynamic_wi8_passes_the_gate(dynamic_wi8: bytes) -> None:
    check_products(dynamic_wi8, 300, 720, 900, 900, 2160, 2160)


@pytest.mark.one_of_each("dynamic_wi4")
@pytest.mark.parametrize("recipe", ["dynamic_wi4", "float16"])
def test_other_recipes_pass_the_gate(recipe: str, directory: Path, tmp_path: Path) -> None:
    pb.export(directory, tmp_path / "bundle", recipe=recipe, lengths=WITH_ODD)
    if recipe == "dynamic_wi4":
        check_products((tmp_path / "bundle/model.tflite").read_bytes(), 270, 540, 540, 720, 1440, 1440)


@pytest.mark.usefixtures("eager")
def test_gate_finds_another_row(directory: Path, dynamic_wi8: bytes) -> None:
    network = pb.from_pretrained(directory)
    assert check_weights(dynamic_wi8, network).passed
    model = read_model(dynamic_wi8)
    every = (tensor for graph in model.subgraphs for _, tensor in products(model, graph))
    tensor = next(tensor for tensor in every if tensor.type == schema.TensorType.INT8)
    buffer = model.buffers[tensor.buffer]
    rows = np.asarray(buffer.data).reshape(-1, 6).copy()
    rows[[7, 8]] = rows[[20, 21]]
    buffer.data = rows.ravel()
    check = check_weights(write_model(model), network)
    assert not check.passed and "of the distances differs by" in check.reason


@pytest.mark.usefixtures("eager")
def test_gate_knows_every_layer_of_the_model(directory: Path) -> None:
    tables = distance_tables(pb.from_pretrained(directory))
    assert [(*table.shape,) for table in tables.values()] == [(5, 59, 6)] * 4


@pytest.mark.usefixtures("eager")
def test_optimized_graph_has_equal_outputs(directory: Path) -> None:
    model: Model = pb.from_pretrained(directory)
    generator = np.random.default_rng(5)
    for path, variable in model.weights_by_path().items():
        if path.endswith((".gamma", ".beta", ".bias")):
            variable.assign_add(0.3 * generator.standard_normal(variable.shape))
    decided = decide(model, GraphOptimizations(attend_to_inputs=True))
    assert decided["first_token_only"] == decided["fold_beta"] == "applied"
    assert decided["attend_to_inputs"].startswith("does not suit relative blocks")
    optimized = optimize_graph(model, GraphOptimizations(attend_to_inputs=True))
    weights = optimized.weights_by_path()
    zero = {path for path, variable in weights.items() if path.endswith(".beta") and not variable.numpy().any()}
    assert zero == {f"encoder.layers.{layer}.attention.norm.beta" for layer in range(2)}
    inputs: dict[str, Any] = {name: tf.constant(value) for name, value in tiny.batch(CONFIG).items()}
    # Float32 sums in another order, on values of order 1.
    np.testing.assert_allclose(optimized(inputs)["logits"], model(inputs)["logits"], rtol=0, atol=2e-5)
