"""Studies of `pocketbert compress`: structures, errors and tables."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert.configs import TaskConfig
from pocketbert.presets import PRESETS
from pocketbert_bench import accuracy, results
from pocketbert_bench.compression.costs import fitted_networks
from studies import compression_costs
from studies.tables import compression


@pytest.mark.parametrize("preset", ["minilmv2_6l_384d", "tinybert_4l_312d"])
def test_other_structures_structures_are_not_fitted(preset: str) -> None:
    teacher = PRESETS[preset].config
    task = TaskConfig(kind="classification", labels=("a", "b"), pooling="mean")
    networks = fitted_networks(teacher, task, small_embedding=True)
    fitted = [network.config for network in networks]
    compared = compression_costs._other_structures(teacher, networks, 12)
    depths = [{config.replace(vocab_size=7) for config in configs} for configs in (fitted, compared)]
    assert len(set(compared)) == 12 and not depths[0] & depths[1]
    assert [config.embedding_projection == "factors" for config in compared] == 11 * [False] + [True]


@pytest.mark.parametrize(("predicted", "met"), [([101.5, 191.0, 303.0], "yes"), ([101.5, 189.0, 303.0], "no")])
def test_table_has_median_and_largest_error(predicted: list[float], met: str) -> None:
    fields: dict[str, Any] = {"description": "", "ours": "a", "peer": "b", "better": "lower"}
    samples = {"ours_samples": predicted, "peer_samples": [100.0, 200.0, 300.0]}
    ratio = results.ratio(name="net, dynamic_wi8, mean, 64 tokens", unit="us", **samples, **fields)
    row = compression.costs(results.result_file("", quick=False, ratios=[ratio], notes=["busy"])).splitlines()[2]
    largest = "4.5" if met == "yes" else "5.5"
    assert row == f"| net | dynamic_wi8 | mean | 64 tokens | 3 | 1.5 % | {largest} % | {met} |"


def test_table_has_both_models_of_each_seed() -> None:
    fields: dict[str, Any] = {
        "recipe": "dynamic_wi8",
        "task": "films",
        "split": "",
        "metric": "accuracy",
        "examples": 9,
    }
    records = [
        accuracy.record(label=f"seed {seed}", model=model, value=value, **fields)
        for seed, model, value in (
            (0, "student", 0.71),
            (0, "compress", 0.752),
            (4, "student", 0.7),
            (4, "compress", 0.6),
        )
    ]
    lines = compression.demo(results.result_file("", quick=False, accuracies=records, notes=["busy"])).splitlines()
    assert lines[0] == "| Seed | student | compress |"
    assert lines[2:4] == ["| seed 0 | 71.0 % | 75.2 % |", "| seed 4 | 70.0 % | 60.0 % |"]
