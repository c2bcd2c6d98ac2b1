"""Fine-tuning: a task's examples, a model directory, and the best model directory of the run."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.batches import dataset, plan_batches
from pocketbert.data.examples import LabelledData
from pocketbert.data.windows import WindowOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_text
from pocketbert.model import Model, from_pretrained
from pocketbert.outputs import check_inputs
from pocketbert.progress import log_info
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.forward import ModelForward
from pocketbert.tasks.registry import TASKS, get_task, listed, supervised_kinds
from pocketbert.training import activations
from pocketbert.training.callbacks import MetricsLog
from pocketbert.training.checkpointing import (
    Position,
    check_kept,
    describe_inputs,
    digest_kept,
    load_weights,
    read_checkpoint,
    training_variables,
)
from pocketbert.training.class_weights import class_weights
from pocketbert.training.grid import Choose, Grid, Point, options_at
from pocketbert.training.grid_run import run_grid
from pocketbert.training.grid_workers import Workers
from pocketbert.training.optimizers import AdamW
from pocketbert.training.options import FIXED_IN_A_GRID, WINDOW_OPTIONS, FinetuneOptions, FinetuneResult
from pocketbert.training.run import Clock, Driver, precision_policy, run_once, run_seeds
from pocketbert.training.run_folder import CHECKPOINT_FILE, MODEL_FOLDER, REPORT_FILE, begin_run
from pocketbert.training.schedules import make_schedule
from pocketbert.training.score_report import page


def finetune(
    model_directory: str | os.PathLike[str],
    task: TaskConfig,
    train: LabelledData,
    dev: LabelledData,
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
      task: classification, multi_label, regression or spans.
      train: labelled examples, of spans a file of questions.
      dev: the same, for the metrics that choose the best checkpoint.
      output: the run's folder: `model/`, `metrics.jsonl`, `result.json`, `report.html`, `tensorboard/`.
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
    check_inputs(output, (model_directory, train.source, dev.source))
    recorded = _recorded(model_directory, task, train, dev, options, metrics, main_metric)

    def train_in(folder: Path) -> dict[str, Any]:
        with precision_policy(options.precision):
            model = from_pretrained(model_directory, task=task, seed=options.seed)
            run = _Run(model, task, train, dev, folder, options, metrics, main_metric)
            # Only now: bad input leaves no run behind.
            begin_run(folder, recorded)
            return run.run()

    folder, result = run_once(output, recorded, train_in, overwrite=overwrite)
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
      `median`, `standard_deviation` (of a sample; None for one seed), `minimum` and `maximum` over the seeds.
    """

    def run_one(seed: int, folder: Path) -> FinetuneResult:
        return finetune(output=folder, options=dataclasses.replace(options, seed=seed), **arguments)

    return run_seeds(seeds, output, run_one)


def finetune_grid(
    grid: Grid,
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    options: FinetuneOptions,
    *,
    choose: Choose = "median",
    workers: Workers | None = None,
    overwrite: bool = False,
    **arguments: Any,
) -> dict[str, Any]:
    """Runs `finetune` once for every point of a grid and every seed.

    Args:
      grid: fields of the options and their values.
      seeds: all different.
      output: the search's folder.
      options: how to train where the grid does not say it; the seed is replaced.
      choose: see `pocketbert.training.grid_run.run_grid`, as for the following two.
      workers: see there.
      overwrite: see there.
      **arguments: the others of `finetune`.

    Returns:
      What `run_grid` does.
    """
    unused = set(WINDOW_OPTIONS) - {*TASKS[arguments["task"].kind].window_options}
    points = options_at(options, grid, fixed=(*FIXED_IN_A_GRID, *unused))
    recorded = _recorded(options=options, **arguments)
    # Before the first run, and not hours later by the first that it would concern.
    config = read_directory(arguments["model_directory"], headless=True).config
    _check_options(points, arguments["task"], arguments["train"], config)
    # Another machine has another working directory.
    arguments["model_directory"] = Path(arguments["model_directory"]).absolute()
    return run_grid(
        grid,
        seeds,
        output,
        {name: value for name, value in recorded.items() if name != "seed" and name not in grid.values},
        functools.partial(_finetune_point, options, arguments),
        choose=choose,
        workers=workers,
        work=lambda point: float(point.get("epochs") or 1),
        overwrite=overwrite,
    )


