"""Fine-tuning: `finetune`, several seeds, and hyper-parameter grids."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pocketbert.checkpoints.families.registry import family_of
from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError, raise_if_any
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.output_folders import check_inputs
from pocketbert.tasks.registry import TASKS, get_task, listed, supervised_kinds
from pocketbert.training.callbacks import Callback
from pocketbert.training.class_weights import BALANCED, class_weights, class_weights_by_head
from pocketbert.training.config import FIXED_IN_A_GRID, WINDOW_OPTIONS, FinetuneConfig, FinetuneResult, RunConfig
from pocketbert.training.folds import check_foldable, finetune_in_folds
from pocketbert.training.frozen_weights import FrozenWeights, frozen_paths
from pocketbert.training.grids.points import Choose, Grid, Point, at_point, options_at
from pocketbert.training.grids.run import run_grid
from pocketbert.training.initialization import ModelInit, plan_model, saved_models, with_own_embedding
from pocketbert.training.kept_heads import continued_task
from pocketbert.training.objectives.finetuning import Finetuning, FinetuningPlan, finetuning_stage, log_defaults
from pocketbert.training.plan import unused_options
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import REPORT_FILE
from pocketbert.training.score_report import show_or_hide_texts
from pocketbert.training.trainer import run_plan
from pocketbert.trials.workers import Workers
from pocketbert_runtime.tokenizers.truncation import HEAD, LONGEST_FIRST, ONLY_SECOND, room_problem
from pocketbert_runtime.windows import WindowOptions

# With 500 pairs, separate texts are as good on three tasks; with all pairs, on two (docs/results/small-data.md).
_FEW_PAIRS = 1000


def finetune(
    model: Model | str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    *,
    config: FinetuneConfig = FinetuneConfig(),  # noqa: B008
    run: RunConfig = RunConfig(),  # noqa: B008
    kfold: int | None = None,
    callbacks: Sequence[Callback] = (),
) -> FinetuneResult:
    """Trains a model on a task and keeps the best checkpoint.

    Call it again with the same arguments to resume an interrupted run. On the same machine, the resumed run ends with
    bit-identical weights. For a finished run, it returns the result.

    Args:
      model: a model in memory or a model directory. Its head stays if it has the kind and labels in `data.task`, unless
        `config.new_head`; else a new head replaces it. Layers with `trainable = False` in memory keep their weights.
      data: the task and its labelled examples.
      output: folder for the run: `model/`, `metrics.jsonl`, `result.json`, `report.html`, `tensorboard/`.
      config: training options.
      run: run options.
      kfold: number of folds for cross-validation, for data without a dev split. A model trained on other folds predicts
        each example; `output` receives these predictions as `predictions.jsonl`, and a model trained on all examples.
        The result is a `CrossValidatedResult`.
      callbacks: `tf_keras.callbacks.Callback` objects, such as `TensorBoard` or `EarlyStopping`.
    Returns:
      The best checkpoint and its metrics.
    Raises:
      UserError: bad input, or `output` contains a run with other options.
      TrainingFailed: the loss or the outputs are not finite.
    """
    frozen = FrozenWeights.of(model)
    with saved_models(model, output=output, overwrite=run.overwrite) as (directory,):
        if kfold is not None:
            check_foldable(data, kfold, run, callbacks)
            if config.pairs is None:
                config = dataclasses.replace(config, pairs="joint")
            elif config.pairs == "auto":
                raise UserError(
                    f"{argument('pairs', 'auto')} chooses a form for one model, and folds have several; received "
                    f"{argument('kfold', kfold)}; pass joint or separate"
                )
            make_plan = functools.partial(plan_finetuning, directory, frozen=frozen)
            return finetune_in_folds(make_plan, directory, data, output, kfold, config=config, run=run)
        return _finetune(directory, data, output, config, run, frozen, callbacks)


def _finetune(
    directory: str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    config: FinetuneConfig,
    run: RunConfig,
    frozen: FrozenWeights,
    callbacks: Sequence[Callback] = (),
) -> FinetuneResult:
    plan = plan_finetuning(directory, data, config, run, frozen)
    check_inputs(output, (directory, *plan.data.paths()))
    plan = log_defaults(plan, config, data)
    folder, result = run_plan(plan, output, callbacks)
    show_or_hide_texts(folder / REPORT_FILE, show=run.show_texts)
    return FinetuneResult.of(folder, result)


def plan_finetuning(
    directory: str | os.PathLike[str],
    data: TaskData,
    config: FinetuneConfig,
    run: RunConfig,
    frozen: FrozenWeights = FrozenWeights(),  # noqa: B008
) -> FinetuningPlan:
    """Checks input for a fine-tuning, without writing files or making weights."""
    checked = _checked(_in_form(with_own_embedding(data, directory), config))
    data = checked.given
    start = _start(directory)
    assert start.description is not None
    continued = None if config.new_head else continued_task(start.description, data.task)
    if continued is not None and continued != data.task:
        checked = _checked(dataclasses.replace(data, task=continued))
        data = checked.given
        _check_scores(data)
    start = dataclasses.replace(start, config=get_task(data.task).encoder_config(start.config))
    config, pairs = _resolved(config, data, start, run, frozen, continues=continued is not None), config.pairs
    _check_configs([config], data, start.config, run)
    if start.vocabulary is None:
        raise UserError(
            f"fine-tuning needs a model directory with a vocab.txt or another tokenizer's files; {directory} has none; "
            "put them there"
        )
    stages = (finetuning_stage(config, data.task),)
    raise_if_any(unused_options(run, stages, checked, start.vocabulary), "fine-tuning")
    options = dataclasses.asdict(config)
    if not config.contrastive_steps:
        del options["contrastive_steps"]
    # Records of runs without these options do not have them.
    for name in ("head_start_examples", "micro_batches", "triplet_margin"):
        if options[name] == getattr(FinetuneConfig, name):
            del options[name]
    if config.pairs == "joint":
        del options["pairs"]
    plan = FinetuningPlan(
        objective=Finetuning(
            class_weights=_class_weights(config, data),
            head_pooling=config.head_pooling,
            head_start=config.head_start,
            head_start_examples=config.head_start_examples,
            contrastive_steps=config.contrastive_steps or 0,
            continues=continued is not None,
            triplet_margin=config.triplet_margin,
            compares_pairs=config.pairs == "auto",
        ),
        # Records of fine-tunings always have the second field.
        options={**options, "qat": run.qat},
        stages=stages,
        run=run,
        start=start,
        tasks=(data.task,),
        vocabulary=start.vocabulary,
        data=checked,
        windows={
            name: value for name, value in config.windows().items() if name in TASKS[data.task.kind].window_options
        },
        evaluation_batch_size=config.batch_size,
        new_head=config.new_head,
        frozen=frozen,
    )
    if config.pairs == "auto" and (problem := _comparison_problem(plan)):
        if pairs is not None:
            raise UserError(problem)
        return plan_finetuning(directory, data, dataclasses.replace(config, pairs="joint"), run, frozen)
    return plan


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
    """Runs `finetune` once for every grid point and seed; returns the result of `run_grid`.

    The grid has values for `FinetuneConfig` fields, or for precision, evaluation_steps and patience in `RunConfig`;
    other fields come from `config`. Each seed replaces the one in `run`. See `pocketbert.training.grids.run.run_grid`.
    """
    frozen = FrozenWeights.of(model)
    with saved_models(model, output=output, overwrite=run.overwrite) as (directory,):
        data = _checked(with_own_embedding(data, directory)).given
        unused = set(WINDOW_OPTIONS) - {*TASKS[data.task.kind].window_options}
        points = options_at((config, run), grid, fixed=(*FIXED_IN_A_GRID, *unused))
        # Check all points now, not hours later when the search reaches them.
        model_config = get_task(data.task).encoder_config(_start(directory).config)
        _check_configs([point_config for point_config, _ in points], data, model_config, run)
        plans = [
            plan_finetuning(directory, data, point_config, point_run, frozen) for point_config, point_run in points
        ]
        # The record omits the fields that the grid varies; their values in `config` may be invalid.
        recorded = plans[0].recorded()
        # Workers on other machines have other working directories.
        directory = Path(directory).absolute()
        return run_grid(
            grid,
            seeds,
            output,
            {name: value for name, value in recorded.items() if name != "seed" and name not in grid.values},
            functools.partial(_finetune_point, directory, data, config, run, frozen),
            choose=choose,
            workers=workers,
            work=lambda point: float(point.get("epochs") or 1),
            overwrite=run.overwrite,
        )


def _finetune_point(
    directory: Path,
    data: TaskData,
    config: FinetuneConfig,
    run: RunConfig,
    frozen: FrozenWeights,
    point: Point,
    seed: int,
    folder: Path,
) -> FinetuneResult:
    run = dataclasses.replace(at_point(run, point), seed=seed, overwrite=False)
    return _finetune(directory, data, folder, at_point(config, point), run, frozen)


def _in_form(data: TaskData, config: FinetuneConfig) -> TaskData:
    """Makes the task read pairs as the options say; raises a `UserError` without pairs with one answer each."""
    if config.pairs in (None, "joint"):
        return data
    if data.task.rules.head != "sentence" or not data.train.has_pairs:
        received = "single texts" if data.task.rules.head == "sentence" else data.task.kind
        raise UserError(
            f"{argument('pairs', config.pairs)} is for pairs of texts with one answer; received {received}; leave it "
            "out"
        )
    form: Literal["separate"] | None = "separate" if config.pairs == "separate" else data.task.pairs
    return dataclasses.replace(data, task=dataclasses.replace(data.task, pairs=form))


def _comparison_problem(plan: FinetuningPlan) -> str:
    """Returns why the forms of pairs cannot be compared; empty if they can."""
    names = {path: spec.weight_name for path, spec in tensor_specs(plan.start.config, plan.tasks).items()}
    heads = {path: name for path, name in names.items() if path.startswith("heads.")}
    option = argument("pairs", "auto")
    if plan.objective.continues or plan.tasks[0].pairs is not None:
        return (
            f"{option} is for a new head on pairs whose form is open; received a head or a task with one; pass "
            f"{argument('new_head', True)}, or leave {option} out"
        )
    truncation = plan.vocabulary.truncation
    if truncation in (LONGEST_FIRST, ONLY_SECOND):
        return (
            f"{option} needs a truncation that suits both forms; received truncation={truncation}; pass joint or "
            "separate"
        )
    if {*heads} & {*plan.frozen_paths} or {*heads.values()} & {*plan.stages[0].rate_factors}:
        return (
            f"{option} makes the head after the comparison; received frozen weights or rates for the head; pass joint "
            "or separate"
        )
    return ""


def _start(directory: str | os.PathLike[str]) -> ModelInit:
    if not Path(directory).is_dir():
        raise UserError(f"the model must be a model directory with config.json and weights; received {directory}")
    return plan_model(Path(directory))


def _resolved(
    config: FinetuneConfig,
    data: TaskData,
    start: ModelInit,
    run: RunConfig,
    frozen: FrozenWeights,
    *,
    continues: bool,
) -> FinetuneConfig:
    """Resolves defaults for the model and the data; raises a `UserError` for impossible contrastive steps."""
    train: Any = data.train
    model = start.config
    if config.pairs is None:
        compares = data.task.rules.head == "sentence" and train.has_pairs and len(train) <= _FEW_PAIRS
        compares = compares and config.head_start == "fit" and start.embeds_sentences
        compares = compares and not family_of(model.model_type).has_prediction_layers
        config = dataclasses.replace(config, pairs="auto" if compares else "joint")
    constant = {*frozen_paths(frozen, run.freeze, model, (data.task,), new_head=config.new_head)}
    trains = any(
        path.startswith("encoder.") and ".pooler." not in path and path not in constant
        for path in tensor_specs(model, (data.task,))
    )
    contrasts = data.task.kind == "classification" and train.pairs is None and trains
    contrasts = contrasts and not continues and config.head_start == "fit" and run.distribution == "one"
    config = config.resolved(model.hidden_size, data.task.kind, len(train), contrasts=contrasts)
    if config.contrastive_steps and not contrasts:
        raise UserError(
            "contrastive_steps needs classes of single texts, a new head that starts from a fit, an encoder that is "
            f"trained, and one replica; received {config.contrastive_steps} without one of them; leave it out"
        )
    return config


def _class_weights(config: FinetuneConfig, data: TaskData) -> np.ndarray | dict[str, np.ndarray] | None:
    task, text = get_task(data.task), config.class_weights
    if task.parts:
        return class_weights_by_head(text, data.task, data.train)
    counted = text == BALANCED and task.weighted_classes
    targets = task.class_targets(data.train) if counted else np.zeros(0, np.int32)
    return class_weights(text, data.task, targets)


def _check_configs(configs: Iterable[FinetuneConfig], data: TaskData, model: EncoderConfig, run: RunConfig) -> None:
    """Raises a `UserError` if a configuration does not fit the task, its examples or the model."""
    problems = []
    for config in configs:
        length = config.max_length
        if length > model.max_position_embeddings:
            problems.append(
                f"max_length must be at most the model's {model.max_position_embeddings} positions; received {length}"
            )
        if config.triplet_margin is not None and getattr(data.train, "negatives", None) is None:
            problems.append(
                f"triplet_margin needs pairs with negatives; received {config.triplet_margin:g} without them; pass "
                f"{argument('negative_column', 'COLUMN', python='negative=COLUMN')}, or leave it out"
            )
        if config.micro_batches > 1 and get_task(data.task).has_vectors:
            problems.append(
                f"micro_batches is for losses of single texts; {data.task.kind} compares several; received "
                f"{config.micro_batches}; leave it out"
            )
        problems += filter(None, [room_problem(run.truncation or HEAD, length)])
        try:
            _class_weights(config, data)
            if TASKS[data.task.kind].window_options:
                WindowOptions(max_length=length, **config.windows())
        except UserError as error:
            problems.append(str(error))
    # Points of a grid often share a problem.
    raise_if_any(dict.fromkeys(problems), "fine-tuning")


def _check_scores(data: TaskData) -> None:
    """Raises a `UserError` for scores out of a sigmoid's range."""
    if data.task.activation != "sigmoid":
        return
    scores = np.concatenate([np.asarray(part.answers) for part in (data.train, data.dev)])
    worst = float(scores[np.abs(scores - 0.5).argmax()])
    if not 0 <= worst <= 1:
        raise UserError(
            f"scores must lie between 0 and 1, because the model's head ends with a sigmoid; received {worst:g}; "
            f"divide them, or pass {argument('new_head', True)}"
        )


def _checked(data: TaskData) -> TaskRunData:
    """Checks the data as far as possible without a model."""
    if data.task.kind not in supervised_kinds():
        raise UserError(f"fine-tuning: the task must be {listed(supervised_kinds())}; received {data.task.kind}")
    checked = TaskRunData(data)
    if data.unlabelled is not None:
        raise UserError("unlabelled texts need a teacher; received them in fine-tuning; use pb.distill, or labels")
    if checked.has_soft_labels:
        raise UserError("soft labels are for distillation; received them in fine-tuning; use pb.distill, or labels")
    raise_if_any(checked.problems(supervised_kinds(), labelled=("train", "dev")), "fine-tuning")
    return checked
