"""Predicted latency of searched networks."""

from __future__ import annotations

import dataclasses
import json
import statistics
from pathlib import Path

import pytest
import tiny

from pocketbert.configs import TaskConfig
from pocketbert.feedforward import FeedForwardConfig, parse
from pocketbert.search.space import SearchSpace
from pocketbert_bench.latency_model import LatencyConstraint, LatencyModel, fit, part_names, parts_us
from pocketbert_bench.network_latency import Host, Setting


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # A relu is part of the linear map before it, but not of a product.
        ("linear1_2(relu(linear1_2(x)))", ["norm", "linear 30 20"]),
        ("linear1_2(relu(mul(linear1_2(x),x)))", ["norm", "linear 30 20", "mul 20", "slice 30 20", "relu 20"]),
        (
            "tanh(linear1_2(gelu(linear1_2(max(x,elu(x))))))",
            ["norm", "linear 30 20", "elu 30", "max 30", "gelu 20", "tanh 30"],
        ),
    ],
)
def test_parts_of_an_expression(text: str, names: list[str]) -> None:
    assert sorted(part_names(parse(text).tree, 30, 20, "truncate")) == sorted(names)


def test_padding_keeps_the_wider_result() -> None:
    names = part_names(parse("linear1_1(tanh(mul(linear1_1(x),x)))").tree, 30, 41, "pad")
    assert sorted(names) == sorted(["norm", "linear 30 41", "mul 30", "slice 41 30", "tanh 41"])


def test_last_layer_counts_its_share() -> None:
    config = tiny.BERT.replace(
        num_layers=2,
        feedforward=FeedForwardConfig(expressions=("linear3_1(tanh(linear3_1(x)))", "linear1_1(elu(linear1_1(x)))")),
    )
    parts = {"norm": 5.0, "linear 30 41": 7.0, "tanh 41": 11.0, "elu 41": 13.0}
    expected = 3 * (5 + 7 + 11) + (5 + 7 + 13) / 16
    assert parts_us(parts, config, 1 / 16) == pytest.approx(expected)
    model = LatencyModel(parts, base=100.0, factor=2.0, errors=(), last_layer_share=1 / 16)
    assert model.predict(config) == pytest.approx((100 + 2 * expected) / 1e3)


class NoDevice(Host):
    def check(self) -> None:
        raise AssertionError("an earlier attempt has measured")


def test_kept_measurements_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latency_model = LatencyModel(
        {"norm": 5.0}, base=100.0, factor=2.0, errors=(0.03, 0.01, 0.062, 0.02), last_layer_share=1.0
    )
    (tmp_path / "latency.json").write_text(json.dumps(dataclasses.asdict(latency_model)), encoding="utf-8")
    setting = Setting(task=TaskConfig(kind="regression", name="stars"), recipe="float32", lengths=(32,))
    constraint = LatencyConstraint(limit=2.0, setting=setting, device=NoDevice())
    constraint.prepare(tmp_path, SearchSpace(encoder=tiny.FACTORIZED_WORD, stage=1))
    assert constraint.model is not None and constraint.model.base == 100 and constraint.model.parts == {"norm": 5.0}
    assert capsys.readouterr().err == (
        "latency with float32 at 32 tokens: median error 2.5 %, largest 6.2 %, on 4 networks outside the fit\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "recipe"), [("span", "float32"), ("classification", "dynamic_wi8")])
def test_median_error_is_at_most_five_percent(kind: str, recipe: str, tmp_path: Path) -> None:
    encoder = tiny.FACTORIZED_WORD.replace(
        trigram=True, hidden_size=240, head_size=48, intermediate_size=240, max_position_embeddings=64
    )
    task = TaskConfig(kind=kind, labels=("a", "b") if kind == "classification" else ())
    setting = Setting(task=task, recipe=recipe, lengths=(64,))
    model = fit(SearchSpace(encoder=encoder, stage=1), setting, Host(), tmp_path)
    assert model.last_layer_share == (1 / 64 if kind == "classification" else 1)
    assert statistics.median(model.errors) <= 0.05
    # Activations cost less than linear maps, and wide ones more than narrow ones.
    assert (
        model.parts["linear 240 240"] > model.parts["linear 240 60"] > model.parts["tanh 240"] > model.parts["tanh 60"]
    )
