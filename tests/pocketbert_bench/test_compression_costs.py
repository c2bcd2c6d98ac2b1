"""Predicted costs and limits of `pocketbert compress`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tiny
import tiny_finetuning

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert_bench.compression import costs
from pocketbert_bench.compression.candidates import StudentCandidate, in_order
from pocketbert_bench.compression.constraints import Constraints, Cost
from pocketbert_bench.compression.costs import fit, fitted_networks
from pocketbert_bench.compression.methods import Training
from pocketbert_bench.compression.structures import structures
from pocketbert_bench.network_latency import Host, NetworkCost, Setting

TEACHER = tiny.BERT.replace(num_layers=5, initializer_range=0.1)


def formula_ms(config: EncoderConfig, *, first_token: bool) -> float:
    """A latency whose last layer may compute one token."""
    layers, heads, neurons = config.num_layers - first_token, config.num_attention_heads, config.intermediate_size
    rank = config.embedding_size if config.embedding_projection == "factors" else 0
    whole = 0.3 + layers * (0.05 + 0.02 * heads + 1e-4 * neurons) + 0.003 * rank
    return whole + (0.007 * heads + 3e-5 * neurons if first_token else 0)


def formula_mb(config: EncoderConfig) -> float:
    layers, heads, neurons = config.num_layers, config.num_attention_heads, config.intermediate_size
    columns = config.embedding_size if config.embedding_projection == "factors" else config.hidden_size
    return 2 + layers * (0.5 + 0.1 * heads + 1e-3 * neurons) + 1e-6 * config.vocab_size * (columns + 4)


@pytest.mark.parametrize(
    ("layers", "pooling", "small_embedding"),
    [(7, None, True), (7, "mean", True), (7, "mean", False), (2, "mean", True), (3, None, False)],
)
def test_costs_that_are_linear_in_the_terms_are_predicted(layers: int, pooling: Any, small_embedding: bool) -> None:
    base = TEACHER.replace(
        num_layers=layers,
        num_attention_heads=12,
        intermediate_size=1536,
        hidden_size=144,
        embedding_size=144,
        vocab_size=9001,
    )

    def cost(config: EncoderConfig, *, first_token: bool) -> NetworkCost:
        # A longer text takes thrice as long.
        latency, size = formula_ms(config, first_token=first_token), formula_mb(config)
        return NetworkCost(
            latency_us=(1e3 * latency, 3e3 * latency),
            file_bytes=round(1e6 * size),
            memory_bytes=round(3e6 * size + 7e6),
        )

    task, first = dataclasses.replace(tiny_finetuning.TASK, pooling=pooling), pooling is None
    networks = fitted_networks(base, task, small_embedding=small_embedding)
    costs = [cost(config, first_token=task.pooling is None) for config, task in networks]
    model = fit(networks, costs, Setting(task=task, recipe="float32", lengths=(64, 160)))
    other = base.replace(num_layers=min(layers, 4), num_attention_heads=9, intermediate_size=768, vocab_size=777)
    factored = other.replace(embedding_size=128, embedding_projection="factors")
    # The rank's time is unknown without a factored network.
    for config, share in ((other, 0.0), (other, 0.3), (factored if small_embedding else other, 1.0)):
        for first_token in (first, True):
            expected = cost(config, first_token=first_token)
            predicted = model.predict(config, {64: share, 160: 1 - share}, first_token=first_token)
            mean = share * expected.latency_us[0] + (1 - share) * expected.latency_us[1]
            assert predicted.latency_ms == pytest.approx(mean / 1e3, rel=1e-5)
            assert predicted.size_mb == pytest.approx(expected.file_bytes / 1e6, rel=1e-5)
            assert predicted.memory_mb == pytest.approx(expected.memory_bytes / 1e6, rel=1e-5)


def test_costs_are_measured_once_for_each_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path))
    monkeypatch.setattr(costs, "_MOST_OTHERS", 25.0)
    calls: list[int] = []
    others = 0.0

    def measured(self: Host, networks: Any, setting: Setting, folder: Path) -> list[NetworkCost]:
        calls.append(setting.threads)
        return [NetworkCost((1.0 + number,), 2, 3, others) for number in range(len(networks))]

    monkeypatch.setattr(Host, "measure", measured)

    def fitted(threads: int) -> costs.CostModel:
        setting = Setting(task=tiny_finetuning.TASK, recipe="float32", lengths=(16,), threads=threads)
        return costs.fitted_model(TEACHER, setting, small_embedding=False, device=Host())

    first = fitted(1)
    assert fitted(1) == first and calls == [1]
    fitted(2)
    assert calls == [1, 2]
    for path in (tmp_path / "costs").iterdir():
        path.write_text('{"float32": {"latency": "fast"}}')
    assert fitted(1) == first and calls == [1, 2, 1]
    model = dataclasses.replace(first, latency=[costs.LengthModel(length=16, coefficients=8 * [1.0])])
    costs.write_costs({"float32": model}, tmp_path / "earlier.json")
    with pytest.raises(UserError, match="must have 7 coefficients for each length; received 8.*into a new folder"):
        costs.read_costs(tmp_path / "earlier.json")
    # What other programs disturb is measured again.
    others = 40.0
    assert fitted(3) == fitted(3) and calls == [1, 2, 1, 3, 3]


def test_excess_is_the_sum_of_shares_beyond_the_limits() -> None:
    limits = Constraints(max_latency_ms=2, max_mb=10, max_memory_mb=50)

    def excess(latency_ms: float, size_mb: float, memory_mb: float, margin: float = 0.0) -> float:
        return limits.excess(Cost(latency_ms=latency_ms, size_mb=size_mb, memory_mb=memory_mb), margin)

    assert excess(2, 10, 50) == 0
    assert excess(3, 11, 60) == pytest.approx(0.8)
    assert excess(1.95, 9.99, 1, 0.03) == pytest.approx(1.95 / 1.94 - 1)
    assert Constraints().excess(Cost(latency_ms=1e9, size_mb=1e9, memory_mb=1e9)) == 0


@pytest.mark.parametrize("count", [7, 300, 913])
def test_loss_of_exactly_the_limit_is_allowed(count: int) -> None:
    for lost in range(1, 6):
        limits = Constraints(max_points_lost=100 * lost / count)
        for right in range(lost, count + 1):
            least = limits.least_score(right / count)
            assert (right - lost) / count >= least > (right - lost - 1) / count


def test_deepest_networks_near_a_latency_come_first() -> None:
    sizes = {"hidden_size": 144, "embedding_size": 144}
    base = TEACHER.replace(num_layers=7, num_attention_heads=12, intermediate_size=1600, **sizes)
    whole_ms = formula_ms(base, first_token=False)
    candidates = [
        StudentCandidate(
            kind=kind,
            structure=structure,
            training=Training(method="finetune"),
            recipe="dynamic_wi8",
            trimmed=False,
            lengths=(16,),
            cost=Cost(latency_ms=formula_ms(structure.config(base), first_token=False), size_mb=1, memory_mb=1),
        )
        for kind, structure in structures(base, small_embedding=False)
    ]

    def first(*shares: float) -> list[tuple[int, int, int]]:
        ordered = [candidate.structure for candidate in in_order(candidates, [share * whole_ms for share in shares])]
        return [(len(one.layers), one.heads, one.intermediate_size) for one in ordered[:3]]  # type: ignore[union-attr]

    # Seven layers take 0.92 with three quarters of the neurons, 0.84 with half; with half of the heads 0.59, then 0.51.
    assert first(0.95, 0.6, 0.55) == [(7, 12, 1200), (7, 6, 800), (7, 6, 400)]
    assert first(0.95)[:2] == [(7, 12, 1200), (7, 12, 800)]
    # Six layers with half of heads and neurons take 0.52: they are slower, and come later.
    assert first(0.55)[0] == (7, 6, 400)
    # Without a latency to be near, the slowest are first.
    assert first(float("inf"))[:2] == [(7, 12, 1600), (7, 12, 1200)]
