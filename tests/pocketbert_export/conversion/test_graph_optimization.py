"""Graph optimizations change the form, never the outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import networks
import numpy as np
import pytest
import tensorflow as tf
import tiny
from ai_edge_litert.interpreter import Interpreter

from pocketbert.configs import EncoderConfig, QueryKeySource, TaskConfig, TaskKind
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.recipes import RECIPES
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import (
    APPLIED,
    GRAPH_OPTIMIZATIONS,
    OFF,
    GraphOptimizations,
    decide,
    fold_no_norm,
    is_applied,
    optimize_graph,
)
from pocketbert_export.recipes import get_recipe

NONE = GraphOptimizations(**dict.fromkeys(GRAPH_OPTIMIZATIONS, False))
ALL = GraphOptimizations(**dict.fromkeys(GRAPH_OPTIMIZATIONS, True))
# Float32 rounding, 6e-8 a step, in sums of at most 56 products over some twenty steps; wrong maths is off by parts
# of 1.
TOLERANCE = 2e-5
SOURCES: tuple[QueryKeySource, ...] = ("shared", "raw", "bottleneck")


def only(name: str) -> GraphOptimizations:
    needed = {"first_token_only": True} if name == "attend_to_inputs" else {}
    return dataclasses.replace(NONE, **needed, **{name: True})


def difference(model: Model, optimized: Model) -> float:
    inputs = networks.inputs_of(model.config)
    expected, received = model(inputs), optimized(inputs)
    assert list(expected) == list(received)
    return max(networks.relative(expected[name].numpy(), received[name].numpy()) for name in expected)


@functools.cache
def plain(source: QueryKeySource | None) -> Model:
    """A network that no test changes."""
    return networks.network(networks.mobilebert_config(source) if source else networks.bert_config(num_layers=2))


# Of each optimization one network that it changes, and of each network all of them together.
@pytest.mark.one_of_each(
    "shared-all",
    "raw-all",
    "bottleneck-all",
    "None-all",
    "raw-fold_no_norm",
    "shared-fuse_projections",
    "bottleneck-fuse_projections",
    "shared-first_token_only",
    "bottleneck-attend_to_inputs",
    "None-attend_to_inputs",
    "None-fold_beta",
)
@pytest.mark.parametrize("optimization", [*GRAPH_OPTIMIZATIONS, "all"])
@pytest.mark.parametrize("source", [*SOURCES, None])
def test_answers_stay(source: QueryKeySource | None, optimization: str) -> None:
    model = plain(source)
    optimized = optimize_graph(model, ALL if optimization == "all" else only(optimization))
    assert difference(model, optimized) < TOLERANCE


def test_bottleneck_blocks_fuse_projections_by_default() -> None:
    bert, mobilebert = (
        networks.network(networks.bert_config(num_layers=2)),
        networks.network(networks.mobilebert_config("shared")),
    )
    requested, refused = only("fuse_projections"), dataclasses.replace(ALL, fuse_projections=False)
    assert decide(bert, GraphOptimizations())["fuse_projections"].startswith("does not pay")
    assert decide(mobilebert, GraphOptimizations())["fuse_projections"] == APPLIED
    for model in (bert, mobilebert):
        assert decide(model, requested)["fuse_projections"] == APPLIED
        assert decide(model, refused)["fuse_projections"] == OFF


@pytest.mark.parametrize("source", SOURCES)
def test_folding_removes_all_encoder_norms(source: QueryKeySource) -> None:
    model = plain(source)
    optimized = optimize_graph(model, only("fold_no_norm"))
    paths = optimized.weights_by_path()
    assert optimized.config.norm == "identity"
    assert not [path for path in paths if path.endswith(("gamma", "beta"))]
    changed = [path for path in paths if not np.array_equal(paths[path], model.weights_by_path()[path])]
    # Every map touches a norm or a stream in another unit, except the head and, with a bottleneck of their own, queries
    # and keys.
    untouched = {path for path in paths if path.startswith("heads.") or path.endswith("word.table")}
    if source == "shared":
        untouched |= {path for path in paths if ".attention.query." in path or ".attention.key." in path}
    untouched |= {path for path in paths if path.endswith((".query.bias", ".key.bias", ".value.bias"))}
    untouched |= {path for path in paths if path.endswith(".intermediate.bias")}
    assert set(changed) == set(paths) - untouched


def test_folding_keeps_mlm_heads_layer_norm() -> None:
    task = TaskConfig(kind="masked_lm")
    model = networks.network(networks.mobilebert_config(), [task])
    optimized = optimize_graph(model, GraphOptimizations())
    assert "heads.masked_lm.norm.gamma" in optimized.weights_by_path()
    assert difference(model, optimized) < TOLERANCE


def set_gammas(model: Model, gammas: Mapping[str, float | np.ndarray]) -> None:
    """Multiplies gammas, given by the end of their path in the encoder."""
    for name, factor in gammas.items():
        gamma = model.weights_by_path()[f"encoder.layers.{name}.gamma"]
        gamma.assign(gamma * factor)


# All features but one keep their gammas.
ZERO = np.where(np.arange(16) == 5, 0.0, 1.0).astype(np.float32)
# Gammas of both signs, from 1e-5 to 1e5 times as large.
RUNAWAY = (np.geomspace(1e-5, 1e5, 16) * np.where(np.arange(16) % 3, 1, -1)).astype(np.float32)
WIDE_ZERO = np.where(np.arange(28) == 5, 0.0, 1.0).astype(np.float32)


@pytest.mark.one_of_each(
    "zero-shared", "zero-bottleneck", "runaway-raw", "runaway-bottleneck", "stream-shared", "stream cancels-raw"
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("gammas", "num_kept"),
    [
        ({"1.feed_forwards.0.norm": ZERO}, 1),
        ({"1.feed_forwards.1.norm": RUNAWAY, "1.feed_forwards.0.norm": RUNAWAY}, 1),
        # 1e5 · 1e5 leaves the range of 1024² in the first block, 1e5 in the second stream whose end is fixed.
        ({"0.bottleneck.output_norm": WIDE_ZERO, "1.bottleneck.output_norm": 1e5}, 2),
        ({"1.bottleneck.output_norm": 1e5, "0.bottleneck.output_norm": 1e-5}, 1),
    ],
    ids=["zero", "runaway", "stream", "stream cancels"],
)
def test_partly_folded_norms_keep_answers(
    gammas: Mapping[str, float | np.ndarray], num_kept: int, source: QueryKeySource
) -> None:
    model = networks.network(networks.mobilebert_config(source))
    set_gammas(model, gammas)
    # Shared queries and keys have a norm of their own.
    total = 1 + 2 * (5 + (source == "shared"))
    decided = decide(model, GraphOptimizations())["fold_no_norm"]
    assert decided == f"applied, {total - num_kept} of {total} norms; {num_kept} keep a product on their residual"
    optimized = optimize_graph(model, GraphOptimizations())
    factors = [path for path in optimized.weights_by_path() if path.endswith("residual_scale.factor")]
    assert optimized.config.norm == "identity" and len(factors) == num_kept
    assert difference(model, optimized) < TOLERANCE


@pytest.mark.one_of_each("shared", "bottleneck")
@pytest.mark.parametrize("source", SOURCES)
def test_first_residual_needs_no_product_if_nothing_else_reads_it(source: QueryKeySource) -> None:
    model = networks.network(networks.mobilebert_config(source))
    set_gammas(model, {"0.attention.norm": ZERO, "1.attention.norm": RUNAWAY})
    decided = decide(model, GraphOptimizations())["fold_no_norm"]
    # Of 1e-5 to 1e5, no feature alone leaves the range of 1024² that a stream with a free end has.
    assert ("1 keep" in decided) == (source == "bottleneck")
    assert difference(model, optimize_graph(model, GraphOptimizations())) < TOLERANCE


def test_scales_of_a_part_stay_in_range() -> None:
    model = networks.network(networks.mobilebert_config(num_layers=6))
    set_gammas(model, {f"{layer}.bottleneck.output_norm": 0.2 for layer in range(6)})
    # Products of gammas of 0.12 to 0.32: four of six stay above 1/1024 for all features, five do not.
    decided = decide(model, GraphOptimizations())["fold_no_norm"]
    assert decided == "applied, 36 of 37 norms; 1 keep a product on their residual"
    assert difference(model, optimize_graph(model, GraphOptimizations())) < TOLERANCE


def test_switch_keeps_runaway_norms() -> None:
    model = networks.network(networks.mobilebert_config())
    set_gammas(model, {"1.feed_forwards.0.norm": ZERO})
    off = dataclasses.replace(ALL, fold_no_norm=False)
    assert decide(model, off)["fold_no_norm"] == OFF
    optimized = optimize_graph(model, off)
    assert optimized.config.norm == "no_norm"
    assert not any("residual_scale" in path for path in optimized.weights_by_path())


def test_converted_file_agrees_with_partly_folded_model() -> None:
    model = networks.network(networks.mobilebert_config())
    set_gammas(model, {"1.feed_forwards.0.norm": ZERO, "0.bottleneck.output_norm": WIDE_ZERO})
    content = to_tflite(optimize_graph(model, GraphOptimizations()), (13,), get_recipe("float32"))
    inputs = networks.inputs_of(model.config)
    runner = Interpreter(model_content=content).get_signature_runner("length_13")
    received = [runner(**{name: rows[row : row + 1] for name, rows in inputs.items()})["logits"] for row in range(3)]
    with padding_after_texts(model):
        expected = model(inputs)["logits"].numpy()
    assert networks.relative(expected, np.concatenate(received)) < TOLERANCE


def test_zero_gamma_after_dense_layer_folds() -> None:
    model = networks.network(networks.mobilebert_config())
    for name in ("input_norm", "query_key_norm"):
        gamma = model.weights_by_path()[f"encoder.layers.0.bottleneck.{name}.gamma"]
        gamma.assign(np.where(np.arange(16) == 5, 0.0, gamma.numpy()))
    assert decide(model, GraphOptimizations())["fold_no_norm"] == "applied, 13 of 13 norms"
    assert difference(model, optimize_graph(model, GraphOptimizations())) < TOLERANCE


@pytest.mark.parametrize(
    "config", [networks.bert_config(num_layers=2), networks.mobilebert_config("shared")], ids=["bert", "no_norm"]
)
def test_padding_is_masked_in_half_precision(config: EncoderConfig) -> None:
    model = networks.network(config)
    optimized = optimize_graph(model, NONE)
    inputs = networks.inputs_of(config)
    assert (inputs["input_mask"] == 0).any()
    # Not a bit differs: what is masked has the probability 0 in either form.
    expected, received = model(inputs), optimized(inputs)
    assert all(np.array_equal(expected[name], received[name]) for name in expected)
    graph = tf.function(optimized).get_concrete_function(inputs).graph.as_graph_def()
    functions = [graph.node, *(function.node_def for function in graph.library.function)]
    constants = [
        tf.make_ndarray(node.attr["value"].tensor)
        for nodes in functions
        for node in nodes
        if node.op == "Const" and node.attr["dtype"].type == tf.float32.as_datatype_enum
    ]
    lowest = min(float(constant.min()) for constant in constants if constant.size)
    assert np.finfo(np.float16).min < lowest < -5e4


def test_the_model_itself_does_not_change() -> None:
    model = networks.network(networks.mobilebert_config())
    before = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    optimize_graph(model, GraphOptimizations())
    for path, variable in model.weights_by_path().items():
        np.testing.assert_array_equal(before[path], variable.numpy())
    fold_no_norm(model.config, before)
    for path, variable in model.weights_by_path().items():
        np.testing.assert_array_equal(before[path], variable.numpy())


@pytest.mark.parametrize("kind", ["span", "masked_lm", None])
def test_first_token_only_skips_token_heads(kind: TaskKind | None) -> None:
    tasks = [TaskConfig(kind=kind)] if kind else []
    model = networks.network(networks.bert_config(num_layers=2), tasks)
    assert decide(model, GraphOptimizations())["first_token_only"].startswith("does not suit")
    assert difference(model, optimize_graph(model, GraphOptimizations())) < TOLERANCE


@pytest.mark.parametrize("kind", ["regression", "next_sentence"])
def test_first_token_only_suits_sentence_heads(kind: TaskKind) -> None:
    model = networks.network(networks.bert_config(num_layers=2), [TaskConfig(kind=kind)])
    optimized = optimize_graph(model, only("first_token_only"))
    assert decide(model, GraphOptimizations())["first_token_only"] == APPLIED
    assert optimized.encoder(networks.inputs_of(model.config))["sequence_output"].shape == (3, 1, 40)
    assert difference(model, optimized) < TOLERANCE


def test_each_switch() -> None:
    model = networks.network(networks.mobilebert_config())
    suited = dict.fromkeys(GRAPH_OPTIMIZATIONS, model) | {
        "fold_beta": networks.network(networks.bert_config()),
        "fold_pre_norm": networks.network(tiny.MODERNBERT),
    }
    assert decide(model, NONE) == dict.fromkeys(GRAPH_OPTIMIZATIONS, OFF)
    for name in GRAPH_OPTIMIZATIONS:
        decided = decide(suited[name], only(name))
        assert is_applied(decided.pop(name))
        if name == "attend_to_inputs":
            assert is_applied(decided.pop("first_token_only"))
        assert set(decided.values()) == {OFF}
    plain = optimize_graph(model, NONE)
    assert plain.config == model.config
    assert difference(model, plain) == 0.0


def test_folded_betas_are_zero_but_the_last() -> None:
    model = networks.network(networks.bert_config(num_layers=2))
    optimized = optimize_graph(model, only("fold_beta"))
    betas = {path: array.numpy() for path, array in optimized.weights_by_path().items() if path.endswith(".beta")}
    assert len(betas) == 5
    last = "encoder.layers.1.feed_forwards.0.norm.beta"
    assert [path for path, beta in betas.items() if beta.any()] == [last]
    np.testing.assert_array_equal(betas[last], model.weights_by_path()[last])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (networks.mobilebert_config(), "norm='no_norm'"),
        (networks.mobilebert_config(norm="layer_norm"), "bottlenecks"),
        (networks.efficientbert_config("linear2_1(gelu(linear2_1(x)))"), "feed-forward expressions"),
    ],
    ids=["no_norm", "bottleneck", "expression"],
)
def test_unsuited_betas_stay(config: EncoderConfig, reason: str) -> None:
    model = networks.network(config)
    assert reason in decide(model, only("fold_beta"))["fold_beta"]
    assert difference(model, optimize_graph(model, only("fold_beta"))) < TOLERANCE


@pytest.mark.one_of_each("shared", "None")
@pytest.mark.parametrize("source", [*SOURCES, None])
def test_attention_to_inputs_has_the_same_probabilities(source: QueryKeySource | None) -> None:
    # The gate of float16 files reads the logits.
    model = plain(source)
    inputs = networks.inputs_of(model.config)
    request = ["attention_logits", "attention_probs"]
    whole, optimized_features = (
        network.features(inputs, request) for network in (model, optimize_graph(model, only("attend_to_inputs")))
    )
    expected = whole["attention_probs"][-1].numpy()[:, :, :1]
    assert networks.relative(expected, optimized_features["attention_probs"][-1].numpy()) < TOLERANCE
    # They differ by the same number for all keys.
    difference = optimized_features["attention_logits"][-1].numpy() - whole["attention_logits"][-1].numpy()[:, :, :1]
    np.testing.assert_allclose(difference, difference[..., :1] + np.zeros(13), atol=1e-3)


def test_keys_and_values_need_other_tokens_outputs() -> None:
    model = networks.network(networks.bert_config(num_layers=2), [TaskConfig(kind="span")])
    assert decide(model, ALL)["attend_to_inputs"].startswith("needs first_token_only")
    assert difference(model, optimize_graph(model, ALL)) < TOLERANCE


def test_npu_and_gpu_recipes_keep_keys() -> None:
    default = GraphOptimizations()
    chosen = {name: default.for_recipe(recipe).attend_to_inputs for name, recipe in RECIPES.items()}
    npu_and_gpu = {name for name in RECIPES if name.startswith("static")} | {"float16"}
    assert chosen == {name: name not in npu_and_gpu for name in RECIPES}
    assert only("attend_to_inputs").for_recipe(RECIPES["float16"]).attend_to_inputs is True
