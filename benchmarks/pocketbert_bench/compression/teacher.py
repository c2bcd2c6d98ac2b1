"""Train the teacher: fine-tune an encoder within a part of the time."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path

from pocketbert.data.examples import evenly
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.confidence import confident
from pocketbert.model import from_pretrained
from pocketbert.progress import log_info
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune
from pocketbert.training.run_folder import OPTIONS_FILE, read_record
from pocketbert.trials.clock import Record
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert_bench.compression.deadline import Deadline
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.sources import without_soft_labels
from pocketbert_bench.compression.trial_examples import LEAST_STEPS, part_of, planned_epochs

TEACHER_FOLDER = "teacher"
# Part of the time without exports, measurements and the page, which take so many seconds.
_SHARE, _OTHER_SECONDS = 0.4, 80
# So many unlabelled texts for each minute, since the teacher may have to answer all before the first trial.
_TEXTS_A_MINUTE = 2000


def trained_teacher(inputs: Inputs, folder: Path, seconds: float, record: Record) -> Path:
    """Fine-tunes the teacher if necessary; returns its model directory.

    Args:
      inputs: the compression's input.
      folder: the compression's folder.
      seconds: time left for the compression.
      record: see `pocketbert.trials.clock.RunClock.record`; a resumed run repeats the number of epochs.
    """
    if inputs.is_teacher:
        log_info(f"teacher: {inputs.directory}")
        return inputs.directory
    log_info(f"teacher: {inputs.directory} is an encoder, so it is fine-tuned first")
    positions = inputs.described.config.max_position_embeddings
    # A longer bundle reads more tokens per text than the usual length.
    longest = min(positions, max(FinetuneConfig.max_length, inputs.length))
    # The task already has the form for pairs.
    config = FinetuneConfig(max_length=longest, head_start_examples=inputs.head_examples, pairs="joint")
    data, callbacks = without_soft_labels(inputs.splits.data), []
    data = dataclasses.replace(data, unlabelled=None, least_confidence=None)
    if seconds < math.inf:
        usual, time_of_teacher = config.epochs, _SHARE * max(seconds - _OTHER_SECONDS, seconds / 2)
        epochs = record("epochs of the teacher", lambda: planned_epochs(usual, len(data.train), time_of_teacher))
        config, data = dataclasses.replace(config, epochs=math.ceil(epochs)), part_of(data, epochs)
        callbacks = [Deadline(time.time() + time_of_teacher, LEAST_STEPS)]
    run = RunConfig(seed=inputs.seed)
    result = finetune(inputs.directory, data, folder / TEACHER_FOLDER, config=config, run=run, callbacks=callbacks)
    return Path(result.model_directory)


def trial_data(inputs: Inputs, teacher: Path, record: Record) -> TaskData:
    """Selects the data for trials: in a short time fewer unlabelled texts, and only those the teacher is sure about.

    Args:
      inputs: the compression's input.
      teacher: the teacher's model directory.
      record: see `trained_teacher`.
    """
    data = inputs.splits.data
    if data.unlabelled is not None and inputs.minutes is not None:
        count, most = len(data.unlabelled), math.ceil(_TEXTS_A_MINUTE * inputs.minutes)
        few = round(record("unlabelled texts", lambda: min(count, most)))
        if few < count:
            log_info(f"the time is short: candidates train on up to {few:,} of {count:,} unlabelled texts")
        data = dataclasses.replace(data, unlabelled=data.unlabelled.select(evenly(count, few)))
    if data.least_confidence is None:
        return data
    return confident(data, from_pretrained(teacher), inputs.length)


def teacher_options(inputs: Inputs, folder: Path) -> tuple[FinetuneConfig | None, bool]:
    """Returns the teacher's fine-tuning options, None without one; and whether it had all of its epochs."""
    if inputs.is_teacher:
        return None, True
    record = read_record(folder / TEACHER_FOLDER / OPTIONS_FILE)
    config = FinetuneConfig(
        max_length=record["max_length"], epochs=record["epochs"], head_start_examples=inputs.head_examples
    )
    steps = config.epochs * math.ceil(len(inputs.splits.data.train) / config.batch_size)
    return config, read_result(folder / TEACHER_FOLDER / RESULT_FILE)["steps"] >= steps


def training_seconds(inputs: Inputs, folder: Path) -> float:
    """Returns the duration of the teacher's fine-tuning in `folder`; 0 for a model trained elsewhere."""
    return 0.0 if inputs.is_teacher else float(read_result(folder / TEACHER_FOLDER / RESULT_FILE)["seconds"])
