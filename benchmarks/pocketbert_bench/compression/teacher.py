"""The teacher: a model with a head for the task, or an encoder after fine-tuning within its share of the time."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path

import numpy as np

from pocketbert.checkpoints.directory import DirectoryDescription, describe_directory
from pocketbert.configs import TaskConfig
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.progress import log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.initialization import vocabulary_of
from pocketbert.training.run_folder import read_record
from pocketbert_bench.compression.pace import Deadline, Pace

TEACHER_FOLDER, EPOCHS_FILE = "teacher", "epochs.json"
_MULTIPLE, _PERCENTILE, _COUNTED = 16, 95, 2000
# Shares of the time: by plan, and at most.
_SHARE, _MOST_SHARE = 0.35, 0.5


def head_of(described: DirectoryDescription, data: TaskData) -> TaskConfig:
    """The task of the networks; a new head may read the mean of all tokens, which takes longer."""
    if _is_teacher(described, data):
        return described.tasks[0]
    return dataclasses.replace(data.task, pooling="mean") if data.task.rules.head == "sentence" else data.task


def trained_teacher(directory: Path, data: TaskData, folder: Path, *, seed: int, seconds: float | None) -> Path:
    """Model directory of the teacher.

    Args:
      directory: a model with one head for the task, or an encoder.
      data: the task and its examples.
      folder: folder of the compression.
      seed: random seed.
      seconds: time of the compression that is left; None for the usual number of epochs.
    """
    described = describe_directory(directory)
    if _is_teacher(described, data):
        log_info(f"teacher: {directory}")
        return directory
    log_info(f"teacher: {directory} is an encoder, so it is fine-tuned first")
    config = FinetuneConfig(max_length=min(described.config.max_position_embeddings, FinetuneConfig.max_length))
    run, output, chosen = RunConfig(seed=seed), folder / TEACHER_FOLDER, folder / EPOCHS_FILE
    if seconds is None:
        return Path(finetune(directory, data, output, config=config, run=run).model_directory)
    deadline = Deadline(time.time() + max(_MOST_SHARE * seconds, 1))
    if chosen.exists():
        config = dataclasses.replace(config, epochs=read_record(chosen, ("epochs",))["epochs"])
    else:
        pace = Pace(_SHARE * seconds)
        result = finetune(directory, data, output, config=config, run=run, callbacks=[pace, deadline])
        epochs = config.epochs if pace.share is None else max(int(min(pace.share, 1) * config.epochs), 1)
        write_json(chosen, {"epochs": epochs})
        if epochs == config.epochs:
            return Path(result.model_directory)
        log_info(f"the teacher trains for {epochs} of {config.epochs} epochs, since the time is short")
        config, run = dataclasses.replace(config, epochs=epochs), dataclasses.replace(run, overwrite=True)
    return Path(finetune(directory, data, output, config=config, run=run, callbacks=[deadline]).model_directory)


def usual_length(directory: Path, data: TaskData) -> int:
    """The 95th percentile of the token counts, rounded up to a multiple of 16, within the model's positions."""
    described, vocabulary = describe_directory(directory), vocabulary_of(directory)
    if vocabulary is None:
        raise UserError(f"the model must have a tokenizer; {directory} has none; put its files there")
    most = described.config.max_position_embeddings
    chosen = data.train.select(range(min(len(data.train), _COUNTED)))
    offsets = supervised_task(data.task).encode(chosen, open_tokenizer(vocabulary), most).offsets
    return min(rounded_up(float(np.percentile(np.diff(offsets), _PERCENTILE))), most)


def rounded_up(count: float) -> int:
    """The next multiple of 16."""
    return max(math.ceil(count / _MULTIPLE), 1) * _MULTIPLE


def _is_teacher(described: DirectoryDescription, data: TaskData) -> bool:
    """Whether a model has one head, for the kind and the labels of the data."""
    return [(head.kind, head.labels) for head in described.tasks] == [(data.task.kind, data.task.labels)]
