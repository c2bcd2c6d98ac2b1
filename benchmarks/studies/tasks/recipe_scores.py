"""Scores of recipes on the fine-tuned 6x384 network, for the study of recipes.

SST-2 has all recipes. MRPC, STS-B and SQuAD 1.1 have the recipes with a target for the points that they lose. The gate
accepts any outputs here, because the study measures what a recipe loses. Models and bundles of the same commit are
kept, so a rerun resumes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.readers.question_tasks import read_questions
from pocketbert.data.task_data import TaskData
from pocketbert.data.train_dev_split import train_dev_split
from pocketbert.progress import log_info
from pocketbert.recipes import RECIPES
from pocketbert.tasks.registry import text_task
from pocketbert.training.config import FinetuneConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert_bench import accuracy, machine, results
from pocketbert_bench.quickstart import NETWORK
from pocketbert_export.bundles.bundle import MODEL_FILE
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.exporter import export
from pocketbert_export.glue.scoring import labelled_evaluator
from pocketbert_export.quantization.calibration_options import CalibrationOptions
from studies.glue_examples import task_data
from studies.quantized import any_outputs
from studies.shared_data import shared_data
from studies.sweep import TRAINED

MODEL, INT16, QUESTIONS = "model", "static_wi8_ai16", "squad"
TARGETED = ("dynamic_wi8", "dynamic_wi4", "static_wi8_ai8")
# Limit of mixed files: halfway between int8 and int4 in all layers.
MIXED_MB = 18.0
# The reference kernels of int16 are slow, so it answers the first sentences only.
INT16_EXAMPLES = 300
# Texts of the gate, which are not scored by it.
_GATE_EXAMPLES = 64


@dataclass(frozen=True, kw_only=True)
class RecipeTask:
    """A task on which recipes are scored.

    Attributes:
      name: name of the task.
      options: how the network is fine-tuned.
      lengths: sequence lengths of the bundles.
      recipes: recipes to score.
      examples: most training examples; whole paragraphs for questions.
    """

    name: str
    options: FinetuneConfig
    lengths: tuple[int, ...]
    recipes: tuple[str, ...] = TARGETED
    examples: int = 12_000


TASKS = (
    RecipeTask(
        name="sst2",
        options=FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-4, epochs=1, max_length=64),
        lengths=(32, 64),
        recipes=tuple(RECIPES),
    ),
    RecipeTask(
        name="mrpc",
        options=FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-4, epochs=3, max_length=128),
        lengths=(64, 128),
    ),
    RecipeTask(
        name="stsb",
        options=FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-4, epochs=3, max_length=64),
        lengths=(32, 64),
    ),
    RecipeTask(
        name=QUESTIONS,
        options=FinetuneConfig(**PUBLISHED_HEAD, learning_rate=1e-4, epochs=3, max_length=384),
        lengths=(384,),
    ),
)


def score_recipes(quick: bool) -> tuple[list[results.Accuracy], list[str]]:
    """Fine-tunes, exports and scores.

    Args:
      quick: the first task only, with fewer examples.

    Returns:
      Scores of models (`MODEL`) and recipes, and notes with the differences of outputs.
    """
    accuracies, notes = [], []
    folder = Path("runs/studies/tasks", f"recipes{'_quick' if quick else ''}", (machine.commit() or "no-commit")[:16])
    for task in TASKS[:1] if quick else TASKS:
        if quick:
            task = dataclasses.replace(task, examples=task.examples // 4)
        found, said = _score_task(task, folder / task.name)
        accuracies += found
        notes += said
    return accuracies, notes


def mixed_options(recipe: str, max_mb: float, *, equalize: bool = True) -> CalibrationOptions:
    """Calibration options of a recipe; `max_mb` is the limit of mixed files."""
    return CalibrationOptions(
        max_mb=max_mb if recipe == "mixed" else None,
        # Equalized channels need no int16.
        equalize=equalize or recipe != INT16,
    )


def _score_task(task: RecipeTask, folder: Path) -> tuple[list[results.Accuracy], list[str]]:
    data = task_data_of(task)
    model = Path(finetune(minilm(), data, folder / "finetune", config=task.options).model_directory)
    accuracies, notes = [score_file(task, MODEL, model, data)], []
    for recipe in task.recipes:
        path = folder / recipe
        if not path.exists():
            export(
                model,
                path,
                recipe=recipe,
                lengths=task.lengths,
                examples=data.dev.select(range(min(_GATE_EXAMPLES, len(data.dev)))),
                bounds=any_outputs(),
                calibration=None if RECIPES[recipe].calibration == "none" else data.train,
                calibration_options=mixed_options(recipe, MIXED_MB),
            )
        part = data
        if recipe == INT16:
            part = dataclasses.replace(data, dev=data.dev.select(range(INT16_EXAMPLES)))
            accuracies.append(score_file(task, MODEL, model, part))
        accuracies.append(score_file(task, recipe, path, part))
        if task.name != QUESTIONS:
            notes.append(f"{task.name}, {recipe}: {_difference(task, model, path, part)}")
    return accuracies, notes


def task_data_of(task: RecipeTask) -> TaskData:
    """Training examples, at most as many as the task has, and the development set."""
    if task.name != QUESTIONS:
        found = task_data(task.name, task.examples)
        train: Any = found.train
        return dataclasses.replace(found, train=train.select(range(min(task.examples, len(train)))))
    train, dev = (read_questions(QUESTIONS, shared_data("squad"), split) for split in ("train", "dev"))
    if task.examples < len(train):
        # Whole paragraphs.
        _, train = train_dev_split(train, task.examples / len(train))
    return TaskData(task=TaskConfig(kind="span", name=QUESTIONS), train=train, dev=dev)


def score_file(task: RecipeTask, label: str, path: Path, data: TaskData, recipe: str = "") -> results.Accuracy:
    """Scores the model or a bundle in `path` by the task's main metric; the recipe is the label without another."""
    evaluator = labelled_evaluator(open_predictor(path), data.dev, metrics=data.metrics or None)
    found = evaluator.scores(data.main_metric or None)
    metric = data.main_metric or "f1"
    value = found.metrics[metric]
    log_info(f"{task.name}, {label}: {metric} {100 * value:.2f}")
    file = path / MODEL_FILE
    return accuracy.record(
        label=label,
        model=NETWORK,
        recipe=TRAINED if label == MODEL else recipe or label,
        task=task.name,
        split="dev",
        metric=metric,
        value=value,
        examples=len(data.dev),
        model_file=file if file.exists() else None,
    )


def _difference(task: RecipeTask, model: Path, bundle: Path, data: TaskData) -> str:
    """Root mean square difference of the outputs and the share of equal labels, as text."""
    dev: Any = data.dev
    expected, received = (open_predictor(path).logits(dev.texts, dev.pairs) for path in (model, bundle))
    rms = float(np.sqrt(np.mean(np.square(received - expected)) / np.mean(np.square(expected))))
    if not data.task.labels:
        return f"RMS difference {rms:.3f}"
    decide = text_task(data.task).decide
    return f"RMS difference {rms:.3f}, {100 * float(np.mean(decide(received) == decide(expected))):.1f} % equal labels"
