"""Scales of single channels move between weights and change no bit of a file's outputs."""

from __future__ import annotations

from collections.abc import Sequence

import networks
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.model import Model
from pocketbert_export.conversion.convert import to_tflite
from pocketbert_export.conversion.graph_optimization import optimize_graph
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.quantization.channel_scales import ChannelGroups, scale_channels
from pocketbert_export.recipes import get_recipe
from pocketbert_export.tflite.graph import attention_products, operator_name, read_model
from pocketbert_runtime.bundles.description import signature_name

LENGTHS = (7, 13)
MOBILEBERT = networks.mobilebert_config()


def float_file(model: Model, **optimizations: bool) -> bytes:
    return to_tflite(
        optimize_graph(model, GraphOptimizations(**optimizations).for_recipe(get_recipe("float16"))),
        LENGTHS,
        get_recipe("float32"),
    )


def outputs(content: bytes, config: EncoderConfig) -> list[np.ndarray]:
    """All outputs at each length, for rows with and without padding."""
    interpreter = Interpreter(model_content=content)
    outputs = []
    for length in LENGTHS:
        runner = interpreter.get_signature_runner(signature_name(length))
        inputs = networks.inputs_of(config, length=length)
        rows = range(len(inputs["input_mask"]))
        answers = [runner(**{name: values[row : row + 1] for name, values in inputs.items()}) for row in rows]
        outputs += [answer[name] for answer in answers for name in sorted(answer)]
    return outputs


def random_scales(groups: ChannelGroups) -> np.ndarray:
    powers = np.random.default_rng(11).integers(-9, 10, groups.count)
    return np.where(groups.movable, np.exp2(powers), 1.0)


@pytest.mark.one_of_each("folded")
@pytest.mark.parametrize(
    ("config", "tasks", "optimizations"),
    [
        (MOBILEBERT, [networks.SENTIMENT], {}),
        (networks.mobilebert_config("raw"), [networks.SENTIMENT], {"fuse_projections": False}),
        (networks.mobilebert_config("bottleneck"), [networks.SENTIMENT], {"first_token_only": False}),
        (MOBILEBERT, [networks.SENTIMENT], {"fold_no_norm": False}),
        (MOBILEBERT, [TaskConfig(kind="span")], {}),
        (MOBILEBERT, [], {}),
        (networks.bert_config(num_layers=2, activation="relu"), [networks.SENTIMENT], {}),
    ],
    ids=["folded", "raw", "bottleneck", "unfolded", "span", "bare", "layer norm"],
)
def test_outputs_keep_every_bit(
    config: EncoderConfig, tasks: Sequence[TaskConfig], optimizations: dict[str, bool]
) -> None:
    content = float_file(networks.network(config, tasks), **optimizations)
    groups = ChannelGroups(read_model(content))
    scaled = scale_channels(content, groups, random_scales(groups))
    assert scaled != content
    for expected, received in zip(outputs(content, config), outputs(scaled, config), strict=True):
        assert np.array_equal(expected, received)


def test_residual_stream_is_one_vector() -> None:
    model = read_model(float_file(networks.network(MOBILEBERT)))
    graph, groups = model.subgraphs[0], ChannelGroups(model)
    wide = [
        groups.of(position)
        for position, operator in enumerate(graph.operators)
        if operator_name(model, operator) == "ADD" and len(groups.of(position)) == MOBILEBERT.hidden_size
    ]
    # Two sums of the embedding and one of each layer.
    assert len(wide) == 2 + MOBILEBERT.num_layers
    assert all(np.array_equal(row, wide[0]) for row in wide)
    assert len(set(wide[0])) == MOBILEBERT.hidden_size and groups.movable[wide[0]].all()
    fixed = [position for position, product in attention_products(model).items() if product == "logits"]
    assert len(fixed) == MOBILEBERT.num_layers
    assert not any(groups.movable[groups.of(position)].any() for position in fixed)


@pytest.mark.nightly
def test_layer_norm_and_gelu_fix_the_scale() -> None:
    model = read_model(float_file(networks.network(networks.bert_config(num_layers=2))))
    groups, graph = ChannelGroups(model), model.subgraphs[0]
    names = [operator_name(model, operator) for operator in graph.operators]
    for position, name in enumerate(names):
        if name in ("GELU", "MEAN", "RSQRT", "SOFTMAX"):
            assert not groups.movable[groups.of(position)].any(), name


@pytest.mark.nightly
def test_bare_encoder_gets_one_product() -> None:
    content = float_file(networks.network(MOBILEBERT, []))
    groups = ChannelGroups(read_model(content))
    files = [
        read_model(file_content) for file_content in (content, scale_channels(content, groups, random_scales(groups)))
    ]
    products = [
        sum(operator_name(model, operator) == "MUL" for operator in model.subgraphs[0].operators) for model in files
    ]
    assert products[1] - products[0] == len(files[0].subgraphs[0].outputs)
