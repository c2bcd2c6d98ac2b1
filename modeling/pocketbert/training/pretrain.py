"""Pretraining with masked LM, with or without next-sentence prediction: `pretrain`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Literal

from pocketbert.configs import EncoderConfig
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TextData
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.output_folders import check_inputs
from pocketbert.training.adaptation import AdaptationResult, plan_adaptation
from pocketbert.training.callbacks import Callback
from pocketbert.training.config import RunConfig, TrainResult
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import plan_model, saved_models
from pocketbert.training.objectives.pretraining import Pretraining, pretraining_stage
from pocketbert.training.plan import Plan, unused_options
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.pretraining_run_data import PretrainingRunData
from pocketbert.training.stage import position_problems
from pocketbert.training.trainer import run_plan


def pretrain(
    model: Model | str | os.PathLike[str] | EncoderConfig,
    data: PretrainingData | TextData,
    output: str | os.PathLike[str],
    *,
    config: PretrainConfig = PretrainConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
    callbacks: Sequence[Callback] = (),
) -> TrainResult:
    """Pretrains a model with masked LM and next-sentence prediction, or with masked LM alone on plain text.

    Call it again with the same arguments to resume an interrupted run, as for `finetune`.

    Args:
      model: a preset name, an architecture or a config.json for new weights; or a model in memory or in a model
        directory to continue from, including its masked-LM and next-sentence heads. Layers with `trainable = False` in
        memory keep their weights. Plain text needs a model with a tokenizer.
      data: the examples; `data.dev` is the dev split. With `PretrainConfig(objective="mlm")`, plain text from
        `pb.data.text`.
      output: folder for the run, as for `finetune`.
      config: training options.
      run: run options.
      callbacks: as for `finetune`.
    Returns:
      The model with its pretraining heads, and its dev metrics; an `AdaptationResult` for plain text.
    Raises:
      UserError: bad input; nothing was written.
      TrainingFailed: the loss is not finite.
    """
    with saved_models(model, output=output, overwrite=run.overwrite) as (source,):
        frozen = FrozenWeights.of(model)
        start = source if isinstance(source, EncoderConfig) else str(source)
        plan = (
            plan_adaptation(start, data, config, run, frozen)
            if isinstance(data, TextData)
            else _plan(start, data, config, run, frozen)
        )
        check_inputs(output, (None if isinstance(source, EncoderConfig) else source, *plan.data.paths()))
        folder, result = run_plan(plan, output, callbacks)
    return (AdaptationResult if isinstance(data, TextData) else TrainResult).of(folder, result)


def _plan(
    model: str | EncoderConfig,
    data: PretrainingData,
    config: PretrainConfig,
    run: RunConfig,
    frozen: FrozenWeights,
) -> Plan:
    if config.objective != "mlm-nsp":
        raise UserError(
            f"{argument('objective', config.objective)} reads plain text; received examples of pretrain-data in "
            f"{data.folder}; give {argument('text', python='pb.data.text(…)')}, or leave the objective out"
        )
    start = plan_model(model)
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
        options=config.recorded(),
        stages=stages,
        run=run,
        start=start,
        tasks=checked.tasks,
        vocabulary=start.vocabulary or checked.vocabulary,
        data=checked,
        frozen=frozen,
    )
