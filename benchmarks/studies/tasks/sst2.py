"""Accuracy of int8 on SST-2 with the 6x384 network: the float model against its bundles.

Fine-tunes on all of SST-2 for one epoch (about ten minutes on two idle cores; rerun to resume), exports, and scores the
model and the bundles on the development set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import GLUE, read_glue
from pocketbert.data.task_data import TaskData
from pocketbert.progress import log_info
from pocketbert.tasks.metrics import compute
from pocketbert.tasks.registry import text_task
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench import accuracy, results
from pocketbert_bench.quickstart_training import NETWORK
from pocketbert_export.bundles.bundle import MODEL_FILE
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.exporter import export
from studies.shared_data import shared_data
from studies.sweep import TRAINED

# Label → recipe and runtime of a bundle; all are scored on LiteRT.
BUNDLES = {
    "float32": ("float32", "litert"),
    "float16": ("float16", "litert"),
    "dynamic_wi8": ("dynamic_wi8", "litert"),
    "dynamic_wi8 for tflite-2.16": ("dynamic_wi8", "tflite-2.16"),
}
LENGTHS = (32, 64)
OPTIONS = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=6e-5, epochs=1, batch_size=32, max_length=64)
QUICK_EXAMPLES = 3200
# Percentage points of accuracy, dynamic_wi8 against float.
MOST_POINTS_LOST = 0.5


def train(quick: bool) -> Path:
    """Fine-tunes the network on SST-2, unless an earlier call did; returns its model directory."""
    folder = shared_data("glue")
    examples, dev = (read_glue("sst2", folder, split) for split in ("train", "dev"))
    if quick:
        examples = examples.select(range(QUICK_EXAMPLES))
    data = TaskData(task=GLUE["sst2"].task, train=examples, dev=dev, metrics=("accuracy",), main_metric="accuracy")
    return Path(finetune(minilm(), data, _output(quick) / "finetune", config=OPTIONS).model_directory)


def score(label: str, recipe: str, path: Path, answers: np.ndarray, dev: Examples) -> results.Accuracy:
    """Scores the predictions of the model or of a bundle in `path`, and logs the accuracy."""
    assert dev.labels is not None
    value = compute(("accuracy",), dev.labels, answers)["accuracy"]
    log_info(f"{label}: {100 * value:.2f} %")
    model_file = path / MODEL_FILE
    return accuracy.record(
        label=label,
        model=NETWORK,
        recipe=recipe,
        task=GLUE["sst2"].task.name,
        split="dev",
        metric="accuracy",
        value=value,
        examples=len(dev),
        model_file=model_file if model_file.exists() else None,
    )


def _output(quick: bool) -> Path:
    return Path("runs/studies/tasks", "sst2_quick" if quick else "sst2")


def run(quick: bool) -> dict[str, Any]:
    """Trains, exports and scores; returns the accuracies."""
    task = GLUE["sst2"].task
    dev = read_glue("sst2", shared_data("glue"), "dev")
    assert dev.labels is not None
    output = _output(quick)
    variants = {"model": train(quick)}
    for label, (recipe, runtime) in BUNDLES.items():
        variants[label] = output / label.replace(" ", "-")
        if not variants[label].exists():
            export(variants["model"], variants[label], recipe=recipe, lengths=LENGTHS, examples=dev, runtime=runtime)
    accuracies, right = [], {}
    for label, path in variants.items():
        answers = text_task(task).decide(open_predictor(path).logits(dev.texts))
        right[label] = int(np.sum(answers == dev.labels))
        accuracies.append(score(label, BUNDLES[label][0] if label in BUNDLES else TRAINED, path, answers, dev))
    lost = 100 * (right["model"] - right["dynamic_wi8"]) / len(dev)
    notes = [
        f"{right['model']} of {len(dev)} correct with the float model, {right['dynamic_wi8']} with dynamic_wi8: "
        f"{lost:.2f} points lost, {'at most' if lost <= MOST_POINTS_LOST else 'MORE THAN'} {MOST_POINTS_LOST}"
    ]
    return results.to_json(
        results.result_file("int8 against float on SST-2", quick=quick, accuracies=accuracies, notes=notes)
    )
