"""The tables of EfficientBERT's accuracy study."""

from __future__ import annotations

import json

from pocketbert_bench import accuracy as bench_accuracy
from pocketbert_bench import results
from studies.tables import efficientbert

WINNER = ["linear2_2(gelu(linear2_2(x)))", "tanh(linear1_1(gelu(linear1_1(x))))", "linear1_1(relu(linear1_1(x)))"]


def test_tables_read_scores_and_searches() -> None:
    rows = [("base", 0, 0.71), ("base", 1, 0.72), ("stage 1", 0, 0.74), ("stage 1", 1, 0.77), ("one stage", 0, 0.73)]
    scored = [
        bench_accuracy.record(
            label=f"{label}, seed {seed}", model="3x240", recipe="trained", task=task, split="dev", metric=metric,
            value=value, examples=9,
        )
        for task, metric, values in (
            ("sst2", "accuracy", rows),
            ("mrpc", "f1", [("base", 0, 0.81)]),
            ("squad", "f1", [("base", 0, 0.25)]),
            ("squad", "exact_match", [("base", 0, 0.125)]),
        )
        for label, seed, value in values
    ]  # fmt: skip
    content = {
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
    note = "searches: " + json.dumps(content)
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
