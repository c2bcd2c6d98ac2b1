"""Fine-tuning: a task's examples, a model directory, and the best model directory of the run."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig
from pocketbert.data.batches import dataset, encode, plan_batches
from pocketbert.data.examples import Examples
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_json
from pocketbert.model import Model, load
from pocketbert.progress import bar, say
from pocketbert.tasks.metrics import compute
from pocketbert.training.callbacks import LossWatch, MetricsLog, TrainingFailed
from pocketbert.training.checkpointing import (
    CHECKPOINT_FILE,
    MODEL_FOLDER,
    OPTIONS_FILE,
    RESULT_FILE,
    Position,
    describe_inputs,
    open_run,
    read_checkpoint,
    training_variables,
    write_checkpoint,
)
from pocketbert.training.optimizers import AdamW
from pocketbert.training.options import FinetuneOptions, FinetuneResult
from pocketbert.training.schedules import ConstantSchedule, LinearSchedule

STEPS_PER_LOG_LINE = 50


def finetune(
    model_directory: str | os.PathLike[str],
    task: TaskConfig,
    train: Examples,
    dev: Examples,
    output: str | os.PathLike[str],
    options: FinetuneOptions,
    metrics: Sequence[str],
    main_metric: str,
    *,
    overwrite: bool = False,
) -> FinetuneResult:
    """Trains a model directory on a task and keeps the best checkpoint.

    Interrupted at any moment and called again with the same arguments, it goes on from its last checkpoint and ends
    with the weights that it would have had anyway, to the bit, on the same machine. A finished run gives its result.

    Args:
      model_directory: the weights to start from; a head in it is replaced by a fresh one for `task`.
      task: classification or regression.
      train: labelled examples.
      dev: labelled examples, for the metrics that choose the best checkpoint.
      output: the run's folder: `model/`, `metrics.jsonl`, `result.json`, `tensorboard/`.
      options: how to train.
      metrics: names for `pocketbert.tasks.metrics.compute`.
      main_metric: the one of them that chooses the best checkpoint.
      overwrite: throw away a finished run in `output`, or one with other options.

    Returns:
      The best checkpoint and its metrics.

    Raises:
      UserError: bad input, or `output` holds a run with other options.
      TrainingFailed: the loss or the outputs are no longer finite.
    """
    _check(task, train, dev, metrics, main_metric)
    recorded = dataclasses.asdict(options)
    del recorded["checkpoint_seconds"]
    recorded |= {f"task_{name}": value for name, value in dataclasses.asdict(task).items()}
    recorded |= {"metrics": list(metrics), "main_metric": main_metric}
    recorded |= {f"{name}_sha256": digest for name, digest in describe_inputs(model_directory, train, dev).items()}
    with open_run(output, recorded, overwrite=overwrite) as folder:
        if (folder / RESULT_FILE).exists():
            say(f"{folder}: this run is finished; its result follows")
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        else:
            with _policy(options.precision):
                model = load(model_directory, task=task, seed=options.seed)
                run = _Run(model, train, dev, folder, options, metrics, main_metric)
                # Only now: bad input leaves no run behind.
                write_json(folder / OPTIONS_FILE, recorded)
                write_json(folder / RESULT_FILE, run.run())
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        result = json.loads((folder / RESULT_FILE).read_text("utf-8"))
        # Not in the file, so that a run's folder may move.
        return FinetuneResult(model=str(folder / MODEL_FOLDER), **result)


def finetune_seeds(
    seeds: Sequence[int], output: str | os.PathLike[str], options: FinetuneOptions, **arguments: Any
) -> dict[str, Any]:
    """Runs `finetune` once a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      output: the folder of folders; gets a `result.json` with what is returned.
      options: how to train; its seed is replaced.
      **arguments: the others of `finetune`.

    Returns:
      `runs` (each run's result), `best_model` (the best run's model directory), and for every metric its `mean`,
      `standard_deviation` (of a sample; None for one seed), `minimum` and `maximum` over the seeds.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds must be given and differ from one another; received {list(seeds)}")
    folder = Path(output)
    others = sorted({path.name for path in folder.glob("*")} - {f"seed-{seed}" for seed in seeds} - {RESULT_FILE})
    if others:
        raise UserError(
            f"the output must be a new folder or hold runs of these seeds alone; received {folder} with "
            f"{', '.join(others[:5])}; choose another"
        )
    results = []
    for seed in seeds:
        say(f"seed {seed}")
        chosen = dataclasses.replace(options, seed=seed)
        results.append(finetune(output=folder / f"seed-{seed}", options=chosen, **arguments))
    main = results[0].main_metric
    best = max(results, key=lambda result: result.metrics[main])
    summary = {
        "main_metric": main,
        "best_model": best.model,
        "metrics": {name: _spread([result.metrics[name] for result in results]) for name in results[0].metrics},
        "runs": [dataclasses.asdict(result) for result in results],
    }
    write_json(folder / RESULT_FILE, summary)
    return summary


