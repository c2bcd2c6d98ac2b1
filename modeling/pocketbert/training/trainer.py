"""The trainer runs any plan's stages in order, with a log, evaluations and checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.activation_stats import ActivationWatch
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import bar, log_info
from pocketbert.training.callbacks import Callback, RunCallbacks
from pocketbert.training.config import RunConfig, TrainResult
from pocketbert.training.distribution import Distribution, open_distribution, precision_policy
from pocketbert.training.kept_weights import load_kept, save_kept
from pocketbert.training.loss_scaling import SKIPPED, loss_scale, scales_losses
from pocketbert.training.objective import Adapters
from pocketbert.training.plan import Plan
from pocketbert.training.rounding import round_model
from pocketbert.training.run_data import StageEvaluator
from pocketbert.training.run_folder import (
    CHECKPOINT_FILE,
    CHECKPOINTS_FOLDER,
    STAGES_FOLDER,
    START_FILE,
    begin_run,
    read_record,
    run_once,
    run_seeds,
)
from pocketbert.training.stage import Stage
from pocketbert.training.stage_batches import StageBatches
from pocketbert.training.stage_log import Clock, MetricsLog, NoLog, StageLog, as_text, skipped_steps
from pocketbert.training.state import TrainState, read_state, restore_stage, write_checkpoint
from pocketbert.training.step import TrainingModel

# Examples for measuring activations: few enough to cost less than a step, in batches that fit wherever training fits.
_WATCHED_BATCHES, _WATCHED_BATCH_SIZE = 4, 8
STEPS_PER_LOG_LINE = 50
# Model names sort by step.
_STEP_DIGITS = 7
# Shorter epochs are evaluated at fixed steps: after each epoch, chance would mostly decide which is the best.
SHORT_EPOCH = 50


class Trainer:
    """Trains a plan's model from the run's last checkpoint to the end.

    Attributes:
      model: the trained model.
      adapters: trained layers between model and loss; they are not part of the model.
      state: current position.
      start: record of the start, filled by `plan`; a resumed run reads it from its file.
      extra_result: result fields known before the first step.
    """

    # For the run.
    _log: MetricsLog
    _clock: Clock
    # For the current stage.
    _training_model: TrainingModel
    _variables: dict[str, tf.Variable]
    _lines: StageLog
    _step: Callable[[Any], tf.Tensor] | None

    def __init__(
        self, plan: Plan, folder: Path, distribution: Distribution, callbacks: Sequence[Callback] = ()
    ) -> None:
        self.plan, self.folder, self.distribution = plan, folder, distribution
        self._evaluators: dict[int, StageEvaluator] = {}
        self.state = read_state(folder / CHECKPOINT_FILE) or TrainState()
        # Open the data for all stages first: bad data must be reported before anything is written.
        self.batches = [plan.open_batches(index, distribution.replicas) for index in range(len(plan.stages))]
        path = folder / START_FILE
        self.start: dict[str, Any] = read_record(path) if self.state.step and path.exists() else {}
        self.extra_result: dict[str, Any] = {}
        self.model: Model = plan.make_model(self)
        self.adapters: Adapters = plan.make_adapters(self.model)
        self.model.encoder.recomputes = plan.run.gradient_checkpointing
        self._callbacks = RunCallbacks(callbacks, self.model, distribution)

    def run(self) -> dict[str, Any]:
        """Runs the remaining stages; returns the fields for `TrainResult`, except the model's folder."""
        state, stages = self.state, self.plan.stages
        self.extra_result = self.plan.prepare(self, resumes=state.step > 0)
        if state.step:
            name = stages[state.stage].name
            where = f", in stage {name}" if name else f" of {self.batches[0].total_steps}"
            log_info(f"{self.folder}: resuming after step {state.step}{where}")
        with MetricsLog(self.folder, state.log_bytes) if self.distribution.is_chief else NoLog() as self._log:
            self._clock = Clock(state.seconds)
            self._callbacks.begin(state.step, sum(batches.total_steps for batches in self.batches))
            while True:
                is_last = self.state.stage + 1 == len(stages)
                if is_last:
                    self._round()
                if not self.state.finished:
                    self._train_stage()
                if is_last:
                    break
                self.state = self.state.next_stage()
            self._callbacks.end(self.state.step)
        return self._result()

    def _result(self) -> dict[str, Any]:
        state, watch = self.state, self.activation_watch
        summaries = zip(self.plan.stages, [*state.past, state.summary()], strict=True)
        if watch is not None:
            self.load_kept()
        return {
            "main_metric": self.plan.data.main_metric,
            **self.plan.scores(self),
            "seed": self.plan.run.seed,
            "best_step": state.best_step,
            "steps": state.step,
            "seconds": round(state.seconds, 3),
            "stages": [{"name": stage.name, **summary} for stage, summary in summaries],
            "activation_range": None if watch is None else watch.report(),
            **self.extra_result,
            **self._skipped(),
        }

    def _skipped(self) -> dict[str, int]:
        has_log = self.plan.run.precision == "float16" and self.distribution.is_chief
        return {"skipped_steps": skipped_steps(self.folder)} if has_log else {}

    def load_kept(self) -> None:
        """Loads the kept weights: the last ones may not be the best, and a resumed, finished run has initial ones."""
        load_kept(self.folder, self.model, self.adapters, self.state.kept)

    def evaluator(self, stage: Stage) -> StageEvaluator | None:
        """Returns a stage's evaluator, or None; one per sequence length, because each traces the model."""
        plan = self.plan
        length = plan.data.evaluated_length(stage)
        if length is None:
            return None
        if length not in self._evaluators:
            self._evaluators[length] = plan.data.evaluator(
                self.model, length, plan.run, plan.windows, plan.evaluation_batch_size
            )
        return self._evaluators[length]

    @functools.cached_property
    def activation_watch(self) -> ActivationWatch | None:
        """Measures a NoNorm model's activations on some training examples of the last stage; None for other models.

        Layer normalization bounds activations, so other models need no watch. All stages share it, to be comparable.
        """
        if self.model.config.norm != "no_norm":
            return None
        return ActivationWatch(self.model, self.batches[-1].first(_WATCHED_BATCHES, _WATCHED_BATCH_SIZE))

    def _kept_folder(self, index: int) -> Path:
        """Folder for a stage's kept weights; for the last stage, the run's folder."""
        if index + 1 == len(self.plan.stages):
            return self.folder
        return self.folder / STAGES_FOLDER / self.plan.stages[index].name

    def _round(self) -> None:
        """With quantization-aware training, makes the model round."""
        if self.plan.run.qat == "none":
            return
        recipe, features = self.plan.run.qat, self.plan.stages[-1].student_features
        log_info(f"rounding like {recipe}; export the model with {argument('recipe', recipe, of='export')}")
        round_model(self.model, recipe, logits_only=set(features) == {"logits"})
        # Drop graphs from earlier stages: they do not round.
        self._evaluators.clear()
        self.__dict__.pop("activation_watch", None)

    def _train_stage(self) -> None:
        """Trains the current stage from the run's position to its end; the last checkpoint records the end."""
        plan, index = self.plan, self.state.stage
        stage, batches = plan.stages[index], self.batches[index]
        if index and self.state.step == self.state.first_step:
            load_kept(self._kept_folder(index - 1), self.model, self.adapters, self.state.kept)
        self._training_model, self._step = plan.make_step(stage, self.model, self.adapters), None
        self.state, self._variables = restore_stage(
            self.folder / CHECKPOINT_FILE, self.state, stage, self._training_model, batches.total_steps, plan.run.seed
        )
        # A run without named stages has one term, which equals the loss.
        names = self._training_model.loss_names[: None if stage.name else 1]
        read_scale: Callable[[], float] | None = None
        if scales_losses(self._training_model.optimizer):
            names = (*names, SKIPPED)
            read_scale = functools.partial(loss_scale, self._training_model.optimizer)
        self._lines = StageLog(self._log, stage.name, names, self.state.losses, self.state.step, read_scale)
        title = f"stage {stage.name} ({index + 1} of {len(self.batches)}): " if stage.name else ""
        log_info(f"{title}{batches.total_steps} steps of {stage.batch_size}, {batches.count} examples")
        self._callbacks.begin_stage(stage.name, names, self.state.step, self.batches[:index])
        self._run_steps(stage, batches)
        self._callbacks.end_stage(stage.name, self.state.step)
        # The next stage reads the weights that the chief has written.
        self.distribution.wait()

    def _run_steps(self, stage: Stage, batches: StageBatches) -> None:
        state, total, evaluator = self.state, batches.total_steps, self.evaluator(stage)
        steps = total if state.stage_steps is None else state.stage_steps
        if steps != total:
            self._training_model.named_optimizer.schedule.end_after(steps)
        with bar(steps, stage.name or "training", "step", initial=state.step - state.first_step) as progress:
            while not state.finished:
                before = state.step - state.first_step - state.step_in_epoch
                rows = batches.rows(state.epoch)[: total - before]
                epoch = state.epoch
                self._callbacks.begin_epoch(epoch)
                for losses in self.steps(epoch, rows, state.step_in_epoch):
                    self._lines.watch.add(losses)
                    state.step += 1
                    stops = self._callbacks.end_step(state.step_in_epoch, state.step, losses)
                    state.step_in_epoch += 1
                    progress.update()
                    if state.step_in_epoch == len(rows):
                        state.epoch += 1
                        state.step_in_epoch = 0
                    fitting = self._callbacks.steps_of_stage(state.step - state.first_step, total, steps)
                    if fitting != steps:
                        steps = progress.total = state.stage_steps = fitting
                        self._training_model.named_optimizer.schedule.end_after(steps)
                    state.finished = state.step - state.first_step == steps
                    is_evaluated = stops or self._is_evaluated(stage, len(rows))
                    if is_evaluated or state.step % STEPS_PER_LOG_LINE == 0:
                        means = self._lines.write_losses(state.step, self._learning_rate())
                        if means:
                            progress.set_postfix_str(as_text(means), refresh=False)
                    if is_evaluated:
                        self._evaluate(stage, evaluator)
                    state.finished = state.finished or stops
                    if (state.finished or state.step_in_epoch == 0) and self._callbacks.end_epoch(epoch):
                        stops = state.finished = True
                        if not is_evaluated:
                            self._lines.write_losses(state.step, self._learning_rate())
                            self._evaluate(stage, evaluator)
                    if stops:
                        log_info(f"stopping {self._lines.when(state.step)}: a callback has set model.stop_training")
                    if state.finished and not self._selects_best(stage):
                        self._keep(stage, evaluator)
                    self._keep_checkpoint(evaluator, is_evaluated=is_evaluated or stops)
                    if state.finished or state.step_in_epoch == 0 or self._clock.due(self.plan.run.checkpoint_seconds):
                        self._write_checkpoint()
                    if state.finished:
                        break

    def steps(self, epoch: int, rows: list[np.ndarray], start: int) -> Iterator[tf.Tensor]:
        """Runs an epoch's steps from `start` on, lazily; yields each step's losses, float32 `[terms]`."""
        elements = self.batches[self.state.stage].elements
        batches = self.distribution.batches(rows[start:], lambda indices: elements(indices, epoch))
        if self._step is None:
            traced = self._training_model.TRACED
            self._step = self.distribution.step(self._losses, batches) if traced else self._losses
        for step_in_epoch, batch in enumerate(batches, start):
            self._callbacks.begin_step(step_in_epoch)
            yield self._step(batch)

    def _losses(self, batch: Any) -> tf.Tensor:
        results = self._training_model.update(batch)
        return tf.stack([results[name] for name in self._lines.names])

    def _learning_rate(self) -> float:
        """The last step's learning rate, without multipliers."""
        # `float` does not accept a mirrored variable.
        return float(tf.convert_to_tensor(self._training_model.optimizer.learning_rate))

    def _is_evaluated(self, stage: Stage, steps_per_epoch: int) -> bool:
        """Whether to evaluate now: after epochs and every `evaluation_steps`; in short epochs, at fixed steps."""
        state, run, fixed = self.state, self.plan.run, stage.short_epoch_steps
        if state.finished or (run.evaluation_steps and state.step % run.evaluation_steps == 0):
            return True
        if fixed is None or run.evaluation_steps or run.patience or steps_per_epoch >= SHORT_EPOCH:
            return state.step_in_epoch == 0
        return (state.step - state.first_step) % fixed == 0

    def _selects_best(self, stage: Stage) -> bool:
        return stage.keep == "best" and bool(self.plan.data.main_metric)

    def _evaluate(self, stage: Stage, evaluator: StageEvaluator | None) -> None:
        """Logs activations and metrics, keeps the best weights, and ends the stage when patience runs out."""
        state, patience = self.state, self.plan.run.patience
        if self.activation_watch is not None:
            self._lines.write_activations(state.step, self.activation_watch.maxima())
        if evaluator is None:
            return
        metrics = evaluator.metrics(self._lines.when(state.step))
        loss = evaluator.loss
        text = f"step {state.step}: {self._lines.write_metrics(state.step, metrics, loss)}"
        self._callbacks.evaluated(metrics, loss)
        selects = self._selects_best(stage)
        if selects and not state.is_best(metrics, loss, self.plan.data.main_metric):
            state.evaluations_since_best += 1
            log_info(text)
            if patience is not None and state.evaluations_since_best >= patience:
                log_info(f"stopping: no new best in {state.evaluations_since_best} evaluations")
                state.finished = True
            return
        if selects:
            self._keep(stage, evaluator)
            state.evaluations_since_best = 0
        state.best_metrics, state.best_loss, state.best_step = metrics, loss, state.step
        log_info(f"{text} (best so far, saved)" if selects else text)

    def _keep(self, stage: Stage, evaluator: StageEvaluator | None) -> None:
        """Saves the current weights, with thresholds and temperature from the last evaluation."""
        state, state.kept = self.state, ""
        if not self.distribution.is_chief:
            return
        fitted = getattr(evaluator, "temperature", None)
        state.temperature = fitted() if fitted and stage.calibrate else self.plan.temperature
        self._take_thresholds(evaluator, state.temperature)
        state.kept = save_kept(self._kept_folder(state.stage), self.model, self.adapters, state.temperature)

    def _keep_checkpoint(self, evaluator: StageEvaluator | None, *, is_evaluated: bool) -> None:
        """Saves the current model beside the best one, if `RunConfig.keep_checkpoints` says so."""
        state, run, kept = self.state, self.plan.run, self.plan.run.keep_checkpoints
        every_epoch = kept == "every-epoch" and (state.step_in_epoch == 0 or state.finished)
        if not self.distribution.is_chief or not (every_epoch or (isinstance(kept, int) and is_evaluated)):
            return
        # Choose thresholds for these weights, not for the best ones.
        if evaluator is not None and not is_evaluated and (run.decision_thresholds or run.reject):
            evaluator.metrics(self._lines.when(state.step))
        self._take_thresholds(evaluator, 1.0)
        folder = self.folder / CHECKPOINTS_FOLDER
        save_kept(folder / f"step-{state.step:0{_STEP_DIGITS}d}", self.model, self.adapters)
        if isinstance(kept, int):
            for old in sorted(folder.glob("step-*"))[:-kept]:
                shutil.rmtree(old)

    def _take_thresholds(self, evaluator: StageEvaluator | None, temperature: float) -> None:
        """Gives the model thresholds from the last evaluation, for logits divided by a temperature."""
        task_at = getattr(evaluator, "task_at", None)
        if task_at is not None:
            self.model.tasks = (task_at(temperature),)

    def _write_checkpoint(self) -> None:
        state = self.state
        state.losses, state.log_bytes = self._lines.watch.look(), self._log.sync()
        state.seconds = self._clock.seconds()
        if self.distribution.is_chief:
            write_checkpoint(self.folder / CHECKPOINT_FILE, self._variables, state)
        self._clock.restart()


