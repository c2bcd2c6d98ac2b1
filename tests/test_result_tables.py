"""The tables of experiments' pages: a page has what the result file has, and the figures are computed by hand here."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

import mobilebert_tables
import result_tables
import tasks_tables
import tinybert_tables
from pocketbert_bench.experiments import glue_examples, mobilebert, mobilebert_setting, tasks, tinybert


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

    def given(split: str = "held-out articles", recipe: str = "trained", **metrics: float) -> dict[str, Any]:
        return {"split": split, "recipe": recipe, "metrics": metrics, "examples": 408}

    def words(accuracy: float, nats: float) -> dict[str, Any]:
        named = {"masked_lm_accuracy": accuracy, "next_sentence_accuracy": 0.625}
        return {"scores": [given(**named, **{"exp(-masked-LM loss)": math.exp(-nats)})]}

    def right(accuracy: float, *, int8: float | None = None, apart: float | None = None) -> dict[str, Any]:
        scores = [given("development set", accuracy=accuracy, f1=0.999)]
        if int8 is not None:
            scores.append(given("development set", "dynamic_wi8", accuracy=int8, f1=0.999))
        if apart is not None:
            scores.append(given("4000 training sentences kept apart", accuracy=apart))
        return {"scores": scores}

    done = {
        "constant/enwiki2015": words(0.056, 6.9),
        "constant/mrpc": right(0.684),
        "teacher": words(0.4, 3.5),
        mobilebert.job_name(mobilebert.TEACHER_MODEL, "teacher", "mrpc", 0): right(0.75, int8=0.735),
        student("joint", "enwiki2015", 0): words(0.2, 4.0),
        student("joint", "enwiki2015", 1): words(0.24, 5.0),
        student("joint", "attention", 1): {"scores": [given(**{"exp(-attention divergence)": math.exp(-0.125)})]},
        student("joint", "mrpc", 0): right(0.7, int8=0.69),
        student("joint", "mrpc", 1): right(0.66),
        student("joint", "sst2", 0): right(0.8, apart=0.85),
        student("auxiliary", "mrpc", 0): right(0.655),
        student("auxiliary", "mrpc", 1): right(0.655),
    }
    content = mobilebert.content(done)
    assert mobilebert_tables.table(content).count("failed") == 0
    failed = {student("PD", "enwiki2015", 1): "TrainingFailed: not finite", student("joint", "attention", 0): "E: x"}
    content = dataclasses.replace(content, notes=(*content.notes, f"failed: {json.dumps(failed)}"))
    lines = mobilebert_tables.table(content).splitlines()
    # 4.5 ± sqrt(0.5² + 0.5²), 22 ± sqrt(2² + 2²) and 68 ± the same; the paper's row last.
    assert (
        "| joint | 4.50 ± 0.71 | 22.0 ± 2.8 | 62.5 ± 0.0 | 0.125 (1 of 2, 1 failed) | 80.0 (1 of 2) | 85.0 (1 of 2) "
        "| 68.0 ± 2.8 | 92.0 | 87.5 |"
    ) in lines
    assert "| teacher | 3.50 | 40.0 | 62.5 | – | – | – | 75.0 | 94.1 | 87.3 |" in lines
    assert "| commonest word or label | 6.90 | 5.6 | 62.5 | – | – | – | 68.4 | – | – |" in lines
    assert "| progressive without PD | – | – | – | – | – | – | – | – | – |" in lines
    # Without its student no task was begun, so that all of the row says why.
    assert (
        lines.count("| PD | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | – | – |") == 1
    )
    assert "| PD | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | 1 failed | 91.7 | 85.5 |" in lines
    assert f"- `{student('PD', 'enwiki2015', 1)}`: TrainingFailed: not finite" in lines
    assert "| teacher | – | – | – | – | – | – | 75.0 | 73.5 | -1.5 |" in lines
    assert "| joint | 80.0 (1 of 2) | – | – | 85.0 (1 of 2) | – | – | 68.0 ± 2.8 | 69.0 (1 of 2) | -1.0 |" in lines
    assert "| paper: MobileBERT | 92.1 | 91.9 | -0.2 | – | – | – | 87.5 | 87.0 | -0.5 |" in lines
    question = next(line for line in lines if line.startswith("| is joint transfer better than auxiliary?"))
    # 4.5 and 0.5.
    assert question.endswith("| – | – | – | +2.5 ± 2.8 |")
    assert sum(line.endswith("| – | – | – | – |") and "? (" in line for line in lines) == 9


def test_mobileberts_page_describes_the_experiment() -> None:
    text = mobilebert_tables.BLOCK.path.read_text("utf-8")
    rows = text.splitlines()
    here = {row.split(" | ")[0].strip("| "): row.split(" | ")[-1].strip("| ") for row in rows if row.count(" | ") == 2}
    teacher, student = mobilebert_setting.TEACHER, mobilebert_setting.STUDENT
    assert here["teacher"] == f"{teacher.num_layers} layers, {teacher.hidden_size} between, {teacher.block_size} inside"
    shape = f"{student.num_layers} layers, {student.hidden_size} / {student.block_size}"
    assert here["student"] == f"{shape}, the same heads and feed-forwards"
    assert (student.num_attention_heads, student.num_feed_forwards) == (4, 4)
    setting = mobilebert_setting
    assert here["examples"] == f"{setting.PRETRAINING_LENGTH} tokens, {setting.BATCH_SIZE} at a time"
    assert here["teacher's updates"] == f"{setting.TEACHER_STEPS:,}"
    assert here["teacher's training"].startswith("AdamW, no dropout")
    assert setting.teacher_options().optimizer == "adamw" and teacher.hidden_dropout == teacher.attention_dropout == 0
    transfer, updates = setting.TRANSFER_STEPS, setting.UPDATES
    assert here["a student's updates"] == f"{transfer} and {updates - transfer}; {updates:,} where there is one stage"
    tasks = f"{glue_examples.SST2_EXAMPLES:,} sentences of SST-2, and MRPC; one rate, {setting.TASK_PASSES} passes"
    assert here["tasks"] == tasks
    assert here["quantized"] == f"at {setting.TASK_LENGTH} tokens"
    assert f"{glue_examples.APART:,} other sentences" in text and f"{glue_examples.CHOOSING:,} other sentences" in text
    assert setting.TEACHER_STEPS == 5 * setting.UPDATES and "five times as many updates" in text
    # sqrt(0.7 · 0.3 / n), as the page has it.
    errors = [round(100 * math.sqrt(0.7 * 0.3 / count), 1) for count in (872, 408, glue_examples.APART)]
    assert errors == [1.6, 2.3, 0.7]
    assert all(f"{error} " in text for error in errors)


def test_every_arm_has_a_row() -> None:
    table = mobilebert_tables.table(mobilebert.content({}))
    for arm in mobilebert_setting.ARMS:
        # In one of the first two tables or both, and in the last.
        assert table.count(f"\n| {arm.label} |") >= 2


def test_int8_may_lose_half_a_point_or_three_right_answers() -> None:
    scores = {
        # 3 of 277 answers, more than a point; 4 of them.
        "rte": (277, {"accuracy": 200 / 277}, {"accuracy": 197 / 277}),
        "wnli": (277, {"accuracy": 200 / 277}, {"accuracy": 196 / 277}),
        # An answer may be worth 0.6 points of F1: what counts is how many there are.
        "mrpc": (408, {"accuracy": 300 / 408, "f1": 0.8}, {"accuracy": 297 / 408, "f1": 0.782}),
        # Many answers, and less than half a point.
        "squad2": (1506, {"exact_match": 0.5, "f1": 0.605}, {"exact_match": 0.496, "f1": 0.6}),
        "squad": (853, {"exact_match": 400 / 853, "f1": 0.605}, {"exact_match": 396 / 853, "f1": 0.599}),
        # Which nothing counts.
        "stsb": (1500, {"spearman": 0.8}, {"spearman": 0.794}),
        "xnli": (498, {"accuracy": 0.5}, {"accuracy": 0.5 + 2 / 498}),
    }
    done = {
        f"scores/{task}": {
            "metrics": {"trained": float32, "dynamic_wi8": int8},
            "training examples": 2490,
            "examples": count,
        }
        for task, (count, float32, int8) in scores.items()
    }
    done |= {
        f"constant/{task}": {"metrics": {metric: value}, "examples": scores[task][0]}
        for task, metric, value in (("rte", "accuracy", 0.5), ("squad2", "f1", 0.605), ("xnli", "accuracy", 0.499))
    }
    lines = tasks_tables.table(tasks.content(done)).splitlines()
    assert "| RTE | 2,490 | 277 | accuracy | 50.00 | 72.20 | 71.12 | +1.08 | +3 | within |" in lines
    assert "| WNLI | 2,490 | 277 | accuracy | – | 72.20 | 70.76 | +1.44 | +4 | **beyond** |" in lines
    assert "| MRPC | 2,490 | 408 | f1 | – | 80.00 | 78.20 | +1.80 | +3 | within |" in lines
    assert "| SQuAD 2.0 | 2,490 | 1,506 | f1 | 60.50 | 60.50 | 60.00 | +0.50 | +6 | **nothing learned** |" in lines
    assert "| SQuAD 1.1 | 2,490 | 853 | f1 | – | 60.50 | 59.90 | +0.60 | +4 | **beyond** |" in lines
    assert "| STS-B | 2,490 | 1,500 | spearman | – | 80.00 | 79.40 | +0.60 | – | **beyond** |" in lines
    assert "| XNLI, English | 2,490 | 498 | accuracy | 49.90 | 50.00 | 50.40 | -0.40 | -2 | within |" in lines
    assert next(line for line in lines if line.startswith("| CoLA")).count("–") == 7
