"""The tables of experiments' pages: a page has what the result file has, and the figures are computed by hand here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import mobilebert_tables
import result_tables
import tasks_tables
import tinybert_tables
from pocketbert_bench.experiments import mobilebert, tasks, tinybert


@pytest.mark.parametrize(
    ("block", "path", "table"), result_tables.PAGES, ids=lambda value: getattr(value, "stem", None)
)
def test_a_page_says_what_the_result_file_says(block: Any, path: Path, table: Any) -> None:
    assert block.read() == result_tables.text(path, table), "run: python tools/result_tables.py"


def test_an_experiment_without_a_file_has_not_been_run(tmp_path: Path) -> None:
    assert result_tables.text(tmp_path / "no.json", tinybert_tables.table) == "This has not been run yet.\n"


def made_up(value: float) -> dict[str, object]:
    return {"metrics": {"f1": value, "accuracy": 0.111}, "examples": 408}


def test_tinyberts_means_spreads_and_differences() -> None:
    done = {"constant/mrpc": made_up(0.312), "teacher/mrpc": made_up(0.9)}
    scores = {"general distillation, two steps": (0.7, 0.8, 0.84), "fine-tuned, no distillation": (0.6, 0.62)}
    for job in tinybert.jobs(Path("out"), Path("masked-lm")):
        for arm, values in scores.items():
            for seed, value in enumerate(values):
                if job.name == tinybert._cell_name("4x312", arm, "mrpc", seed):
                    done[job.name] = made_up(value)
    lines = tinybert_tables.table(tinybert.result(done)).splitlines()
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
    # Over the seeds that both have: 10 and 18.
    assert "| TinyBERT beats a student without distillation (table 1) | MRPC +14.0 ± 5.7 |" in lines
    assert "| none | commonest label | – | – | – | 31.2 | – |" in lines
    assert sum(line.endswith("| not measured |") for line in lines) == 3


def test_mobileberts_losses_tasks_and_quantized_scores() -> None:
    def student(arm: str, task: str, seed: int) -> str:
        return mobilebert.job_name(mobilebert.STUDENT_MODEL, arm, task, seed)

    def words(accuracy: float, nats: float) -> dict[str, Any]:
        return {"metrics": {"masked_lm_accuracy": accuracy, "exp(-masked-LM loss)": math.exp(-nats)}, "examples": 1920}

    def right(accuracy: float) -> dict[str, Any]:
        return {"metrics": {"accuracy": accuracy, "f1": 0.999}, "examples": 408}

    done = {
        "teacher": words(0.4, 3.5),
        mobilebert.job_name(mobilebert.TEACHER_MODEL, "teacher", "mrpc", 0): right(0.75),
        mobilebert.quantized_name(mobilebert.TEACHER_MODEL, "teacher", "mrpc", 0): right(0.735),
        student("joint", "enwiki2015", 0): words(0.2, 4.0),
        student("joint", "enwiki2015", 1): words(0.24, 5.0),
        student("joint", "attention", 1): {
            "metrics": {"exp(-attention divergence)": math.exp(-0.125)},
            "examples": 640,
        },
        student("joint", "mrpc", 0): right(0.7),
        student("joint", "mrpc", 1): right(0.66),
        mobilebert.quantized_name(mobilebert.STUDENT_MODEL, "joint", "mrpc", 0): right(0.69),
        student("auxiliary", "mrpc", 0): right(0.655),
    }
    lines = mobilebert_tables.table(mobilebert.content(done)).splitlines()
    # 4.5 ± sqrt(0.5² + 0.5²), 22 ± sqrt(2² + 2²) and 68 ± the same; the paper's row last.
    assert "| joint | 4.50 ± 0.71 | 22.0 ± 2.8 | 0.125 (1 of 2) | – | 68.0 ± 2.8 | 92.0 | 87.5 |" in lines
    assert "| teacher | 3.50 | 40.0 | – | – | 75.0 | 94.1 | 87.3 |" in lines
    assert "| progressive without PD | – | – | – | – | – | – | – |" in lines
    assert lines[-4 - len(mobilebert.ARMS) - 3].startswith("| teacher | – | – | – | 75.0 | 73.5 | -1.5 |")
    assert "| joint | – | – | – | 68.0 ± 2.8 | 69.0 (1 of 2) | -1.0 |" in lines
    assert "| paper: MobileBERT | 92.1 | 91.9 | -0.2 | 87.5 | 87.0 | -0.5 |" in lines
    joint = next(line for line in lines if line.startswith("| joint transfer is better than auxiliary"))
    assert joint.endswith("| MRPC +4.5 |") and sum(line.endswith("| not measured |") for line in lines) == 4


def test_mobileberts_page_describes_the_experiment() -> None:
    rows = mobilebert_tables.BLOCK.path.read_text("utf-8").splitlines()
    here = {row.split(" | ")[0].strip("| "): row.split(" | ")[-1].strip("| ") for row in rows if row.count(" | ") == 2}
    teacher, student = mobilebert.TEACHER, mobilebert.STUDENT
    assert here["teacher"] == f"{teacher.num_layers} layers, {teacher.hidden_size} between, {teacher.block_size} inside"
    shape = f"{student.num_layers} layers, {student.hidden_size} / {student.block_size}"
    assert here["student"] == f"{shape}, the same heads and feed-forwards"
    assert (student.num_attention_heads, student.num_feed_forwards) == (4, 4)
    assert here["examples"] == f"{mobilebert.MAX_LENGTH} tokens, {mobilebert.BATCH_SIZE} at a time"
    assert here["teacher's updates"] == f"{mobilebert.TEACHER_STEPS:,}"
    transfer, updates = mobilebert.TRANSFER_STEPS, mobilebert.UPDATES
    assert here["a student's updates"] == f"{transfer} and {updates - transfer}; {updates} where nothing is transferred"
    tasks = f"{mobilebert.SST2_EXAMPLES:,} sentences of SST-2, and MRPC; one rate, {mobilebert.TASK_PASSES} passes"
    assert here["tasks"] == tasks


def test_every_arm_has_a_row() -> None:
    table = mobilebert_tables.table(mobilebert.content({}))
    for arm in mobilebert.ARMS:
        # In one of the first two tables or both, and in the last.
        assert table.count(f"\n| {arm.label} |") >= 2


def test_what_int8_loses_is_held_against_points_or_answers() -> None:
    float32, int8 = (
        {"rte": {"accuracy": 0.7}, "squad": {"f1": 0.605}},
        {"rte": {"accuracy": 0.69}, "squad": {"f1": 0.599}},
    )
    counts = {"rte": (2490, 277), "squad": (4120, 853)}
    done = {
        f"scores/{task}": {
            "metrics": {"trained": float32[task], "dynamic_wi8": int8[task]},
            "training examples": learned,
            "examples": scored,
        }
        for task, (learned, scored) in counts.items()
    }
    # One point of 277 examples is 2.8 answers; 0.6 points of 853 are more than three (0.35) and than half a point.
    lines = tasks_tables.table(tasks.content(done)).splitlines()
    rte = next(line for line in lines if line.startswith("| RTE"))
    assert rte == "| RTE | 2,490 | 277 | accuracy | 70.00 | 69.00 | +1.00 | 1.08 | within |"
    squad = next(line for line in lines if line.startswith("| SQuAD 1.1"))
    assert squad == "| SQuAD 1.1 | 4,120 | 853 | f1 | 60.50 | 59.90 | +0.60 | 0.50 | **0.10 too much** |"
    assert next(line for line in lines if line.startswith("| CoLA")).count("–") == 6
