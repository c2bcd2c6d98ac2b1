from __future__ import annotations

import importlib.util
from pathlib import Path

import bench_subjects
import numpy as np
import pytest

import pocketbert as pb
from pocketbert.configs import TaskConfig
from pocketbert_bench import baseline_calls, baselines, host, onnx_baseline
from pocketbert_bench.host import Schedule

BRIEF = Schedule(rounds=2, runs=6, seconds=0.0, longest_seconds=1.0, warm_up_seconds=0.0)
LENGTH = 13
needs_onnx = pytest.mark.skipif(
    not (importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime")), reason="the extra `peers`"
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench_subjects.write_network(tmp_path_factory.mktemp("peers") / "network")


@pytest.fixture(scope="module")
def plain(network: Path, tmp_path_factory: pytest.TempPathFactory) -> list[baselines.Configuration]:
    return baselines.plain_export(network, tmp_path_factory.mktemp("plain"), model="net", length=LENGTH, threads=(1, 2))


def test_legal_inputs_are_valid_and_padded() -> None:
    config = bench_subjects.bert_config()
    rows = baseline_calls.legal_inputs(config, LENGTH)
    tokens = [sum(row["input_mask"]) for row in rows]
    assert tokens[0] == LENGTH and min(tokens) < LENGTH and min(tokens) > LENGTH // 3
    for row in rows:
        assert {len(values) for values in row.values()} == {LENGTH}
        assert 0 <= min(row["input_word_ids"]) and max(row["input_word_ids"]) < config.vocab_size
        assert max(row["input_type_ids"]) == 1
    assert rows == baseline_calls.legal_inputs(config, LENGTH)
    # With one kind of segment, or none, there is only id 0.
    for number in (0, 1):
        rows = baseline_calls.legal_inputs(config.replace(type_vocab_size=number), LENGTH)
        assert {kind for row in rows for kind in row["input_type_ids"]} == {0}


def test_plain_export_quantizes_and_matches_model(plain: list[baselines.Configuration], network: Path) -> None:
    assert [(measurement.recipe, measurement.threads) for measurement in plain] == [
        ("float32", 1), ("float32", 2), ("dynamic_wi8", 1), ("dynamic_wi8", 2)
    ]  # fmt: skip
    assert all(measurement.is_baseline and measurement.length == LENGTH for measurement in plain)
    measured = host.measure(plain[::2], BRIEF)
    assert [measurement.error for measurement in measured] == [None, None]
    model = pb.from_pretrained(network)
    call = plain[0].calls[1]
    row = {name: np.array([ids], np.int32) for name, ids in call.inputs.items()}
    assert call.expected
    np.testing.assert_array_equal(call.expected["logits"], model(row, training=False)["logits"].numpy())
    sizes = {measurement.recipe: measurement.model_path.stat().st_size for measurement in plain}
    weights = sum(array.size for array in model.get_weights())
    # One byte a weight instead of four, in the matrices that the converter quantizes (1024 elements and more).
    assert 2 * weights < sizes["float32"] - sizes["dynamic_wi8"] < 3 * weights


def test_baseline_with_other_weights_is_refused(plain: list[baselines.Configuration], tmp_path: Path) -> None:
    other = bench_subjects.write_network(tmp_path / "other", bench_subjects.bert_config(num_layers=1))
    calls = baseline_calls.calls_with_answers(pb.from_pretrained(other), LENGTH, "serving_default")
    from dataclasses import replace

    (measured,) = host.measure([replace(plain[0], calls=calls)], BRIEF)
    assert measured.status == "failed" and "those recorded at export" in str(measured.error)


@needs_onnx
@pytest.mark.parametrize(
    ("changes", "task"),
    [
        ({}, bench_subjects.MOOD),
        ({"embedding_size": 24, "embedding_projection": "word", "activation": "relu"}, bench_subjects.MOOD),
        ({"embedding_size": 24, "embedding_projection": "output", "activation": "gelu_tanh"}, bench_subjects.MOOD),
        ({"embedding_size": 24, "embedding_projection": "factors"}, bench_subjects.MOOD),
        ({}, TaskConfig(kind="regression", name="stars")),
    ],
)
def test_onnx_runtime_answers_as_the_model(tmp_path: Path, changes: dict[str, object], task: TaskConfig) -> None:
    import onnxruntime

    from pocketbert.checkpoints.directory import read_directory

    folder = bench_subjects.write_network(tmp_path / "network", bench_subjects.bert_config(**changes), task)
    source = read_directory(folder)
    graph = onnx_baseline.build_graph(source.config, task.kind, source.tensors, LENGTH)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    model = pb.from_pretrained(folder)
    for row in baseline_calls.legal_inputs(source.config, LENGTH):
        inputs = {name: np.array([ids], np.int32) for name, ids in row.items()}
        expected = model(inputs, training=False)["logits"].numpy()
        (answer,) = session.run(["logits"], inputs)
        assert answer.shape == expected.shape
        # Two float32 networks of two layers: sums of at most 56 products, sqrt(56)·2^-24 an operation, some 30 of
        # them after one another on answers of order 1.
        np.testing.assert_allclose(answer, expected, atol=2e-5)


@needs_onnx
def test_onnx_files_are_timed_like_others(network: Path, tmp_path: Path) -> None:
    exports = onnx_baseline.onnx_exports(network, tmp_path, model="net", length=LENGTH)
    assert [export.label for export in exports] == ["ONNX Runtime float32", "ONNX Runtime dynamic_wi8"]
    measured = host.measure(exports, BRIEF)
    assert [measurement.error for measurement in measured] == [None, None]
    assert all(
        measurement.runtime and measurement.runtime.name == "onnxruntime" and measurement.delegate is None
        for measurement in measured
    )
    assert (measured[1].size_bytes or 0) < (measured[0].size_bytes or 0)


@needs_onnx
def test_unsupported_onnx_networks_are_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = bench_subjects.write_network(tmp_path / "network", bench_subjects.bert_config(norm="no_norm"))
    assert onnx_baseline.onnx_exports(folder, tmp_path, model="net", length=LENGTH) == []
    assert "ONNX Runtime is left out: this one is a bert with norm no_norm" in capsys.readouterr().err
