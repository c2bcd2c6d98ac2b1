"""The table of TinyBERT's results: the page has what the result file has, and the figures are computed by hand here."""

from __future__ import annotations

from pathlib import Path

import result_tables
from pocketbert_bench import results
from pocketbert_bench.experiments import tinybert


def test_the_page_says_what_the_result_file_says() -> None:
    table = result_tables.table(results.read(tinybert.EXPERIMENT.result))
    assert result_tables.BLOCK.read() == table, "run: python tools/result_tables.py"


def test_means_spreads_and_differences() -> None:
    def made_up(value: float) -> dict[str, object]:
        return {"metrics": {"f1": value, "accuracy": 0.111}, "examples": 408}

    done = {"teacher/mrpc": made_up(0.9)}
    scores = {"general distillation, two steps": (0.7, 0.8, 0.84), "fine-tuned, no distillation": (0.6, 0.62)}
    for job in tinybert.jobs(Path("out"), Path("masked-lm")):
        for arm, values in scores.items():
            for seed, value in enumerate(values):
                if job.name == tinybert._cell_name("4x312", arm, "mrpc", seed):
                    done[job.name] = made_up(value)
    lines = result_tables.table(tinybert.result(done)).splitlines()
    assert lines[0].split(" | ")[2:] == [
        "SST-2 (accuracy)",
        "CoLA (matthews)",
        "STS-B (spearman)",
        "MRPC (f1)",
        "RTE (accuracy) |",
    ]
    # 78 ± sqrt((8² + 2² + 6²) / 2), and 61 ± sqrt((1² + 1²) / 1).
    assert "| 4x312 | general distillation, two steps | – | – | – | 78.0 ± 7.2 | – |" in lines
    assert "| 4x312 | fine-tuned, no distillation | – | – | – | 61.0 ± 1.4 (2 of 3) | – |" in lines
    assert "| 6x384 (all-MiniLM-L6-v2) | teacher | – | – | – | 90.0 | – |" in lines
    assert "| TinyBERT beats a student without distillation (table 1) | MRPC +17.0 |" in lines
    assert sum(line.endswith("| not measured |") for line in lines) == 3
