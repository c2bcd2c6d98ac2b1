"""Mixed precision: the path of files, its limits, and the bundle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import networks
import numpy as np
import pytest
from static_texts import LENGTHS, examples, sentences, table

from pocketbert import cli
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert_export import calibration
from pocketbert_export.blockwise import prepare_for_blocks
from pocketbert_export.calibration import CalibrationTexts, choose_texts
from pocketbert_export.calibration_options import CalibrationOptions
from pocketbert_export.convert import to_tflite
from pocketbert_export.graph_optimization import optimize_graph
from pocketbert_export.graph_optimization_options import GraphOptimizations
from pocketbert_export.mixed_precision import MixedFile, quantize_mixed
from pocketbert_export.op_histogram import TYPE_NAMES
from pocketbert_export.quantize import layers, quantize
from pocketbert_export.recipes import get_recipe
from pocketbert_export.scored_texts import ScoredTexts
from pocketbert_export.tflite_graph import read_model


@pytest.fixture(scope="module")
def model(small_model: Model) -> Model:
    """The value layer of the first block is so large that its rounding matters most."""
    made = networks.network(networks.bert_config(num_layers=2), tokenizer=small_model.tokenizer)
    for path, variable in made.weights_by_path().items():
        if path.endswith("layers.0.attention.value.kernel"):
            variable.assign(variable * 30)
    return optimize_graph(made, GraphOptimizations(first_token_only=False))


@pytest.fixture(scope="module")
def float_file(model: Model) -> bytes:
    return to_tflite(model, LENGTHS, get_recipe("float32"))


@pytest.fixture(scope="module")
def texts(small_model: Model) -> CalibrationTexts:
    assert small_model.tokenizer is not None
    return choose_texts(examples(sentences(48, seed=1)), None, small_model.tokenizer, LENGTHS)


def mixed(model: Model, content: bytes, texts: CalibrationTexts, **limits: float) -> MixedFile:
    assert model.tokenizer is not None
    scored = ScoredTexts(content, model.task, texts.data, model.tokenizer, LENGTHS)
    return quantize_mixed(content, texts, CalibrationOptions(**limits), scored)


def weight_types(content: bytes) -> list[str]:
    """Types of the layers' matrices, in order."""
    model = read_model(content)
    graph = model.subgraphs[0]
    return [TYPE_NAMES[graph.tensors[graph.operators[p].inputs[1]].type] for p in layers(content)]


def test_files_shrink_and_errors_grow_along_the_path(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    whole = mixed(model, float_file, texts, max_mb=100.0)
    sizes = [point.size_bytes for point in whole.front]
    errors = [point.error for point in whole.front]
    assert sizes == sorted(sizes, reverse=True)
    assert errors[0] < errors[-1]
    assert whole.front[0].chosen
    assert len(whole.content) == sizes[0]
    assert whole.front[0].counts["int4"] == 0 < whole.front[0].counts["float32"]
    assert whole.front[-1].counts == {"float32": 0, "int8": 0, "int4": len(layers(prepare_for_blocks(float_file)))}


def test_size_limit_chooses_the_largest_file_that_fits(
    model: Model, float_file: bytes, texts: CalibrationTexts
) -> None:
    front = mixed(model, float_file, texts, max_mb=100.0).front
    limit = (front[2].size_bytes + front[-1].size_bytes) / 2e6
    made = mixed(model, float_file, texts, max_mb=limit)
    (chosen,) = (point for point in made.front if point.chosen)
    assert len(made.content) == chosen.size_bytes <= limit * 1e6
    larger = [point.size_bytes for point in made.front if point.size_bytes > chosen.size_bytes]
    assert min(larger) > limit * 1e6
    assert Counter(weight_types(made.content)) == Counter(
        {form: count for form, count in chosen.counts.items() if count}
    )


def test_composed_file_equals_the_quantizers(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    made = mixed(model, float_file, texts, max_mb=100.0)
    prepared = prepare_for_blocks(float_file)
    formats = dict(zip(layers(prepared), weight_types(made.content), strict=True))
    assert set(formats.values()) == {"float32", "int8"}
    direct = quantize(prepared, {position: "dynamic_wi8" for position, form in formats.items() if form == "int8"})
    for ours, theirs in zip(
        calibration.outputs_of(made.content, texts.dev), calibration.outputs_of(direct, texts.dev), strict=True
    ):
        np.testing.assert_array_equal(ours["logits"], theirs["logits"])


def test_most_sensitive_layer_becomes_float_first(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    made = mixed(model, float_file, texts, max_mb=100.0)
    prepared = prepare_for_blocks(float_file)
    types = dict(zip(layers(prepared), weight_types(made.content), strict=True))
    (largest,) = (
        position for position in types if np.abs(_matrix(prepared, position)).max() == _largest(prepared, types)
    )
    assert types[largest] == "float32"
    assert Counter(types.values())["float32"] < len(types) / 2


def _largest(content: bytes, positions: Iterable[int]) -> float:
    return max(float(np.abs(_matrix(content, position)).max()) for position in positions)


def _matrix(content: bytes, position: int) -> np.ndarray:
    model = read_model(content)
    tensor = model.subgraphs[0].tensors[model.subgraphs[0].operators[position].inputs[1]]
    return np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32)


def test_unreachable_limits_name_the_nearest_file(model: Model, float_file: bytes, texts: CalibrationTexts) -> None:
    with pytest.raises(UserError, match=r"--max-mb=0.001 must be within reach; with int4 in all layers, .* MB"):
        mixed(model, float_file, texts, max_mb=0.001)
    with pytest.raises(UserError, match="--max-points-lost needs calibration texts with labels"):
        mixed(model, float_file, texts, max_points_lost=1.0)


def test_bundle_keeps_the_measured_files(small_directory: Path, tmp_path: Path) -> None:
    gate, own = table(tmp_path / "gate.csv", sentences(40, 6)), table(tmp_path / "train.csv", sentences(70, 7))
    output = tmp_path / "bundle"
    flags = [f"--model={small_directory}", f"--output={output}", "--recipe=mixed", "--lengths=7,19", "--max-mb=10"]
    flags += [f"--file={gate}", "--label-column=", f"--calibration-file={own}", "--calibration-examples=64"]
    assert cli.main(["export", *flags]) == 0
    front = json.loads((output / "precision.json").read_text(encoding="utf-8"))
    (chosen,) = (point for point in front if point["chosen"])
    assert chosen["size_bytes"] == (output / "model.tflite").stat().st_size
    assert sum(chosen["layers"].values()) == sum(front[-1]["layers"].values())


def test_limits_without_mixed_are_refused(
    small_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = table(tmp_path / "train.csv", sentences(70, 7))
    cases = {
        "received none with --recipe=mixed": ["--recipe=mixed"],
        "received --max-mb with --recipe=dynamic_wi4": ["--recipe=dynamic_wi4", "--max-mb=3"],
        "received --max-points-lost and --max-mb": ["--recipe=mixed", "--max-mb=3", "--max-points-lost=1"],
        "--max-mb must be at least 0; received -3.0": ["--recipe=mixed", "--max-mb=-3"],
    }
    for message, flags in cases.items():
        common = [f"--model={small_directory}", f"--output={tmp_path / 'out'}", f"--calibration-file={own}"]
        assert cli.main(["export", *common, "--label-column=", *flags]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1, error
        assert message in error
        assert not (tmp_path / "out").exists()
