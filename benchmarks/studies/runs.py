"""Runs that several sweeps share: the most frequent label, fine-tuning to the end, and distillation on text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.data.assets import minilm
from pocketbert.data.readers.glue import GLUE
from studies.glue_examples import SST2_EXAMPLES, majority_label_metrics, task_data, task_examples
from studies.shared_data import shared_data
from studies.sweep import MAJORITY, NOBODY, SweepSubject

if TYPE_CHECKING:
    from pocketbert.model import Model
    from pocketbert.training.config import FinetuneConfig, RunConfig


def majority_subject(tasks: Sequence[str], sst2_examples: int = SST2_EXAMPLES) -> SweepSubject:
    """The baseline that always predicts the training examples' most frequent label."""
    # Scores have no most frequent label.
    classified = tuple(task for task in tasks if GLUE[task].task.labels)
    return SweepSubject(
        model=NOBODY, label=MAJORITY, call=score_majority, arguments=(sst2_examples,), runs={None: classified}
    )


def score_majority(sst2_examples: int, task: str, _seed: None, _output: Path) -> dict[str, Any]:
    """Scores the training examples' most frequent label on the development set."""
    train, dev = task_examples(task, sst2_examples)
    return {"metrics": majority_label_metrics(GLUE[task].metrics, train, dev), "examples": len(dev)}


def finetune_to_the_end(
    start: Model | Path,
    task: str,
    folder: Path,
    config: FinetuneConfig,
    seed: int,
    sst2_examples: int = SST2_EXAMPLES,
) -> dict[str, Any]:
    """Fine-tunes a model; returns its metrics on the development set after the last epoch, not the best one."""
    from pocketbert.training.config import RunConfig
    from pocketbert.training.finetune import finetune

    data = task_data(task, sst2_examples)
    finetune(start, data, folder, config=config, run=RunConfig(seed=seed))
    return {"metrics": last_metrics(folder, data.metrics), "examples": len(data.dev)}


def distil_on_text(student: Any, method: Any, folder: Path, run: RunConfig | None = None) -> dict[str, Any]:
    """Distils a student from the pretrained 6x384 network on `enwiki2015`; returns steps and seconds."""
    from pocketbert.data.task_data import TextData
    from pocketbert.distillation.run import distill
    from pocketbert.training.config import RunConfig

    text = TextData(shared_data("text/enwiki2015-train.txt.xz"))
    run = run or RunConfig(checkpoint_seconds=300)
    outcome = distill(student, text, folder, teacher=minilm(), method=method, run=run)
    return {"steps": outcome.steps, "seconds": outcome.seconds}


def last_metrics(run: Path, names: Sequence[str]) -> dict[str, float]:
    """Metrics of a run's last evaluation on the development examples, whichever epoch was the best."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if line["split"] == "dev"][-1]
    return {name: last[name] for name in names}
