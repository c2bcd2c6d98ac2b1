"""Studies of `pocketbert compress`: structures, errors and tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pocketbert.configs import TaskConfig
from pocketbert.presets import PRESETS
from pocketbert_bench import accuracy, results
from pocketbert_bench.compression.costs import fitted_networks
from studies import compression_costs, compression_limits
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


def test_table_counts_runs_within_their_limits() -> None:
    used = {
        "names, small network, 0.2": {"latency": (2.0, 2.0), "latency again": (0.19, 0.201), "time": (82.0, 75.0)},
        "stsb, big, 0.6": {
            "latency": (3.1, 3.0),
            "latency again": (0.56, 0.6),
            "size": (4.0, 5.0),
            "memory": (60.0, 59.0),
            "time": (83.0, 75.0),
        },
    }
    ratios = [
        compression_limits._ratio(f"{name}, {what}", *pair)
        for name, pairs in used.items()
        for what, pair in pairs.items()
    ]
    assert [ratio.met for ratio in ratios] == [True, True, True, False, True, True, False, False]
    lines = compression.limits(results.result_file("", quick=False, ratios=ratios)).splitlines()
    assert lines[2] == "| names | small network | 0.2 | 100 % | 95 % | – | – | 109 % |"
    assert lines[3] == "| stsb | big | 0.6 | 103 % | 93 % | 80 % | 102 % | 111 % |"
    counts = [word for line in lines if line.startswith("- ") for word in line.split() if "/" in word]
    assert counts == ["1/2", "0/2", "1/1", "0/1", "1/2"]


def test_table_has_points_lost_and_time_of_each_seed() -> None:
    row: dict[str, Any] = {
        "task": "sst2", "limit_ms": 0.624, "latency_ms": [0.5, 0.4, 0.6], "teacher_score": 0.891, "score": 0.874,
        "structure": "layers=1-3-6,heads=12,neurons=768", "winner_method": "hsk", "candidates": 7, "commit": "abc",
    }  # fmt: skip
    rows = [
        {**row, "seed": 0, "points_lost": [1.72, 0.3, 3.1], "seconds": 3600.0, "training_seconds": 3100.0},
        {**row, "seed": 2, "points_lost": [0.92, -0.3, 2.1], "seconds": 3500.0, "training_seconds": 2730.0},
    ]
    notes = list(map(json.dumps, rows))
    lines = compression.hour(results.result_file("an hour", quick=False, notes=notes)).splitlines()
    assert lines[2] == "| 0 | 89.1 | 87.4 | 1.7 (0.3 to 3.1) | 0.62 | 0.50 | 3, 12, 768 | HSK | 7 | 3600 | 86 % |"
    assert lines[3].endswith("| 3500 | 78 % |")
    assert "- points lost: 1.32 as a mean over 2 of 3 seeds; the target is at most 1.5" in lines
    assert "- in training: at least 78 %; the target is 80 %" in lines


def test_cases_spread_their_limits() -> None:
    cases = compression_limits.all_cases()
    assert len({case.name for case in cases}) == 20 and {case.task for case in cases} == set(compression_limits.DATA)
    assert sum(case.sizes for case in cases) == 10 and sum(case.real for case in cases) == 6
    assert min(case.share for case in cases) == 0.15 and max(case.share for case in cases) == 0.8