class _Run:
    """One run from its folder's last checkpoint to its end."""

    def __init__(
        self,
        model: Model,
        train: Examples,
        dev: Examples,
        folder: Path,
        options: FinetuneOptions,
        metrics: Sequence[str],
        main_metric: str,
    ) -> None:
        self.model, self.folder, self.options = model, folder, options
        self.metrics, self.main_metric = metrics, main_metric
        if model.tokenizer is None:
            raise UserError(f"fine-tuning needs a model directory with a vocab.txt; {folder} was given one without")
        if options.max_length > model.config.max_positions:
            raise UserError(
                f"max_length must be at most the model's {model.config.max_positions} positions; received "
                f"{options.max_length}"
            )
        say(f"tokenizing {len(train)} + {len(dev)} examples")
        self.train = encode(train, model.tokenizer, options.max_length)
        self.dev = encode(dev, model.tokenizer, options.max_length)
        self.total_steps = sum(len(self._plan(epoch)) for epoch in range(options.epochs))
        self.optimizer = AdamW(
            _schedule(options, self.total_steps),
            weight_decay=options.weight_decay,
            clip_norm=options.clip_norm,
        )
        model.compile(optimizer=self.optimizer)
        self.optimizer.build(model.trainable_variables)
        self.variables = training_variables(model, self.optimizer)
        self.position = read_checkpoint(folder / CHECKPOINT_FILE, self.variables) or Position()
        if self.position.step:
            say(f"{folder}: going on after step {self.position.step} of {self.total_steps}")

    def run(self) -> dict[str, Any]:
        """Trains to the end; returns the fields of `FinetuneResult` but the model's path."""
        position = self.position
        watch = LossWatch(position.losses, position.step)
        with (
            MetricsLog(self.folder, position.log_bytes) as log,
            bar(self.total_steps, "training", "step", initial=position.step) as progress,
        ):
            clock = _Clock(position.seconds)
            while not position.finished:
                plan = self._plan(position.epoch)
                for loss in self._steps(plan, position.step_in_epoch):
                    watch.add(loss)
                    position.step += 1
                    position.step_in_epoch += 1
                    progress.update()
                    if position.step % STEPS_PER_LOG_LINE == 0:
                        self._log_losses(watch, log, progress)
                    if position.step_in_epoch == len(plan):
                        position.epoch += 1
                        position.step_in_epoch = 0
                        position.finished = position.epoch == self.options.epochs
                    every = self.options.evaluation_steps
                    if position.step_in_epoch == 0 or (every and position.step % every == 0):
                        self._log_losses(watch, log, progress)
                        self._evaluate(log)
                    if position.finished or position.step_in_epoch == 0 or clock.due(self.options.checkpoint_seconds):
                        position.losses, position.log_bytes = watch.look(), log.sync()
                        position.seconds = clock.seconds()
                        write_checkpoint(self.folder / CHECKPOINT_FILE, self.variables, position)
                        clock.restart()
                    if position.finished:
                        break
        return {
            "main_metric": self.main_metric,
            "metrics": position.best_metrics,
            "seed": self.options.seed,
            "best_step": position.best_step,
            "steps": position.step,
            "seconds": round(position.seconds, 3),
        }

    def _plan(self, epoch: int) -> list[np.ndarray]:
        return plan_batches(self.train.lengths, batch_size=self.options.batch_size, seed=self.options.seed, epoch=epoch)

    def _steps(self, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """The losses of an epoch's steps, each taken as it is asked for."""
        batches = dataset(self.train, plan, start=start)
        step = self._compiled("_step", lambda batch: self.model.train_step(batch)["loss"], batches)
        for batch in batches:
            # Keras gives the mean since the last reset: of this step alone.
            self.model.reset_metrics()
            yield step(batch)

    def _log_losses(self, watch: LossWatch, log: MetricsLog, progress: Any) -> None:
        losses = watch.look()
        if losses:
            mean = math.fsum(losses) / len(losses)
            rate = float(self.optimizer.learning_rate)
            log.write(self.position.step, "train", {"loss": mean, "learning_rate": rate})
            progress.set_postfix_str(f"loss {mean:.4f}", refresh=False)
            watch.clear()

    def _evaluate(self, log: MetricsLog) -> None:
        """Logs the metrics, saves the model if they are the best so far, and ends the run if patience is over."""
        position = self.position
        assert self.dev.labels is not None
        found = compute(self.metrics, self.dev.labels, self._predictions())
        log.write(position.step, "dev", found)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        # Every metric is better when it is higher; of equals the earlier stays.
        if position.best_step == 0 or found[self.main_metric] > position.best_metrics[self.main_metric]:
            self.model.save_pretrained(self.folder / MODEL_FOLDER, overwrite=True)
            position.best_metrics, position.best_step, position.evaluations_since_best = found, position.step, 0
            say(f"step {position.step}: {shown} (best so far, saved)")
            return
        position.evaluations_since_best += 1
        say(f"step {position.step}: {shown}")
        if self.options.patience is not None and position.evaluations_since_best >= self.options.patience:
            say(f"stopping: no new best in {position.evaluations_since_best} evaluations")
            position.finished = True

    def _predictions(self) -> np.ndarray:
        """Class indices [N], or scores [N], of the development examples."""
        plan = plan_batches(self.dev.lengths, batch_size=self.options.batch_size, seed=0, epoch=0, shuffle=False)
        batches = dataset(self.dev, plan)
        forward = self._compiled("_forward", lambda batch: self.model(batch[0], training=False)["logits"], batches)
        logits = np.concatenate([forward(batch).numpy() for batch in batches])
        if not np.isfinite(logits).all():
            raise TrainingFailed(
                f"the outputs must stay finite; after step {self.position.step} some are not; try a lower learning "
                "rate, a longer warm-up, clipping, or float32"
            )
        ordered = np.empty_like(logits)
        ordered[np.concatenate(plan)] = logits
        return ordered if ordered.ndim == 1 else ordered.argmax(axis=-1)

    def _compiled(self, name: str, function: Callable[[Any], tf.Tensor], batches: tf.data.Dataset) -> Any:
        if not hasattr(self, name):
            setattr(self, name, tf.function(function, input_signature=[batches.element_spec]))
        return getattr(self, name)


class _Clock:
    """Seconds of a run over all its attempts, and since the last checkpoint."""

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before
        self._restarted = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def due(self, interval: float) -> bool:
        return time.monotonic() - self._restarted >= interval

    def restart(self) -> None:
        self._restarted = time.monotonic()


def _schedule(options: FinetuneOptions, total_steps: int) -> tf_keras.optimizers.schedules.LearningRateSchedule:
    warmup_steps = int(options.warmup_ratio * total_steps)
    if options.schedule == "constant":
        return ConstantSchedule(options.learning_rate, warmup_steps)
    return LinearSchedule(options.learning_rate, total_steps, warmup_steps)


@contextlib.contextmanager
def _policy(precision: str) -> Iterator[None]:
    previous = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16" if precision == "bfloat16" else "float32")
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(previous)


def _check(task: TaskConfig, train: Examples, dev: Examples, metrics: Sequence[str], main_metric: str) -> None:
    problems = []
    if task.kind not in ("classification", "regression"):
        problems.append(f"the task must be classification or regression; received {task.kind}")
    if main_metric not in metrics:
        problems.append(f"the main metric must be among {', '.join(metrics)}; received {main_metric}")
    for name, examples in (("training", train), ("development", dev)):
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif examples.labels is None:
            problems.append(f"{name} examples need labels; {examples.source} has none")
    raise_if_any(problems, "fine-tuning")


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    return {
        "mean": statistics.fmean(values),
        "standard_deviation": statistics.stdev(values) if len(values) > 1 else None,
        "minimum": min(values),
        "maximum": max(values),
    }
