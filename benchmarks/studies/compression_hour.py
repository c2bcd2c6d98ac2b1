"""An hour for 20,000 sentences of SST-2: how many points does `pocketbert compress` lose at half the latency?

Each call compresses with the first seed that the result file lacks, for an hour, the teacher's training included.
Call it three times, or again to resume. The final split is SST-2's dev set, which neither training nor choice reads.
Delete the result file to begin again. Close other programs first.

    python -m studies compression_hour
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pocketbert as pb
from pocketbert.data.task_data import TaskData
from pocketbert.files import write_json
from pocketbert_bench import machine, results
from pocketbert_bench.compression.candidates import predicted_latency_ms
from studies.bake_off import numbers, rows_of
from studies.glue_examples import draw, task_data, task_examples
from studies.runner import RESULTS

RESULT, SEEDS, MINUTES = "compression_hour", (0, 1, 2), 60.0
LENGTH, SHARE = 32, 0.5
MOST_LOST, LEAST_TRAINING = 1.5, 0.8
_TRAIN, _DEV = 20_000, 3_000
_QUICK_MINUTES = 2.0
_FOLDER = Path("runs") / RESULT


def run(quick: bool) -> dict[str, Any]:
    """Compresses once; returns the rows of all seeds so far."""
    path = RESULTS / f"{RESULT}.json"
    rows = rows_of(results.read(path)) if path.exists() and not quick else []
    missing = [seed for seed in SEEDS if seed not in [row["seed"] for row in rows]]
    with tempfile.TemporaryDirectory() as temporary:
        folder, minutes = (Path(temporary), _QUICK_MINUTES) if quick else (_FOLDER, MINUTES)
        rows += [_compressed(seed, folder / f"seed-{seed}", minutes) for seed in missing[:1]]
    notes = [json.dumps(row, sort_keys=True) for row in sorted(rows, key=lambda row: row["seed"])]
    return results.to_json(results.result_file("an hour for SST-2", quick=quick, notes=notes))


def data() -> TaskData:
    """Training sentences, others that choose, and SST-2's dev set."""
    drawn, test = task_examples("sst2", _TRAIN + _DEV)
    train, dev = draw(drawn, 0, _TRAIN), draw(drawn, _TRAIN, _DEV)
    return dataclasses.replace(task_data("sst2"), train=train, dev=dev, test=test)


def _compressed(seed: int, output: Path, minutes: float) -> dict[str, Any]:
    sentences, record = data(), output.with_suffix(".json")
    if record.exists():
        limit = json.loads(record.read_text(encoding="utf-8"))
    else:
        limit = SHARE * predicted_latency_ms(None, sentences, LENGTH)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_json(record, limit)
    limits = pb.Constraints(max_latency_ms=limit, length=LENGTH)
    result = pb.compress(None, sentences, output, constraints=limits, minutes=minutes, seed=seed)
    named = {"seed": seed, "minutes": minutes, "limit_ms": limit, "commit": machine.commit(), "task": "sst2"}
    return {**numbers(result, output), **named}
