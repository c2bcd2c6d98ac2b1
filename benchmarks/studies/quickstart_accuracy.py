"""Accuracy of the quickstart's teacher and student over three seeds.

Trains as `pocketbert quickstart --full` does and scores on the dev split, a tenth of the Rotten Tomatoes sentences.
Run it with `python -m studies quickstart_accuracy`; it takes about twenty minutes on two cores.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from pocketbert.data.assets import minilm
from pocketbert.training.config import DistillResult, FinetuneResult
from pocketbert.training.run_folder import run_seeds
from pocketbert_bench import accuracy, results
from pocketbert_bench.quickstart import (
    METRIC,
    NETWORK,
    STUDENT_NETWORK,
    TASK,
    sentences,
    train_student,
    train_teacher,
)

SEEDS = (0, 1, 2)
LEAST_ACCURACY = 0.81
_QUICK_EXAMPLES = 1920


def run(quick: bool) -> dict[str, Any]:
    """Trains a teacher and its student for each seed; returns the accuracies with their means."""
    data = sentences()
    if quick:
        data = dataclasses.replace(data, train=data.train.select(range(_QUICK_EXAMPLES)))
    network = minilm()
    with tempfile.TemporaryDirectory() as name:
        teachers = Path(name, "teachers")

        def teach(seed: int, folder: Path) -> FinetuneResult:
            return train_teacher(network, data, folder, seed=seed)

        def learn(seed: int, folder: Path) -> DistillResult:
            return train_student(teachers / folder.name / "model", data, folder, seed=seed)

        summaries = {
            NETWORK: run_seeds(SEEDS, teachers, teach),
            STUDENT_NETWORK: run_seeds(SEEDS, Path(name, "students"), learn),
        }
    accuracies: list[results.Accuracy] = []
    notes: list[str] = []
    for model, summary in summaries.items():
        accuracies += [
            accuracy.record(
                label=f"seed {run['seed']}",
                model=model,
                recipe="trained",
                task=TASK.name,
                split="dev split, a tenth",
                metric=METRIC,
                value=run["metrics"][METRIC],
                examples=len(data.dev),
            )
            for run in summary["runs"]
        ]
        spread = summary["metrics"][METRIC]
        notes.append(
            f"{model}: mean of {len(SEEDS)} seeds {spread['mean']:.4f}, "
            f"standard deviation {spread['standard_deviation']:.4f}"
        )
    taught = accuracies[0].value
    notes.append(
        f"{NETWORK}: seed {SEEDS[0]}, which the quickstart uses: {taught:.4f}, "
        f"{'at least' if taught >= LEAST_ACCURACY else 'below'} {LEAST_ACCURACY}"
    )
    return results.to_json(
        results.result_file("quickstart accuracy over seeds", quick=quick, accuracies=accuracies, notes=notes)
    )
