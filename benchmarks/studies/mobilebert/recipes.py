"""Accuracy of every recipe but `mixed` on a scaled-down MobileBERT with NoNorm, fine-tuned on SST-2.

No fine-tuned MobileBERT was available. The network is the student of `mobilebert.accuracy` (6 layers, 256 / 64),
trained from random weights on a part of SST-2's sentences. It therefore scores far below MobileBERT; what a recipe
loses is the result. The gate accepts any outputs here, because the study measures this loss. Sentences of the training
set that taught nothing are scored too: 872 sentences have a standard error of more than a point.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.glue import GLUE, read_glue
from pocketbert.data.task_data import TaskData
from pocketbert.model import from_preset, from_pretrained
from pocketbert.progress import log_info
from pocketbert.tasks.metrics import compute
from pocketbert.tasks.registry import text_task
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.published_grids import PUBLISHED_HEAD
from pocketbert_bench import accuracy, results
from pocketbert_export.bundle import MODEL_FILE
from pocketbert_export.exporter import export
from pocketbert_export.predictors import open_predictor
from pocketbert_export.recipes import RECIPES
from studies.experiment import TRAINED
from studies.mobilebert.recipe import STUDENT
from studies.quantized import any_outputs
from studies.shared_data import shared_data

NETWORK = "MobileBERT 6x256/64"
TASK = GLUE["sst2"].task
# Sentences that teach, choose the epoch, and are scored besides the development set.
TRAINING, CHOOSING, APART = 20_000, 1_000, 2_000
QUICK_TRAINING = 640
OPTIONS = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-3, epochs=4, batch_size=32, max_length=64)
LENGTHS = (32, 64)
# Mixed files lose what their limit allows.
MEASURED = tuple(recipe for recipe in RECIPES if recipe != "mixed")
# Percentage points of accuracy that `static_wi8_ai8_full` may lose.
MOST_POINTS_LOST = 1.0


def run(quick: bool) -> dict[str, Any]:
    """Trains, exports and scores; returns the content of a result file."""
    output = Path("runs/studies/mobilebert", "recipes_quick" if quick else "recipes")
    train, choosing, scored = _examples(quick)
    variants = {TRAINED: _train(train, choosing, output / "finetune")}
    for recipe in MEASURED:
        variants[recipe] = output / recipe
        if not variants[recipe].exists():
            export(
                variants[TRAINED],
                variants[recipe],
                recipe=recipe,
                lengths=LENGTHS,
                examples=scored["dev"],
                bounds=any_outputs(),
                calibration=None if RECIPES[recipe].calibration == "none" else train,
            )
    accuracies, notes = [], []
    for split, examples in scored.items():
        assert examples.labels is not None
        right: dict[str, int] = {}
        reference: np.ndarray | None = None
        for recipe, path in variants.items():
            logits = open_predictor(path).logits(examples.texts)
            answers = text_task(TASK).decide(logits)
            reference = logits if reference is None else reference
            right[recipe] = int(np.sum(answers == examples.labels))
            accuracies.append(_record(recipe, split, path, compute(("accuracy",), examples.labels, answers), examples))
            if recipe != TRAINED:
                rms = np.sqrt(np.mean(np.square(logits - reference)) / np.mean(np.square(reference)))
                equal = np.mean(answers == text_task(TASK).decide(reference))
                notes.append(f"{split}, {recipe}: RMS difference {rms:.3f}, {100 * equal:.1f} % equal labels")
                log_info(notes[-1])
        lost = 100 * (right[TRAINED] - right["static_wi8_ai8_full"]) / len(examples)
        verdict = "at most" if lost <= MOST_POINTS_LOST else "MORE THAN"
        notes.append(f"{split}, static_wi8_ai8_full: {lost:.2f} points lost, {verdict} {MOST_POINTS_LOST}")
    return results.to_json(
        results.result_file("recipes of a scaled-down MobileBERT", quick=quick, accuracies=accuracies, notes=notes)
    )


def _examples(quick: bool) -> tuple[Examples, Examples, dict[str, Examples]]:
    """Sentences that teach, choose the epoch, and are scored, by split; all disjoint."""
    every, dev = (read_glue("sst2", shared_data("glue"), split) for split in ("train", "dev"))
    order = np.random.default_rng(0).permutation(len(every))
    ends = np.cumsum([QUICK_TRAINING if quick else TRAINING, CHOOSING, 100 if quick else APART])
    train, choosing, apart = (every.select(np.sort(part)) for part in np.split(order, ends)[:3])
    return train, choosing, {"dev": dev, f"{len(apart)} training sentences kept apart": apart}


def _train(train: Examples, choosing: Examples, output: Path) -> Path:
    """Fine-tunes, unless an earlier call did; returns the model directory."""
    model = from_preset(STUDENT, TASK, tokenizer=from_pretrained(minilm()).tokenizer, seed=0)
    data = TaskData(task=TASK, train=train, dev=choosing, metrics=("accuracy",), main_metric="accuracy")
    return Path(finetune(model, data, output, config=OPTIONS, run=RunConfig(seed=0)).model_directory)


def _record(recipe: str, split: str, path: Path, metrics: dict[str, float], examples: Examples) -> results.Accuracy:
    model_file = path / MODEL_FILE
    return accuracy.record(
        label="model" if recipe == TRAINED else recipe,
        model=NETWORK,
        recipe=recipe,
        task=TASK.name,
        split=split,
        metric="accuracy",
        value=metrics["accuracy"],
        examples=len(examples),
        model_file=model_file if model_file.exists() else None,
    )
