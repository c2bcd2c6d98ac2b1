"""What drives a run, fine-tuning as well as distillation: steps, log, clock, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.activation_stats import ActivationWatch
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_json
from pocketbert.progress import bar, log_info
from pocketbert.training.callbacks import LossWatch, MetricsLog
from pocketbert.training.checkpointing import Position, write_checkpoint
from pocketbert.training.distribution import Distribution, open_distribution
from pocketbert.training.run_folder import (
    CHECKPOINT_FILE,
    COMMAND_FILE,
    COMPARISON_FILE,
    REPORT_FILE,
    RESULT_FILE,
    open_run,
    read_result,
)

STEPS_PER_LOG_LINE = 50
# What stands beside the runs of several seeds.
_SUMMARY_FILES = (COMMAND_FILE, RESULT_FILE, COMPARISON_FILE, REPORT_FILE)


class Stretch(Protocol):
    """Steps of one kind, with one optimizer: a whole fine-tuning, or one stage of a distillation.

    Attributes:
      name: the stage's name, for messages and the log; empty where a run has no stages.
      total_steps: how many steps, if nothing stops them early.
      loss_names: what `steps` gives of each step; the first is the loss.
      variables: all that a step reads and a checkpoint therefore holds.
      main_metric: the metric of `evaluate` that chooses the best weights; None keeps the last.
      evaluation_steps: evaluate every so many steps, and after each epoch; None: only that.
      patience: stop after so many evaluations in a row without a new best; None: never.
      activation_watch: logs the largest activations wherever there is an evaluation; None: nobody asks for them.
    """

    name: str
    total_steps: int
    loss_names: Sequence[str]
    variables: dict[str, tf.Variable]
    main_metric: str | None
    evaluation_steps: int | None
    patience: int | None
    activation_watch: ActivationWatch | None

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The examples of each of the epoch's steps; the same at every call. The last epoch may end earlier."""

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Takes the epoch's steps from `start` on, each as it is asked for; gives its losses, float32 [names]."""

    def learning_rate(self) -> float:
        """The last step's."""

    def evaluate(self, step: int) -> dict[str, float] | None:
        """Metrics of the weights as they are after `step` steps; None if there is nothing to evaluate."""

    def save(self) -> str:
        """Writes the weights as they are as those that the stretch keeps; returns their `digest_kept`."""


