"""The teacher of an encoder: fine-tuning within a share of the time."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from pathlib import Path

from pocketbert.progress import log_info
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.finetune import finetune, plan_finetuning
from pocketbert.training.run_folder import OPTIONS_FILE, read_record
from pocketbert.training.trainer import run_plan
from pocketbert.trials.clock import Record
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert_bench.compression.inputs import Inputs
from pocketbert_bench.compression.methods import LEAST_STEPS, part_of, rounded_epochs
from pocketbert_bench.compression.pace import Deadline, Pace, Paced

TEACHER_FOLDER, PACE_FOLDER = "teacher", "pace"
# Shares of the time: by plan, and at most.
_SHARE, _MOST_SHARE = 0.3, 0.4
# Fewer steps are over before their pace is known.
_LEAST_STEPS = 60


def trained_teacher(inputs: Inputs, folder: Path, seconds: float, record: Record) -> Path:
    """Model directory of the teacher.

    Args:
      inputs: the input of the compression.
      folder: folder of the compression.
      seconds: time of the compression that is left.
      record: see `pocketbert.trials.clock.RunClock.record`; a resumed run repeats the number of epochs.
    """
    if inputs.is_teacher:
        log_info(f"teacher: {inputs.directory}")
        return inputs.directory
    log_info(f"teacher: {inputs.directory} is an encoder, so it is fine-tuned first")
    positions = inputs.described.config.max_position_embeddings
    config = FinetuneConfig(max_length=min(positions, FinetuneConfig.max_length))
    data = inputs.splits.data
    if seconds < math.inf:
        usual = config
        epochs = record("epochs of the teacher", lambda: _epochs(inputs, usual, folder, _SHARE * seconds))
        config, data = dataclasses.replace(config, epochs=math.ceil(epochs)), part_of(data, epochs)
    callbacks = [] if seconds == math.inf else [Deadline(time.time() + max(_MOST_SHARE * seconds, 1))]
    # A part of the examples counts as small data, which are evaluated often.
    steps = None if data is inputs.splits.data else math.ceil(len(data.train) / config.batch_size)
    run = RunConfig(seed=inputs.seed, evaluation_steps=steps)
    result = finetune(inputs.directory, data, folder / TEACHER_FOLDER, config=config, run=run, callbacks=callbacks)
    return Path(result.model_directory)


def _epochs(inputs: Inputs, config: FinetuneConfig, folder: Path, seconds: float) -> float:
    """Number of epochs that fit a time, or a part of one, by the pace of a few steps."""
    data, epochs = inputs.splits.data, float(config.epochs)
    steps = math.ceil(len(data.train) / config.batch_size)
    if epochs * steps >= _LEAST_STEPS:
        rows = range(Pace.STEPS * config.batch_size)
        few = dataclasses.replace(data, train=data.train.select(rows), dev=data.dev.select(rows[: len(data.dev)]))
        output = folder / PACE_FOLDER
        # Timed anew after a kill.
        shutil.rmtree(output, ignore_errors=True)
        once = dataclasses.replace(config, epochs=1, head_start="random", contrastive_steps=0)
        plan = plan_finetuning(inputs.directory, few, once, RunConfig(seed=inputs.seed))
        try:
            run_plan(dataclasses.replace(plan, compares=False), output, [Pace()])
        except Paced as pace:
            fitting = max(seconds / pace.seconds_a_step, LEAST_STEPS) / steps
            epochs = min(rounded_epochs(fitting), epochs)
        shutil.rmtree(output, ignore_errors=True)
    if epochs < config.epochs:
        log_info(f"the teacher trains for {epochs:.2g} of {config.epochs} epochs, since the time is short")
    return epochs


def teacher_options(inputs: Inputs, folder: Path) -> tuple[FinetuneConfig | None, bool]:
    """The options of the teacher's fine-tuning, None without one; and whether it had all of its epochs."""
    if inputs.is_teacher:
        return None, True
    record = read_record(folder / TEACHER_FOLDER / OPTIONS_FILE)
    config = FinetuneConfig(max_length=record["max_length"], epochs=record["epochs"])
    steps = config.epochs * math.ceil(len(inputs.splits.data.train) / config.batch_size)
    return config, read_result(folder / TEACHER_FOLDER / RESULT_FILE)["steps"] >= steps


def training_pace(teacher: Path) -> tuple[float, int] | None:
    """Seconds and steps of a fine-tuning that wrote `teacher`; None for another model."""
    path = teacher.parent / RESULT_FILE
    if teacher.parent.name != TEACHER_FOLDER or not path.exists():
        return None
    result = read_result(path)
    return float(result["seconds"]), int(result["steps"])