def _finetune_point(
    options: FinetuneOptions, arguments: Mapping[str, Any], point: Point, seed: int, folder: Path
) -> FinetuneResult:
    changes: dict[str, Any] = {**point, "seed": seed}
    return finetune(output=folder, options=dataclasses.replace(options, **changes), **arguments)


def _recorded(
    model_directory: str | os.PathLike[str],
    task: TaskConfig,
    train: LabelledData,
    dev: LabelledData,
    options: FinetuneOptions,
    metrics: Sequence[str],
    main_metric: str,
) -> dict[str, Any]:
    """Checks a run's input; returns all that decides its result, as JSON values."""
    _check(task, train, dev, metrics, main_metric)
    recorded = dataclasses.asdict(options)
    del recorded["checkpoint_seconds"]
    # The names of what a run does not use stay out, so that runs from before there was a choice go on.
    for name in set(WINDOW_OPTIONS) - {*TASKS[task.kind].window_options}:
        del recorded[name]
    recorded |= {f"task_{name}": value for name, value in dataclasses.asdict(task).items()}
    recorded |= {"metrics": list(metrics), "main_metric": main_metric}
    return recorded | {f"{name}_sha256": hash_ for name, hash_ in describe_inputs(model_directory, train, dev).items()}


class _Run:
    """One run from its folder's last checkpoint to its end; a `Stretch`."""

    name = ""
    loss_names: Sequence[str] = ("loss",)
    main_metric: str | None

    def __init__(
        self,
        model: Model,
        task: TaskConfig,
        train: LabelledData,
        dev: LabelledData,
        folder: Path,
        options: FinetuneOptions,
        metrics: Sequence[str],
        main_metric: str,
    ) -> None:
        self.model, self.folder, self.options = model, folder, options
        self.main_metric = main_metric
        self.evaluation_steps, self.patience = options.evaluation_steps, options.patience
        if model.tokenizer is None:
            raise UserError(f"fine-tuning needs a model directory with a vocab.txt; {folder} was given one without")
        _check_options([options], task, train, model.config)
        log_info(f"tokenizing {len(train)} + {len(dev)} examples")
        length, windows = options.max_length, options.windows()
        made = get_task(task)
        assert isinstance(made, SupervisedTask)
        self.train = made.encode(train, model.tokenizer, length, **windows)
        self.class_weights = _class_weights(options, task, train)
        self.dev = dev
        self.evaluator = made.evaluator(
            ModelForward(model, made, options.batch_size),
            dev,
            model.tokenizer,
            length,
            metrics=metrics,
            choose_threshold=True,
            **windows,
        )
        for warning in made.data_warnings(train, dev):
            log_info(warning)
        self.total_steps = sum(len(self.plan(epoch)) for epoch in range(options.epochs))
        self.optimizer = AdamW(
            make_schedule(options.schedule, options.learning_rate, options.warmup_ratio, self.total_steps),
            weight_decay=options.weight_decay,
            clip_norm=options.clip_norm,
        )
        model.compile(optimizer=self.optimizer)
        self.optimizer.build(model.trainable_variables)
        self.variables = training_variables(model, self.optimizer)
        self.activation_watch = activations.open_watch(model, self._some_batches)
        self.position = read_checkpoint(folder / CHECKPOINT_FILE, self.variables) or Position()
        if self.position.step:
            log_info(f"{folder}: going on after step {self.position.step} of {self.total_steps}")

    def run(self) -> dict[str, Any]:
        """Trains to the end and writes the page; returns the fields of `FinetuneResult` but the model's path."""
        position = self.position
        with MetricsLog(self.folder, position.log_bytes) as log:
            clock = Clock(position.seconds)
            Driver(self, position, self.folder, log, clock, self.options.checkpoint_seconds).drive()
        # The best, not the last.
        check_kept(self.folder, position.kept)
        load_weights(self.model, self.folder / MODEL_FOLDER)
        assert self.main_metric is not None
        scores = self.evaluator.scores(self.main_metric, position.best_metrics)
        log_info(f"best, after step {position.best_step}: {scores.sentence}")
        for warning in scores.warnings:
            log_info(f"warning: {warning}")
        write_text(self.folder / REPORT_FILE, page({"model": scores}, len(self.dev), self.dev.source))
        return {
            "main_metric": self.main_metric,
            **scores.to_json(),
            "seed": self.options.seed,
            "best_step": position.best_step,
            "steps": position.step,
            "seconds": round(position.seconds, 3),
            "activation_range": activations.report(self.activation_watch),
        }

    def plan(self, epoch: int) -> list[np.ndarray]:
        return plan_batches(self.train.lengths, batch_size=self.options.batch_size, seed=self.options.seed, epoch=epoch)

    def _some_batches(self) -> Iterator[Mapping[str, tf.Tensor]]:
        plan = plan_batches(self.train.lengths, batch_size=activations.BATCH_SIZE, seed=self.options.seed, epoch=0)
        return (inputs for inputs, _ in dataset(self.train, plan[: activations.BATCHES]))

    def steps(self, epoch: int, plan: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        del epoch
        batches = dataset(self.train, plan, start=start)
        if self.class_weights is not None:
            weights = tf.constant(self.class_weights)
            batches = batches.map(lambda inputs, labels: (inputs, labels, tf.gather(weights, labels)))
        if not hasattr(self, "_step"):
            self._step = tf.function(
                lambda batch: self.model.train_step(batch)["loss"][tf.newaxis], input_signature=[batches.element_spec]
            )
        for batch in batches:
            # Keras gives the mean since the last reset: of this step alone.
            self.model.reset_metrics()
            yield self._step(batch)

    def learning_rate(self) -> float:
        return float(self.optimizer.learning_rate)

    def evaluate(self, step: int) -> dict[str, float]:
        return self.evaluator.metrics(f"after step {step}")

    def save(self) -> str:
        self.model.tasks = (self.evaluator.task,)
        self.model.save_pretrained(self.folder / MODEL_FOLDER, overwrite=True)
        return digest_kept(self.folder)


def _class_weights(options: FinetuneOptions, task: TaskConfig, train: LabelledData) -> np.ndarray | None:
    classes = np.zeros(0, np.int32) if train.classes is None else train.classes
    return class_weights(options.class_weights, task, classes)


def _check_options(
    points: Iterable[FinetuneOptions], task: TaskConfig, train: LabelledData, config: EncoderConfig
) -> None:
    """That each point fits the task, its examples and the model."""
    problems = []
    for options in points:
        length = options.max_length
        if length > config.max_position_embeddings:
            problems.append(
                f"max_length must be at most the model's {config.max_position_embeddings} positions; received {length}"
            )
        try:
            _class_weights(options, task, train)
            if TASKS[task.kind].window_options:
                WindowOptions(max_length=length, **options.windows())
        except UserError as error:
            problems.append(str(error))
    # Each once, however many points have it.
    raise_if_any(dict.fromkeys(problems), "fine-tuning")


def _check(task: TaskConfig, train: LabelledData, dev: LabelledData, metrics: Sequence[str], main_metric: str) -> None:
    problems = []
    if task.kind not in supervised_kinds():
        problems.append(f"the task must be {listed(supervised_kinds())}; received {task.kind}")
    if main_metric not in metrics:
        problems.append(f"the main metric must be among {', '.join(metrics)}; received {main_metric}")
    for name, examples in (("training", train), ("development", dev)):
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif not examples.labelled:
            problems.append(f"{name} examples need labels; {examples.source} has none")
    raise_if_any(problems, "fine-tuning")