class Driver:
    """Takes a stretch from where the run stands to its end.

    Args:
      stretch: what is done.
      position: where the run stands; changed as it goes on.
      folder: the run's.
      log: the run's.
      clock: the run's.
      checkpoint_seconds: seconds between checkpoints. There is one after each epoch besides.
      writes: whether this process writes checkpoints and weights; of several that train together, one does.
    """

    def __init__(
        self,
        stretch: Stretch,
        position: Position,
        folder: Path,
        log: MetricsLog,
        clock: Clock,
        checkpoint_seconds: float,
        *,
        writes: bool = True,
    ) -> None:
        self.stretch, self.position, self.folder, self.writes = stretch, position, folder, writes
        self.log, self.clock, self.checkpoint_seconds = log, clock, checkpoint_seconds
        self.watch = LossWatch(position.losses, position.step, stretch.loss_names, stretch.name)

    def drive(self) -> None:
        """Trains until the stretch is finished; its last checkpoint says so."""
        position, stretch = self.position, self.stretch
        done = position.step - position.first_step
        with bar(stretch.total_steps, stretch.name or "training", "step", initial=done) as progress:
            while not position.finished:
                before = position.step - position.first_step - position.step_in_epoch
                plan = stretch.plan(position.epoch)[: stretch.total_steps - before]
                for losses in self._steps(plan):
                    self.watch.add(losses)
                    position.step += 1
                    position.step_in_epoch += 1
                    progress.update()
                    if position.step % STEPS_PER_LOG_LINE == 0:
                        self._log_losses(progress)
                    if position.step_in_epoch == len(plan):
                        position.epoch += 1
                        position.step_in_epoch = 0
                        position.finished = position.step - position.first_step == stretch.total_steps
                    every = stretch.evaluation_steps
                    if position.step_in_epoch == 0 or (every and position.step % every == 0):
                        self._log_losses(progress)
                        self._log_activations()
                        self._evaluate()
                    if position.finished and stretch.main_metric is None:
                        self._save()
                    if position.finished or position.step_in_epoch == 0 or self.clock.due(self.checkpoint_seconds):
                        self._write_checkpoint()
                    if position.finished:
                        break

    def _steps(self, plan: list[np.ndarray]) -> Iterator[tf.Tensor]:
        yield from self.stretch.steps(self.position.epoch, plan, self.position.step_in_epoch)

    def _write_checkpoint(self) -> None:
        position = self.position
        position.losses, position.log_bytes = self.watch.look(), self.log.sync()
        position.seconds = self.clock.seconds()
        if self.writes:
            write_checkpoint(self.folder / CHECKPOINT_FILE, self.stretch.variables, position)
        self.clock.restart()

    def _save(self) -> None:
        if self.writes:
            self.position.kept = self.stretch.save()
        else:
            self.position.kept = ""

    def _log_losses(self, progress: Any) -> None:
        rows = self.watch.look()
        if rows:
            means = {
                name: math.fsum(values) / len(rows)
                for name, values in zip(self.stretch.loss_names, zip(*rows, strict=True), strict=True)
            }
            self._write_line("train", {**means, "learning_rate": self.stretch.learning_rate()})
            progress.set_postfix_str(", ".join(f"{name} {mean:.4f}" for name, mean in means.items()), refresh=False)
            self.watch.clear()

    def _log_activations(self) -> None:
        if self.stretch.activation_watch is None:
            return
        maxima = self.stretch.activation_watch.maxima()
        for where, value in maxima.named().items():
            if not math.isfinite(value):
                of_stage = f" of stage {self.stretch.name}" if self.stretch.name else ""
                raise TrainingFailed(
                    f"activations must stay finite; {where} is not after step {self.position.step}{of_stage}; try a "
                    "lower learning rate, a longer warm-up, or clipping"
                )
        self._write_line("activations", maxima.largest())

    def _evaluate(self) -> None:
        """Logs the metrics, keeps the weights if they are the best so far, and ends the stretch if patience is over."""
        position, stretch = self.position, self.stretch
        found = stretch.evaluate(position.step)
        if found is None:
            return
        self._write_line("dev", found)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        if stretch.main_metric is None:
            position.best_metrics, position.best_step = found, position.step
            log_info(f"step {position.step}: {shown}")
            return
        # Every metric is better when it is higher; of equals the earlier stays.
        if not position.best_metrics or found[stretch.main_metric] > position.best_metrics[stretch.main_metric]:
            self._save()
            position.best_metrics, position.best_step, position.evaluations_since_best = found, position.step, 0
            log_info(f"step {position.step}: {shown} (best so far, saved)")
            return
        position.evaluations_since_best += 1
        log_info(f"step {position.step}: {shown}")
        if stretch.patience is not None and position.evaluations_since_best >= stretch.patience:
            log_info(f"stopping: no new best in {position.evaluations_since_best} evaluations")
            position.finished = True

    def _write_line(self, split: str, numbers: Mapping[str, float]) -> None:
        self.log.write(self.position.step, split, numbers, self.stretch.name)


class Clock:
    """Seconds of a run over all its attempts, and since the last checkpoint.

    Args:
      before: seconds of the attempts before this one.
    """

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before
        self._restarted = time.monotonic()

    def seconds(self) -> float:
        """Seconds of all attempts."""
        return time.monotonic() - self._start

    def due(self, interval: float) -> bool:
        """Whether so many seconds have passed since the last `restart`."""
        return time.monotonic() - self._restarted >= interval

    def restart(self) -> None:
        """Begins an interval."""
        self._restarted = time.monotonic()


@contextlib.contextmanager
def precision_policy(precision: str) -> Iterator[None]:
    """Models made inside compute in `float32`, or in `bfloat16` with weights that stay float32."""
    previous = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16" if precision == "bfloat16" else "float32")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(previous)


