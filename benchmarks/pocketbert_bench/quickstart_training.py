"""Training in the quickstart: a teacher, and a student with half its layers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.methods.tinybert import TinyBERT
from pocketbert.distillation.run import distill
from pocketbert.training.config import DistillResult, FinetuneConfig, FinetuneResult, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD

NETWORK = "6x384 (all-MiniLM-L6-v2)"
STUDENT_NETWORK = "3x384 student"
TASK = TaskConfig(kind="classification", name="rotten_tomatoes", labels=("negative", "positive"))
METRIC = "accuracy"
# The student starts from these layers of its teacher.
TEACHER_LAYERS = (1, 3, 5)

# Chosen on the dev split with one seed; `benchmarks/studies/quickstart_accuracy.py` publishes three.
OPTIONS = FinetuneConfig(**PUBLISHED_HEAD, learning_rate=6e-5, epochs=2, batch_size=32, max_length=48)
# A part of the data gives few steps: use smaller batches for more steps, and a higher rate.
PART_OPTIONS = dataclasses.replace(OPTIONS, learning_rate=1e-4, epochs=1, batch_size=16)
# The paper's 20 and 3 epochs would take longer than everything else together. Fewer epochs at higher rates suffice,
# because the student starts from its teacher's layers.
DISTILLATION = TinyBERT(
    without=("augmentation", "attention"),
    max_length=48,
    intermediate_epochs=1,
    intermediate_learning_rate=3e-4,
    prediction_epochs=2,
    prediction_learning_rate=1e-4,
)
PART_DISTILLATION = dataclasses.replace(
    DISTILLATION, intermediate_batch_size=16, prediction_epochs=1, prediction_batch_size=16
)
PART_TRAIN_EXAMPLES = 1920
PART_DEV_EXAMPLES = 200


def sentences(full: bool) -> tuple[Examples, Examples]:
    """Labelled training sentences and the dev split; a fixed part of them unless `full`."""
    train, dev = rotten_tomatoes()
    return (train, dev) if full else (_part(train, PART_TRAIN_EXAMPLES), _part(dev, PART_DEV_EXAMPLES))


def train_teacher(
    network: Path, train: Examples, dev: Examples, output: Path, *, full: bool, seed: int
) -> FinetuneResult:
    """Fine-tunes the pretrained network.

    Args:
      network: its model directory.
      train: training examples.
      dev: examples to choose the best epoch.
      output: the run's folder; an unfinished run is resumed, a finished one returns its result.
      full: use the settings for all of the data instead of those for a part.
      seed: seed of the head's new weights, shuffling and dropout.
    """
    data = TaskData(task=TASK, train=train, dev=dev, metrics=(METRIC,), main_metric=METRIC)
    config = OPTIONS if full else PART_OPTIONS
    return finetune(network, data, output, config=config, run=RunConfig(seed=seed))


def train_student(
    teacher: Path, train: Examples, dev: Examples, output: Path, *, full: bool, seed: int
) -> DistillResult:
    """Distils the teacher into a student made of `TEACHER_LAYERS`, with TinyBERT.

    Args:
      teacher: its model directory.
      train: training examples.
      dev: examples to choose the best epoch.
      output: the run's folder; an unfinished run is resumed, a finished one returns its result.
      full: use the settings for all of the data instead of those for a part.
      seed: seed of the projections' new weights, shuffling and dropout.
    """
    data = TaskData(task=TASK, train=train, dev=dev, metrics=(METRIC,), main_metric=METRIC)
    method = DISTILLATION if full else PART_DISTILLATION
    return distill(
        TeacherLayers(TEACHER_LAYERS), data, output, teacher=teacher, method=method, run=RunConfig(seed=seed)
    )


def _part(examples: Examples, count: int) -> Examples:
    # Random: positive and negative sentences alternate, so every fourth one would have the same label.
    return examples.select(np.sort(np.random.default_rng(0).permutation(len(examples))[:count]))
