"""EfficientBERT's accuracy study: its networks, the order of its jobs, and the page's tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketbert_bench import accuracy as bench_accuracy
from pocketbert_bench import results
from studies.efficientbert import accuracy, tables


def test_jobs_follow_what_they_need() -> None:
    made: set[str] = set()
    for job in accuracy.jobs(Path("out")):
        assert job.name not in made and made.issuperset(job.needs)
        made.add(job.name)
    assert {name for name in made if name.startswith("student/3x240/stage-2/cola-")} == {
        f"student/3x240/stage-2/cola-{seed}" for seed in range(3)
    }
    assert "student/3x240/one-stage-random/mrpc-0" in made and "student/3x240/one-stage-random/mrpc-1" not in made


def test_hand_designed_networks_weigh_the_same() -> None:
    from pocketbert.search.constraints import ParameterConstraint

    cost = ParameterConstraint(limit=float("inf")).cost
    base, stacked = (
        cost(accuracy.network_config((network.expression,) * 3))
        for network in (accuracy.HAND_DESIGNED, accuracy.STACKED)
    )
    assert stacked == pytest.approx(base, rel=accuracy.TOLERANCE)


def test_equal_numbers_of_candidates_train() -> None:
    trained = [
        sum(count for stage, count in zip(each.stages, each.candidates, strict=True) if stage != 3)
        for each in accuracy.SEARCHES
    ]
    assert len(set(trained)) == 1


def test_tables_read_scores_and_searches() -> None:
    made = [("base", 0, 0.71), ("base", 1, 0.72), ("stage 1", 0, 0.74), ("stage 1", 1, 0.77), ("one stage", 0, 0.73)]
    scored = [
        bench_accuracy.record(
            label=f"{label}, seed {seed}", model="3x240", recipe="trained", task="sst2", split="dev", metric="accuracy",
            value=value, examples=9,
        )
        for label, seed, value in made
    ]  # fmt: skip
    kept = {
        "search/three-stages": {
            "winners": {},
            "scores": {"1": [0.5, None, 0.7, 0.6], "3": [0.25]},
            "retrained": [{"stage": 3, "index": 0, "score": 0.25, "retrained": 0.5}],
            "kendall_tau": -0.25,
            "seconds": 1.0,
        },
        "text/base": {"genotype": ["linear1_1(gelu(linear1_1(x)))"] * 3, "parameters": 5000000, "seconds": 1.0},
    }
    note = accuracy.SEARCHES_NOTE + json.dumps(kept)
    text = tables.table(results.result_file("made up", quick=False, accuracies=scored, notes=[note]))
    assert "| base | 5,000,000 | 71.5 ± 0.7 (2 of 3) | – | – | – |" in text
    assert "| one stage | – | 73.0 | – | – | – |" in text
    assert "| three stages | 1 | 3 | 70.0 | 60.0 |" in text and "| three stages | 3 | 1 | 25.0 | 25.0 |" in text
    assert "25.0 → 50.0" in text and "(figure 3): -0.25" in text
    assert "| stage 1 beats the base (table 5) | SST-2 +4.0 ± 1.4 |" in text


def test_committed_scores_spare_their_searches() -> None:
    every = [job.name for job in accuracy.jobs(Path())]
    done = {name: {"metrics": {"accuracy": 0.5}, "examples": 9} for name in every if name.startswith("student/")}
    done |= {name: {"seconds": 1.0} for name in every if name.startswith(("search/", "text/"))}
    found = accuracy.scored(accuracy.result(done))
    # Scores of teachers and of the majority have no seed, so these jobs run again.
    assert {name.split("/")[0] for name in set(every) - set(found)} == {"constant", "teacher"}
    done.pop("student/3x240/stage-3/mrpc-1")
    found = accuracy.scored(accuracy.result(done))
    assert "text/stage-3" not in found and "search/three-stages" not in found and "search/one-stage" in found
