"""Shares of operators on delegates: counted in hand-made graphs, and against the rules in LiteRT's source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import handmade
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

from pocketbert_export.tflite.delegates import DelegateShare, documented_shares
from pocketbert_export.tflite.graph import operator_name, read_model
from pocketbert_export.tflite.interpreter_process import delegate
from pocketbert_export.tflite.runtimes import LITERT, run


def shares(path: Path) -> dict[str, DelegateShare]:
    return {share.name: share for share in documented_shares(path)}


def converted(path: Path, function: tf.types.experimental.PolymorphicFunction, quantize: bool = False) -> Path:
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.optimizations = [tf.lite.Optimize.DEFAULT] if quantize else []
    path.write_bytes(converter.convert())
    return path


def test_ops_between_edges_are_delegated() -> None:
    class FakeInterpreter:
        """0 → [A] → 1 → [B] → 2 → [C] → 3 → [D] → 4; the delegate holds B and C."""

        def _get_ops_details(self) -> list[dict[str, object]]:
            edges = [("A", 0, 1), ("B", 1, 2), ("C", 2, 3), ("D", 3, 4), ("DELEGATE", 1, 3)]
            return [{"op_name": name, "inputs": [start], "outputs": [end]} for name, start, end in edges]

    assert delegate(FakeInterpreter()) == {
        "name": "XNNPACK", "delegated_ops": 2, "total_ops": 4, "left": {"A": 1, "D": 1},
    }  # fmt: skip


def test_runtime_counts_xnnpack_operators(tmp_path: Path) -> None:
    model = handmade.write(tmp_path / "bag.tflite", handmade.Bag())
    xnnpack = run(LITERT, model, {"length_5": handmade.rows(5, 2)}).xnnpack
    content = read_model(model.read_bytes())
    operators = Counter(operator_name(content, operator) for operator in content.subgraphs[0].operators)
    assert xnnpack and xnnpack.source.startswith("litert 2.")
    assert xnnpack.total_ops == operators.total()
    assert xnnpack.total_ops - xnnpack.delegated_ops == sum(xnnpack.left.values())
    # XNNPACK has no GATHER; it has FULLY_CONNECTED.
    assert xnnpack.left["GATHER"] == operators["GATHER"] and "FULLY_CONNECTED" not in xnnpack.left


def test_unknown_operators_stay_on_the_cpu(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([7], tf.float32)])
    def unique(values: tf.Tensor) -> tf.Tensor:
        return tf.unique(tf.exp(values))[0]

    counted = shares(converted(tmp_path / "unique.tflite", unique))
    for name in ("GPU", "NPU"):
        assert (counted[name].delegated_ops, counted[name].total_ops, counted[name].left) == (1, 2, {"UNIQUE": 1})


@pytest.mark.parametrize(("ids_shape", "left"), [([5], {}), ([1, 5], {"GATHER": 1})])
def test_gpu_gathers_flat_ids_only(ids_shape: list[int], left: dict[str, int], tmp_path: Path) -> None:
    table = tf.constant(np.arange(33, dtype=np.float32).reshape(11, 3))

    @tf.function(input_signature=[tf.TensorSpec(ids_shape, tf.int32)])
    def look_up(ids: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.gather(table, ids))

    counted = shares(converted(tmp_path / "gather.tflite", look_up))
    assert counted["GPU"].left == left and counted["NPU"].left == {}


def test_gpu_refuses_integer_arithmetic(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([1, 5], tf.int32)])
    def mask(ids: tf.Tensor) -> tf.Tensor:
        return tf.cast(1 - ids, tf.float32)

    assert shares(converted(tmp_path / "mask.tflite", mask))["GPU"].left == {"SUB": 1}


@pytest.mark.parametrize(("quantize", "left"), [(False, {}), (True, {"FULLY_CONNECTED": 1})])
def test_npu_refuses_dynamic_quantization(quantize: bool, left: dict[str, int], tmp_path: Path) -> None:
    # The converter quantizes weights of more than 1,024 elements.
    weights = tf.constant(np.random.default_rng(3).normal(size=(48, 56)).astype(np.float32))

    @tf.function(input_signature=[tf.TensorSpec([2, 48], tf.float32)])
    def dense(values: tf.Tensor) -> tf.Tensor:
        return tf.matmul(values, weights)

    path = converted(tmp_path / "dense.tflite", dense, quantize)
    (layer,) = read_model(path.read_bytes()).subgraphs[0].operators
    assert layer.builtinOptionsType == schema.BuiltinOptions.FullyConnectedOptions
    assert shares(path)["NPU"].left == left
    assert shares(path)["GPU"].left == {}
