"""Files of networks whose layers share their weights (ALBERT) store each matrix once, in every recipe."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import networks
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from static_texts import examples, sentences

from pocketbert.configs import TaskConfig
from pocketbert.model import Model
from pocketbert_export.conversion.convert import to_calibrated_tflite, to_tflite
from pocketbert_export.conversion.graph_optimization import GRAPH_OPTIMIZATIONS, decide, is_applied, optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.calibration import CalibrationTexts, choose_texts
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.graph import read_model

LENGTHS = (5, 13)
TOKENS = TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER"))
# Matrices of at least 1,024 weights are quantized. Queries, keys and values are the only ones with 30 × 40 weights.
CONFIG = networks.bert_config(
    model_type="albert", num_layers=3, layer_groups=1, embedding_size=28, embedding_projection="output", pooler="none"
)
ONCE = {(30, 40): 3, (40, 30): 1, (56, 40): 1, (40, 56): 1, (40, 28): 1}
# As in test_graph_optimization.py.
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def model(small_model: Model) -> Model:
    return networks.network(CONFIG, (TOKENS,), small_model.tokenizer)


def stored(content: bytes, bits: int = 32) -> Counter[tuple[int, ...]]:
    """Shape of the layers' matrices → number of buffers. Blocks of int4 pad the widths."""
    file = read_model(content)
    buffers = {}
    for graph in file.subgraphs:
        read = {int(index) for operator in graph.operators for index in operator.inputs}
        for index in read - {-1}:
            tensor = graph.tensors[index]
            shape = tuple(int(size) for size in ([] if tensor.shape is None else tensor.shape))
            data = file.buffers[tensor.buffer].data
            if data is not None and math.prod(shape) >= 1024:
                buffers[tensor.buffer] = shape
                assert len(data) <= math.prod(shape) * bits / 8
    return Counter(buffers.values())


def error(model: Model, content: bytes) -> float:
    """Largest difference from the model's logits, relative to the largest logit, in all signatures."""
    interpreter, errors = Interpreter(model_content=content), []
    for length in LENGTHS:
        inputs = networks.inputs_of(model.config, length=length)
        runner = interpreter.get_signature_runner(f"length_{length}")
        expected = model(inputs)["token_logits"].numpy()
        for row, mask in enumerate(inputs["input_mask"]):
            logits = runner(**{name: array[row : row + 1] for name, array in inputs.items()})["token_logits"][0]
            errors.append(np.abs(logits - expected[row])[mask > 0].max() / np.abs(expected).max())
    return max(errors)


@pytest.mark.parametrize("optimizations", ["first_token_only", "attend_to_inputs", "fuse_projections"])
def test_answers_stay(optimizations: str) -> None:
    """The last layer alone has another form, although it is the same block."""
    config = CONFIG.replace(pooler="tanh")
    plain, inputs = networks.network(config), networks.inputs_of(config)
    switches = dict.fromkeys(GRAPH_OPTIMIZATIONS, False) | {optimizations: True}
    if optimizations == "attend_to_inputs":
        switches["first_token_only"] = True
    options = GraphOptimizations(**switches)
    assert is_applied(decide(plain, options)[optimizations])
    expected, received = plain(inputs)["logits"].numpy(), optimize_graph(plain, options)(inputs)["logits"].numpy()
    assert networks.relative(expected, received) < TOLERANCE


def test_norms_fold_into_no_shared_layer(model: Model) -> None:
    decision = decide(model, GraphOptimizations())["fold_beta"]
    assert decision == "does not suit layers that share their weights: the first one reads no norm"
    assert optimize_graph(model, GraphOptimizations()).encoder._graph.early_gamma


def test_matrices_are_stored_once(model: Model) -> None:
    optimized = optimize_graph(model, GraphOptimizations())
    for recipe, bits in (("float32", 32), ("dynamic_wi8", 8)):
        content = to_tflite(optimized, LENGTHS, get_recipe(recipe))
        assert {shape: stored(content, bits)[shape] for shape in ONCE} == ONCE
    # The reason for `early_gamma`: without it, the converter makes a second form of queries, keys and values.
    graph = dataclasses.replace(optimized.encoder._graph, early_gamma=False)
    folded = Model(optimized.config, optimized.tasks, optimized.tokenizer, graph)
    for path, variable in folded.weights_by_path().items():
        variable.assign(model.weights_by_path()[path])
    assert stored(to_tflite(folded, LENGTHS, get_recipe("dynamic_wi8")))[30, 40] == 6


def test_float_files_give_the_models_answers(model: Model) -> None:
    content = to_tflite(optimize_graph(model, GraphOptimizations()), LENGTHS, get_recipe("float32"))
    assert error(model, content) < TOLERANCE


@pytest.fixture(scope="module")
def texts(small_model: Model) -> CalibrationTexts:
    assert small_model.tokenizer is not None
    return choose_texts(examples(sentences(48, seed=1)), None, small_model.tokenizer, LENGTHS)


def recipe_file(model: Model, recipe: str, texts: CalibrationTexts) -> bytes:
    optimized = optimize_graph(model, GraphOptimizations())
    if recipe == "dynamic_wi8":
        # Smoothed.
        return to_tflite(optimized, LENGTHS, get_recipe(recipe), texts=texts.measured)
    options = CalibrationOptions(max_mb=0.1) if recipe == "mixed" else CalibrationOptions()
    return to_calibrated_tflite(optimized, LENGTHS, get_recipe(recipe), texts, options).content


# Each rounds to the relative step of its numbers, three times in a row: 0.9 % or 9 % in a row of weights.
@pytest.mark.one_of_each("dynamic_wi8", "dynamic_wi4")
@pytest.mark.parametrize(
    ("recipe", "bound", "shapes"),
    [
        ("dynamic_wi8", 0.1, ONCE),
        ("dynamic_wi4", 0.6, {(30, 64): 3, (40, 32): 2, (56, 64): 1, (40, 64): 1}),
        ("static_wi8_ai8", 0.15, ONCE),
        ("static_wi8_ai8_full", 0.3, ONCE),
        ("static_wi8_ai16", 0.15, ONCE),
        ("mixed", 0.6, {}),
    ],
    ids=["dynamic_wi8", "dynamic_wi4", "static_wi8_ai8", "static_wi8_ai8_full", "static_wi8_ai16", "mixed"],
)
def test_recipes_share_and_answer(
    recipe: str, bound: float, shapes: dict[tuple[int, ...], int], model: Model, texts: CalibrationTexts
) -> None:
    content = recipe_file(model, recipe, texts)
    assert {shape: stored(content)[shape] for shape in shapes} == shapes
    assert error(model, content) < bound
