"""Pretraining as a run: text with masked tokens and next sentences, and a model with both heads."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.configs import EncoderConfig
from pocketbert.data.pretraining_data import PretrainingData
from pocketbert.errors import raise_if_any
from pocketbert.model import Model
from pocketbert.outputs import check_inputs
from pocketbert.training.config import PretrainConfig, RunConfig, TrainResult
from pocketbert.training.distribution import open_distribution
from pocketbert.training.initialization import ModelInit, plan_model, saved_models
from pocketbert.training.objectives.pretraining import Pretraining, pretraining_stage
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.pretraining_checks import (
    pretraining_heads,
    pretraining_problems,
    pretraining_vocabulary,
    unused_options,
)
from pocketbert.training.run import run_plan, run_seeds
from pocketbert.training.stage import position_problems
from pocketbert.training.trainer import Trainer


def pretrain(
    model: Model | str | os.PathLike[str] | EncoderConfig,
    data: PretrainingData,
    output: str | os.PathLike[str],
    *,
    config: PretrainConfig = PretrainConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
) -> TrainResult:
    """Pretrains a model with masked LM and next-sentence prediction.

    Call it again with the same arguments to resume an interrupted run, as for `finetune`.

    Args:
      model: a preset's name, an architecture or a config.json for fresh weights; or a model, in memory or in a model
        directory to continue from, whose masked-LM and next-sentence heads are kept where it has them.
      data: the examples; what `data.dev` holds is evaluated on.
      output: the run's folder, as for `finetune`.
      config: how to train.
      run: how to run.

    Returns:
      The model, with both heads, and its metrics on the development examples.

    Raises:
      UserError: bad input; nothing has been written then.
      TrainingFailed: the loss is no longer finite.
    """
    with saved_models(model) as (given,):
        named = None if isinstance(given, EncoderConfig) else given
        check_inputs(output, (named, data.folder, None if data.dev is None else data.dev.folder))
        folder, result = run_plan(_plan(given, data, config, run), output, Trainer)
    return TrainResult.of(folder, result)


def pretrain_seeds(
    seeds: Sequence[int],
    model: Model | str | os.PathLike[str] | EncoderConfig,
    data: PretrainingData,
    output: str | os.PathLike[str],
    *,
    config: PretrainConfig = PretrainConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
) -> dict[str, Any]:
    """Runs `pretrain` once a seed; see `finetune_seeds`."""

    def run_one(seed: int, folder: Path) -> TrainResult:
        return pretrain(model, data, folder, config=config, run=dataclasses.replace(run, seed=seed))

    return run_seeds(seeds, output, run_one, writes=lambda: open_distribution(run.distribution, run.tpu).is_chief)


def _plan(
    model: str | os.PathLike[str] | EncoderConfig, data: PretrainingData, config: PretrainConfig, run: RunConfig
) -> TrainingPlan:
    start: ModelInit = plan_model(model if isinstance(model, EncoderConfig) else str(model))
    stages = (pretraining_stage(config, data.max_length),)
    problems = [
        *position_problems("model", start.config, stages),
        *pretraining_problems(stages, data, start.config, {"the model": start.vocabulary}),
        *unused_options(run, stages, data),
    ]
    raise_if_any(problems, Pretraining.name)
    return TrainingPlan(
        objective=Pretraining(),
        options={f"option_{name}": value for name, value in dataclasses.asdict(config).items()},
        stages=stages,
        run=run,
        start=start,
        tasks=pretraining_heads(),
        vocabulary=start.vocabulary or pretraining_vocabulary(data),
        data=data,
    )