def run_plan(
    plan: Plan, output: str | os.PathLike[str], callbacks: Sequence[Callback] = ()
) -> tuple[Path, dict[str, Any]]:
    """Starts or resumes a planned run; returns the folder and the result."""
    run, recorded = plan.run, plan.recorded()
    distribution = open_distribution(run.distribution, run.tpu)

    def train_in(folder: Path) -> dict[str, Any]:
        with precision_policy(run.precision), distribution.scope():
            trainer = Trainer(plan, folder, distribution, callbacks)
            # Not earlier, so that bad input leaves no run behind.
            if distribution.is_chief:
                begin_run(folder, recorded)
            return trainer.run()

    return run_once(output, recorded, train_in, overwrite=run.overwrite, distribution=distribution)


def train_seeds(
    train: Callable[..., TrainResult],
    seeds: Sequence[int],
    model: Any,
    data: Any,
    output: str | os.PathLike[str],
    *,
    run: RunConfig = RunConfig(),  # noqa: B008
    **arguments: Any,
) -> dict[str, Any]:
    """Runs `finetune`, `distill` or `pretrain` per seed, in subfolders `seed-N`; returns the result of `run_seeds`.

    Also writes the returned values to `result.json` in `output`. The other arguments are those for `train`; each seed
    replaces the one in `run`.
    """

    def run_one(seed: int, folder: Path) -> TrainResult:
        return train(model, data, folder, run=dataclasses.replace(run, seed=seed), **arguments)

    return run_seeds(seeds, output, run_one, writes=lambda: open_distribution(run.distribution, run.tpu).is_chief)
