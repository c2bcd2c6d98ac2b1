"""Fine-tuning as a run: a task's examples, a model, and the best model directory."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData
from pocketbert.data.windows import WindowOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model
from pocketbert.outputs import check_inputs
from pocketbert.progress import log_info
from pocketbert.tasks.registry import TASKS, get_task, listed, supervised_kinds, supervised_task
from pocketbert.training.class_weights import class_weights
from pocketbert.training.config import FIXED_IN_A_GRID, WINDOW_OPTIONS, FinetuneConfig, FinetuneResult, RunConfig
from pocketbert.training.grid import Choose, Grid, Point, at_point, options_at
from pocketbert.training.grid_run import run_grid
from pocketbert.training.grid_workers import Workers
from pocketbert.training.initialization import ModelInit, plan_model, saved_models
from pocketbert.training.objectives.finetuning import Finetuner, Finetuning, finetuning_stage
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.run import run_plan, run_seeds
from pocketbert.training.task_data import with_metrics


def finetune(
    model: Model | str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    config: FinetuneConfig = FinetuneConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
) -> FinetuneResult:
    """Trains a model on a task and keeps the best checkpoint.

    Call it again with the same arguments to resume an interrupted run: on the same machine it ends with the weights
    that it would have had anyway, to the bit. A finished run gives its result.

    Args:
      model: the weights to start from, in memory or in a model directory; a head for `data.task` replaces its own.
      data: the task and its examples, all labelled.
      output: the run's folder: `model/`, `metrics.jsonl`, `result.json`, `report.html`, `tensorboard/`.
      config: how to train.
      run: how to run.

    Returns:
      The best checkpoint and its metrics.

    Raises:
      UserError: bad input, or `output` holds a run with other options.
      TrainingFailed: the loss or the outputs are no longer finite.
    """
    with saved_models(model) as (directory,):
        plan = plan_finetuning(directory, data, config, run)
        check_inputs(output, (directory, data.train.source, data.dev.source))
        for warning in supervised_task(data.task).data_warnings(data.train, data.dev):
            log_info(warning)
        folder, result = run_plan(plan, output, Finetuner)
    return FinetuneResult.of(folder, result)


def finetune_seeds(
    seeds: Sequence[int],
    model: Model | str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    config: FinetuneConfig = FinetuneConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
) -> dict[str, Any]:
    """Runs `finetune` once a seed, each in a folder `seed-N` of its own inside `output`.

    Args:
      seeds: all different.
      model: as for `finetune`.
      data: likewise.
      output: the folder of folders; gets a `result.json` with what is returned.
      config: as for `finetune`.
      run: likewise; its seed is replaced.

    Returns:
      As `run_seeds`.
    """

    def run_one(seed: int, folder: Path) -> FinetuneResult:
        return finetune(model, data, folder, config=config, run=dataclasses.replace(run, seed=seed))

    return run_seeds(seeds, output, run_one)


def plan_finetuning(
    directory: str | os.PathLike[str], data: TaskData, config: FinetuneConfig, run: RunConfig
) -> TrainingPlan:
    """Checks the input of a fine-tuning; nothing is written and no weights are made."""
    data = _checked(data)
    start = _start(directory, data)
    _check_configs([config], data, start.config)
    if start.vocabulary is None:
        raise UserError(
            f"fine-tuning needs a model directory with a vocab.txt; {directory} was given without one; put it there"
        )
    return TrainingPlan(
        objective=Finetuning(class_weights=_class_weights(config, data)),
        options=dataclasses.asdict(config),
        stages=(finetuning_stage(config, data.task),),
        run=run,
        start=start,
        tasks=(data.task,),
        vocabulary=start.vocabulary,
        data=data,
        windows={
            name: value for name, value in config.windows().items() if name in TASKS[data.task.kind].window_options
        },
        evaluation_batch_size=config.batch_size,
    )


def finetune_grid(
    grid: Grid,
    seeds: Sequence[int],
    model: Model | str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    config: FinetuneConfig = FinetuneConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
    choose: Choose = "median",
    workers: Workers | None = None,
) -> dict[str, Any]:
    """Runs `finetune` once for every point of a grid and every seed.

    Args:
      grid: fields of `FinetuneConfig`, or precision, evaluation_steps and patience of `RunConfig`, and their values.
      seeds: all different.
      model: as for `finetune`.
      data: likewise.
      output: the search's folder.
      config: how to train where the grid does not say it.
      run: how to run; the seed is replaced.
      choose: see `pocketbert.training.grid_run.run_grid`.
      workers: see there.

    Returns:
      What `run_grid` does.
    """
    with saved_models(model) as (directory,):
        data = _checked(data)
        unused = set(WINDOW_OPTIONS) - {*TASKS[data.task.kind].window_options}
        points = options_at((config, run), grid, fixed=(*FIXED_IN_A_GRID, *unused))
        # Before the first run, and not hours later by the first that it would concern.
        _check_configs([each for each, _ in points], data, _start(directory, data).config)
        # What the grid varies is no part of the record; `config` itself need not fit.
        recorded = plan_finetuning(directory, data, *points[0]).recorded()
        # Another machine has another working directory.
        directory = Path(directory).absolute()
        return run_grid(
            grid,
            seeds,
            output,
            {name: value for name, value in recorded.items() if name != "seed" and name not in grid.values},
            functools.partial(_finetune_point, directory, data, config, run),
            choose=choose,
            workers=workers,
            work=lambda point: float(point.get("epochs") or 1),
            overwrite=run.overwrite,
        )


def _finetune_point(
    directory: Path, data: TaskData, config: FinetuneConfig, run: RunConfig, point: Point, seed: int, folder: Path
) -> FinetuneResult:
    run = dataclasses.replace(at_point(run, point), seed=seed, overwrite=False)
    return finetune(directory, data, folder, config=at_point(config, point), run=run)


def _start(directory: str | os.PathLike[str], data: TaskData) -> ModelInit:
    if not Path(directory).is_dir():
        raise UserError(
            f"the model must be a model directory with config.json and model.safetensors; received {directory}"
        )
    start = plan_model(Path(directory))
    return dataclasses.replace(start, config=get_task(data.task).encoder_config(start.config))


def _class_weights(config: FinetuneConfig, data: TaskData) -> np.ndarray | None:
    classes = np.zeros(0, np.int32) if data.train.classes is None else data.train.classes
    return class_weights(config.class_weights, data.task, classes)


def _check_configs(configs: Iterable[FinetuneConfig], data: TaskData, model: EncoderConfig) -> None:
    """That each fits the task, its examples and the model."""
    problems = []
    for config in configs:
        length = config.max_length
        if length > model.max_position_embeddings:
            problems.append(
                f"max_length must be at most the model's {model.max_position_embeddings} positions; received {length}"
            )
        try:
            _class_weights(config, data)
            if TASKS[data.task.kind].window_options:
                WindowOptions(max_length=length, **config.windows())
        except UserError as error:
            problems.append(str(error))
    # Each once, however many points have it.
    raise_if_any(dict.fromkeys(problems), "fine-tuning")


def _checked(data: TaskData) -> TaskData:
    """The data, with metrics, after everything that can be wrong with them."""
    problems = []
    if data.task.kind not in supervised_kinds():
        problems.append(f"the task must be {listed(supervised_kinds())}; received {data.task.kind}")
    raise_if_any(problems, "fine-tuning")
    data = with_metrics(data)
    if data.main_metric not in data.metrics:
        problems.append(f"the main metric must be among {', '.join(data.metrics)}; received {data.main_metric}")
    for name, examples in (("training", data.train), ("development", data.dev)):
        if not len(examples):
            problems.append(f"there must be {name} examples; {examples.source} holds none")
        elif not examples.labelled:
            problems.append(f"{name} examples need labels; {examples.source} has none")
    raise_if_any(problems, "fine-tuning")
    return data
