"""ModernBERT's graph: gamma and centring fold exactly, and its files pass the gate with one partition a block."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import numpy as np
import pytest
import tiny
import tiny_distillation
from ai_edge_litert.interpreter import Interpreter

import pocketbert as pb
from pocketbert.configs import RotaryConfig, TaskConfig
from pocketbert.model import Model
from pocketbert_export.conversion.graph_optimization import GraphOptimizations, decide, is_applied, optimize_graph
from pocketbert_export.conversion.pre_norm import fold_pre_norm

# Float32 rounding in some twenty steps.
TOLERANCE = 2e-5
TASK = TaskConfig(kind="classification", labels=("no", "perhaps", "yes"))


def shaken(num_layers: int = 4, task: TaskConfig = TASK) -> Model:
    model = pb.from_preset(tiny.MODERNBERT.replace(num_layers=num_layers), task, seed=4)
    generator = np.random.default_rng(7)
    for path, variable in model.weights_by_path().items():
        if path.endswith("gamma"):
            variable.assign(1 + 0.3 * generator.standard_normal(variable.shape))
    return model


def test_optimizations_name_the_blocks_that_they_suit() -> None:
    decided = decide(shaken(1), GraphOptimizations(attend_to_inputs=True))
    assert is_applied(decided["fold_pre_norm"]) and is_applied(decided["first_token_only"])
    assert decided["fold_beta"] == "does not suit rotary blocks: their norms have no beta"
    assert decided["attend_to_inputs"] == "does not suit rotary blocks: their attention also depends on positions"
    plain = networks.network(networks.bert_config())
    assert decide(plain, GraphOptimizations())["fold_pre_norm"] == "does not suit plain blocks"


@pytest.mark.parametrize("kind", ["classification", "token_classification"])
def test_folding_changes_no_answer(kind: str) -> None:
    model = shaken(task=TaskConfig(kind=kind, labels=("no", "perhaps", "yes")))
    optimized = optimize_graph(model, GraphOptimizations(first_token_only=False))
    assert optimized.config == model.config.replace(norm="rms")
    gammas = [path for path in optimized.weights_by_path() if path.endswith("gamma") and path.startswith("encoder.")]
    assert gammas == ["encoder.embeddings.norm.gamma", "encoder.final_norm.gamma"]
    inputs = networks.inputs_of(model.config)
    (expected,), (received,) = ([x.numpy() for x in one(inputs).values()] for one in (model, optimized))
    if kind == "token_classification":
        # A window in the padding has no token: its attention depends on the padding bias, which export changes.
        real = inputs["input_mask"].astype(bool)
        expected, received = expected[real], received[real]
    assert networks.relative(expected, received) < TOLERANCE
    # Nothing is left to subtract.
    states = optimized.features(inputs, ["hidden_states"])["hidden_states"]
    means = [float(np.abs(np.mean(state, axis=-1)).max()) for state in states]
    assert means[0] > 0.01 and max(means[1:]) < TOLERANCE


def test_folding_leaves_the_given_weights() -> None:
    model = shaken(2)
    tensors = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    copies = {path: array.copy() for path, array in tensors.items()}
    folded = fold_pre_norm(model.config, tensors)
    assert {*tensors} - {*folded} == {
        "encoder.layers.0.feed_forwards.0.norm.gamma",
        "encoder.layers.1.attention.norm.gamma",
        "encoder.layers.1.feed_forwards.0.norm.gamma",
    }
    for path, array in copies.items():
        np.testing.assert_array_equal(tensors[path], array)


# 1.5 windows are 6 tokens: local attention has blocks in layer 2. The last layer computes the first token only, and
# int4 rounds three random layers too much. float16 needs graphs with the same operators: lengths of whole blocks.
@pytest.mark.one_of_each("dynamic_wi8-3-19")
@pytest.mark.parametrize(
    ("recipe", "layers", "longest"),
    [("float32", 3, 19), ("float16", 3, 18), ("dynamic_wi8", 3, 19), ("dynamic_wi4", 2, 19)],
)
def test_files_pass_the_gate(recipe: str, layers: int, longest: int, tmp_path: Path) -> None:
    rotary = RotaryConfig(theta=160000.0, local_theta=10000.0, window=4, global_every=3)
    sizes = {"hidden_size": 64, "embedding_size": 64, "num_attention_heads": 2, "head_size": 32}
    config = tiny.MODERNBERT.replace(**sizes, intermediate_size=96, num_layers=layers, rotary=rotary)
    # Smaller weights: random attention at 0.2 amplifies rounding, in a BERT as well.
    config = config.replace(initializer_range=0.05)
    teacher = tiny_distillation.write_teacher(tmp_path / "model", config)
    bundle = pb.export(teacher, tmp_path / "bundle", recipe=recipe, lengths=(8, longest))
    assert json.loads((tmp_path / "bundle/verification.json").read_text())["passed"]
    if recipe == "dynamic_wi8":
        interpreter = Interpreter(str(bundle.model_path))
        interpreter.allocate_tensors()
        parts = [entry for entry in interpreter._get_ops_details() if entry["op_name"] == "DELEGATE"]
        # The look-up of words is none.
        assert len(parts) <= config.num_layers + 1