def run_once(
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    train: Callable[[Path], dict[str, Any]],
    *,
    overwrite: bool,
    distribution: Distribution | None = None,
) -> tuple[Path, dict[str, Any]]:
    """The result of a run: of a finished one as it stands, of any other after going on to its end.

    Args:
      output: the run's folder.
      recorded: all that decides the result, as JSON values.
      train: goes on from where the folder stands and returns the result. It writes `recorded` as `OPTIONS_FILE` once
        it has found nothing wrong with its input, so that bad input leaves no run behind.
      overwrite: throw away a finished run, or one with other options.
      distribution: the run's replicas. Of several processes only the chief writes; the others read what it has written.

    Returns:
      The folder and the result.
    """
    distribution = distribution or open_distribution()
    with _opened(output, recorded, distribution, overwrite=overwrite) as folder:
        path = folder / RESULT_FILE
        if distribution.as_chief_says(path.exists()):
            log_info(f"{folder}: this run is finished; its result follows")
            result = read_result(path)
        else:
            # Keras numbers layers through the whole process, and the numbers are in the names of a graph's operations,
            # on which the order of sums depends: a run's last bits would depend on what was made before it.
            tf_keras.backend.reset_uids()
            result = train(folder)
            if distribution.is_chief:
                write_json(path, result)
        if distribution.is_chief:
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        # A worker that left earlier would be taken for a dead one.
        distribution.leave()
        # As the file has it, with lists for tuples, whether or not this process sees the file yet.
        return folder, json.loads(json.dumps(result))


@contextlib.contextmanager
def _opened(
    output: str | os.PathLike[str], recorded: Mapping[str, Any], distribution: Distribution, *, overwrite: bool
) -> Iterator[Path]:
    """The run's folder, which the chief has taken and made ready before any other process looks into it."""
    if not distribution.is_chief:
        if not distribution.as_chief_says(True):
            raise UserError(f"the chief must be able to work in {output}; it is not, and says why")
        yield Path(output)
        return
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(open_run(output, recorded, overwrite=overwrite))
        except UserError:
            distribution.as_chief_says(False)
            raise
        distribution.wait()
        yield folder


def run_seeds(
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    run_one: Callable[[int, Path], Any],
    *,
    writes: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Makes one run a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      output: the folder of folders; gets a `result.json` with what is returned.
      run_one: makes the run of one seed in one folder; its result, a dataclass, has `model`, `main_metric` and
        `metrics`.
      writes: whether this process writes the file; asked after the runs.

    Returns:
      `runs` (each run's result), `best_model` (the best run's model directory), and for every metric its `mean`,
      `median`, `standard_deviation` (of a sample; None for one seed), `minimum` and `maximum` over the seeds.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds must be given and differ from one another; received {list(seeds)}")
    folder = Path(output)
    # Names with a dot are what a killed process left of a file that it was writing.
    found = {path.name for path in folder.glob("[!.]*")}
    others = sorted(found - {f"seed-{seed}" for seed in seeds} - {*_SUMMARY_FILES})
    if others:
        raise UserError(
            f"the output must be a new folder or hold runs of these seeds alone; received {folder} with "
            f"{', '.join(others[:5])}; choose another"
        )
    results = []
    for seed in seeds:
        log_info(f"seed {seed}")
        results.append(run_one(seed, folder / f"seed-{seed}"))
    main = results[0].main_metric
    best = max(results, key=lambda result: result.metrics[main])
    summary = {
        "main_metric": main,
        "best_model": best.model,
        "metrics": {name: spread([result.metrics[name] for result in results]) for name in results[0].metrics},
        "runs": [dataclasses.asdict(result) for result in results],
    }
    if writes():
        for name in _SUMMARY_FILES:
            (folder / f".{name}.partial").unlink(missing_ok=True)
        write_json(folder / RESULT_FILE, summary)
    return summary


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """What is said of a metric over several seeds; the standard deviation is a sample's, None for one seed."""
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "minimum": min(values),
        "maximum": max(values),
    }
