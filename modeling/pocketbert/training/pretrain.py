"""Pretraining with masked LM and next-sentence prediction: `pretrain` and several seeds."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal

from pocketbert.configs import EncoderConfig
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.errors import raise_if_any
from pocketbert.model import Model
from pocketbert.output_folders import check_inputs
from pocketbert.training.callbacks import Callback
from pocketbert.training.config import PretrainConfig, RunConfig, TrainResult
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import ModelInit, plan_model, saved_models
from pocketbert.training.objectives.pretraining import Pretraining, pretraining_stage
from pocketbert.training.plan import Plan, unused_options
from pocketbert.training.pretraining_run_data import PretrainingRunData
from pocketbert.training.stage import position_problems
from pocketbert.training.trainer import run_plan


def pretrain(
    model: Model | str | os.PathLike[str] | EncoderConfig,
    data: PretrainingData,
    output: str | os.PathLike[str],
    *,
    config: PretrainConfig = PretrainConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
    callbacks: Sequence[Callback] = (),
) -> TrainResult:
    """Pretrains a model with masked LM and next-sentence prediction.

    Call it again with the same arguments to resume an interrupted run, as for `finetune`.

    Args:
      model: name of a preset, an architecture or a config.json for new weights; or a model in memory or in a model
        directory to continue from, including its masked-LM and next-sentence heads. Layers with `trainable = False` in
        memory keep their weights.
      data: the examples; `data.dev` is the dev split.
      output: folder of the run, as for `finetune`.
      config: training options.
      run: options of the run.
      callbacks: as for `finetune`.

    Returns:
      The model with both heads, and its metrics on the dev split.

    Raises:
      UserError: bad input; nothing was written.
      TrainingFailed: the loss is not finite.
    """
    with saved_models(model) as (source,):
        plan = _plan(source, data, config, run, FrozenWeights.of(model))
        check_inputs(output, (None if isinstance(source, EncoderConfig) else source, *plan.data.paths()))
        folder, result = run_plan(plan, output, callbacks)
    return TrainResult.of(folder, result)


def _plan(
    model: str | os.PathLike[str] | EncoderConfig,
    data: PretrainingData,
    config: PretrainConfig,
    run: RunConfig,
    frozen: FrozenWeights,
) -> Plan:
    start: ModelInit = plan_model(model if isinstance(model, EncoderConfig) else str(model))
    checked = PretrainingRunData(data)
    # Patience selects the best weights; otherwise the last ones stay, as in the papers.
    keep: Literal["best", "last"] = "last" if run.patience is None or data.dev is None else "best"
    stages = (dataclasses.replace(pretraining_stage(config, data.max_length), keep=keep),)
    problems = [
        *position_problems("model", start.config, stages),
        *checked.stage_problems(stages),
        *checked.model_problems(stages, "model", start.config, {"the model": start.vocabulary}),
        *unused_options(run, stages, checked),
    ]
    raise_if_any(problems, Pretraining.name)
    return Plan(
        objective=Pretraining(),
        options={f"option_{name}": value for name, value in dataclasses.asdict(config).items()},
        stages=stages,
        run=run,
        start=start,
        tasks=checked.tasks,
        vocabulary=start.vocabulary or checked.vocabulary,
        data=checked,
        frozen=frozen,
    )
