"""EfficientBERT's accuracy study: its networks, the order of its jobs, and the page's tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pocketbert.checkpoints.supernet import inheritance_problems, supernet_config
from pocketbert_bench import accuracy as bench_accuracy
from pocketbert_bench import results
from studies.efficientbert import accuracy, networks, training
from studies.tables import efficientbert

# The results that architectures depend on.
WINNER = ["linear2_2(gelu(linear2_2(x)))", "tanh(linear1_1(gelu(linear1_1(x))))", "linear1_1(relu(linear1_1(x)))"]


def test_seeds_and_tasks_differ_by_network() -> None:
    jobs = {job.name for job in accuracy.SWEEP.jobs(Path("out"))}
    assert {name for name in jobs if name.startswith("3x240/stage-2/")} == {
        "3x240/stage-2/" + name
        for name in ("sst2-0", "cola-0", "stsb-0", "mrpc-0", "sst2-1", "mrpc-1", "sst2-2", "mrpc-2")
    }
    assert {name for name in jobs if name.endswith("squad-0")} == {"3x240/base/squad-0", "3x240/stage-3/squad-0"}
    assert "3x240/one-stage-random/mrpc-0" in jobs and "3x240/one-stage-random/mrpc-1" not in jobs
    # Networks with the weights of all tasks learn from no text.
    assert "text/stage-3-weights-of-all-tasks" not in jobs


def write_results(output: Path) -> None:
    for name, result in {
        **{networks.search_name(search): {"winners": dict.fromkeys("123", WINNER)} for search in networks.SEARCHES},
        networks.LATENCY: {"inner size": 348},
    }.items():
        path = output / "jobs" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result), encoding="utf-8")


def test_winners_start_from_one_supernet(tmp_path: Path) -> None:
    write_results(tmp_path)
    frozen = supernet_config(networks.BASE)
    starts = {network.label: network.start for network in networks.NETWORKS}
    # Table 5 compares architectures: the weights of all its networks come from the same supernet.
    assert {starts[each.label] for each in networks.MAIN} == {"supernet"}
    for network in networks.NETWORKS:
        problems = inheritance_problems(frozen, networks.network_config(network, tmp_path))
        assert not problems or network.start == "random", (network.label, problems)


def test_networks_differ_as_their_labels_say(tmp_path: Path) -> None:
    write_results(tmp_path)
    configs = {network.label: networks.network_config(network, tmp_path) for network in networks.NETWORKS}
    slow = configs["base as slow as stage 3, random weights"]
    assert slow == configs["base"].replace(intermediate_size=348)
    plain, searched = configs["BERT's layers"], configs["BERT's layers, stage 3"]
    assert plain.feedforward is None and not plain.trigram and plain.intermediate_size == 4 * plain.hidden_size
    assert searched.feedforward is not None and list(searched.feedforward.expressions) == WINNER
    assert searched.replace(feedforward=None) == plain and searched.feedforward.mismatch == "pad"


def test_nearest_inner_width_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_results(tmp_path)

    def milliseconds(configs: list) -> list[float]:
        # The winner of stage 3 costs as much as an inner width of 341.
        return [
            0.341 if config.feedforward.expressions == tuple(WINNER) else config.intermediate_size / 1000
            for config in configs
        ]

    monkeypatch.setattr(training, "_milliseconds", milliseconds)
    monkeypatch.setattr(networks, "NETWORKS", [networks.HAND_DESIGNED, networks.WINNERS[3], networks.EQUAL_LATENCY])
    assert training.measure_latency(tmp_path) == {
        "inner size": 336,
        "ms": {"base": 0.24, "stage 3": 0.341, "base as slow as stage 3, random weights": 0.336},
    }


def test_hand_designed_networks_weigh_the_same() -> None:
    base, stacked = (
        training.parameters(networks.searched_config((network.expression,) * 3))
        for network in (networks.HAND_DESIGNED, networks.STACKED)
    )
    assert stacked == pytest.approx(base, rel=networks.TOLERANCE)


def test_equal_numbers_of_candidates_train() -> None:
    trained = [
        sum(count for stage, count in zip(search.stages, search.candidates, strict=True) if stage != 3)
        for search in networks.SEARCHES
    ]
    assert len(set(trained)) == 1


def test_tables_read_scores_and_searches() -> None:
    made = [("base", 0, 0.71), ("base", 1, 0.72), ("stage 1", 0, 0.74), ("stage 1", 1, 0.77), ("one stage", 0, 0.73)]
    scored = [
        bench_accuracy.record(
            label=f"{label}, seed {seed}", model="3x240", recipe="trained", task=task, split="dev", metric=metric,
            value=value, examples=9,
        )
        for task, metric, values in (
            ("sst2", "accuracy", made),
            ("mrpc", "f1", [("base", 0, 0.81)]),
            ("squad", "f1", [("base", 0, 0.25)]),
            ("squad", "exact_match", [("base", 0, 0.125)]),
        )
        for label, seed, value in values
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
        "text/stage-3": {"genotype": WINNER, "parameters": 5100000, "losses": [[20, 3.5], [40, 1.25]]},
        "text/stage-3-random-weights": {"genotype": WINNER, "parameters": 5100000, "losses": [[20, 9.5], [40, 4.75]]},
        "latency": {"inner size": 348, "ms": {"stage 3": 1.5, "base": 1.25}},
        "surfaces": {"teacher": {"diagonal": [-1.0, 0.0, 0.5], "curved share": 0.125}},
    }
    note = f"{accuracy.SEARCHES_NOTE}: " + json.dumps(kept)
    text = efficientbert.text(results.result_file("made up", quick=False, accuracies=scored, notes=[note]))
    assert "| base | 5,000,000 | 1.25 | 71.5 ± 0.7 (2 of 3) | – | – | 81.0 (1 of 3) |" in text
    assert "| one stage | – | – | 73.0 | – | – | – |" in text
    assert "| stage 3, weights of all tasks | 5,100,000 | – |" in text
    assert "inner width of 348" in text
    # Figure 1 needs both tasks.
    assert (
        "| Network (figure 1) | ms | Mean of SST-2 and MRPC, seed 0 |\n|---|---:|---:|\n| base | 1.25 | 76.0 |\n\n"
        in text
    )
    assert "| three stages | 1 | 3 | 70.0 | 60.0 |" in text and "| three stages | 3 | 1 | 25.0 | 25.0 |" in text
    assert "25.0 → 50.0" in text and "(figure 3): -0.25" in text
    assert "Loss at the end: 1.25 with supernet's weights, 4.75 with random weights." in text
    assert "| base | 12.5 | 25.0 |\n| stage 3 | – | – |" in text
    assert "(figure 5): teacher 12.5 %." in text and text.count(".svg)") == 2
    assert "| stage 1 beats the base (table 5) | SST-2 +4.0 ± 1.4 |" in text
    assert "| stage 3 beats stage 2 (table 5) | not measured |" in text
    assert text.endswith("Dev examples: SST-2 9, MRPC 9, SQuAD 1.1 9.\n")
