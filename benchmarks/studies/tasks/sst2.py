"""Accuracy of int8 on SST-2 with the 6x384 network: the float model against its bundles.

Fine-tunes on all of SST-2 for one epoch (about ten minutes on two idle cores; rerun to resume), exports, and scores the
model and the bundles on the development set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pocketbert.data.assets import minilm
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench import results
from pocketbert_export.exporter import export
from studies.tasks.recipe_scores import MODEL, RecipeTask, score_file, task_data_of

# Label → recipe and runtime of a bundle; all are scored on LiteRT.
BUNDLES = {
    "float32": ("float32", "litert"),
    "float16": ("float16", "litert"),
    "dynamic_wi8": ("dynamic_wi8", "litert"),
    "dynamic_wi8 for tflite-2.16": ("dynamic_wi8", "tflite-2.16"),
}
LENGTHS = (32, 64)
OPTIONS = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=6e-5, epochs=1, batch_size=32, max_length=64)
EXAMPLES, QUICK_EXAMPLES = 67_349, 3200
# Percentage points of accuracy, dynamic_wi8 against float.
MOST_POINTS_LOST = 0.5


def run(quick: bool) -> dict[str, Any]:
    """Trains, exports and scores, unless an earlier call did the first two; returns the accuracies."""
    task = RecipeTask(name="sst2", options=OPTIONS, lengths=LENGTHS, examples=QUICK_EXAMPLES if quick else EXAMPLES)
    data, output = task_data_of(task), Path("runs/studies/tasks", "sst2_quick" if quick else "sst2")
    model = Path(finetune(minilm(), data, output / "finetune", config=OPTIONS).model_directory)
    accuracies = [score_file(task, MODEL, model, data)]
    for label, (recipe, runtime) in BUNDLES.items():
        bundle = output / label.replace(" ", "-")
        if not bundle.exists():
            export(model, bundle, recipe=recipe, lengths=LENGTHS, examples=data.dev, runtime=runtime)
        accuracies.append(score_file(task, label, bundle, data, recipe))
    right = {record.label: round(record.value * record.examples) for record in accuracies}
    lost = 100 * (right[MODEL] - right["dynamic_wi8"]) / len(data.dev)
    notes = [
        f"{right[MODEL]} of {len(data.dev)} correct with the float model, {right['dynamic_wi8']} with dynamic_wi8: "
        f"{lost:.2f} points lost, {'at most' if lost <= MOST_POINTS_LOST else 'MORE THAN'} {MOST_POINTS_LOST}"
    ]
    return results.to_json(
        results.result_file("int8 against float on SST-2", quick=quick, accuracies=accuracies, notes=notes)
    )
