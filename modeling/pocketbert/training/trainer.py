"""The trainer: the stages of any objective one after another, with log, evaluations and checkpoints."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.activation_stats import ActivationWatch
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.task_data import TaskData, TextData
from pocketbert.data.teacher_cache import TeacherCache
from pocketbert.errors import TrainingFailed
from pocketbert.model import Model
from pocketbert.progress import bar, log_info
from pocketbert.tasks.registry import supervised_task
from pocketbert.training import activations
from pocketbert.training.callbacks import LossWatch, MetricsLog, NoLog
from pocketbert.training.distribution import Distribution
from pocketbert.training.initialization import make_model
from pocketbert.training.objective import Adapters
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.run import Clock
from pocketbert.training.run_folder import CHECKPOINT_FILE, STAGES_FOLDER
from pocketbert.training.stage import Stage
from pocketbert.training.stage_data import EncodedSource, PretrainingSource, Source, StageData
from pocketbert.training.stage_evaluation import StageEvaluator, evaluated_length, make_evaluator
from pocketbert.training.stage_examples import StageExamples
from pocketbert.training.stage_run import StageRun, load_kept
from pocketbert.training.state import TrainState, check_kept, read_state, write_checkpoint
from pocketbert.training.step import TrainingModel

STEPS_PER_LOG_LINE = 50


class Trainer:
    """Trains a model from a run's last checkpoint to the end of its last stage.

    A subclass adds what its objective needs besides: a distillation its teacher, a fine-tuning its report.

    Args:
      plan: what is trained, and on what.
      folder: the run's.
      distribution: the run's replicas; of several processes only the chief writes.

    Attributes:
      model: what is trained.
      adapters: layers between the model and the loss; they learn and are no part of the model.
      state: where the run stands.
    """

    def __init__(self, plan: TrainingPlan, folder: Path, distribution: Distribution) -> None:
        self.plan, self.folder, self.distribution = plan, folder, distribution
        self._evaluators: dict[int, StageEvaluator] = {}
        self.tokenizer = plan.vocabulary.tokenizer()
        self.examples = StageExamples(plan.data, self.tokenizer, plan.run.seed, plan.windows)
        self.state = read_state(folder / CHECKPOINT_FILE) or TrainState()
        # All of them: what does not fit is refused before anything is written.
        self.data = [
            StageData(stage, self.make_source(index, stage), distribution.replicas)
            for index, stage in enumerate(plan.stages)
        ]
        self.model = self.make_model()
        self.adapters: Adapters = {}

    def make_source(self, index: int, stage: Stage) -> Source:
        """The examples of the stage of this number."""
        run, data = self.plan.run, self.plan.data
        if not isinstance(data, TaskData | TextData):
            return PretrainingSource(data, run.seed, index, whole_words=run.whole_words)
        encoded = self.examples.of_stage(stage)
        masks = self.tokenizer if stage.masked_text else None
        return EncodedSource(encoded, run.seed, masks=masks, cache=self.teacher_cache(stage, encoded))

    def teacher_cache(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        """A teacher's targets for the examples of a stage; None where they are not cached."""
        return None

    def make_model(self) -> Model:
        """The model with its first weights."""
        return make_model(self.plan.start, self.plan.tasks, self.tokenizer, self.plan.run.seed)

    def make_step(self, stage: Stage) -> TrainingModel:
        """What a step of the stage updates."""
        return TrainingModel(self.model, self.plan.objective, stage, adapters=self.adapters)

    def begin(self) -> None:
        """Called before the first step of a run that starts anew."""

    def run(self) -> dict[str, Any]:
        """Goes through the stages; returns the result's fields but the model's folder."""
        state, stages = self.state, self.plan.stages
        if state.step:
            name = stages[state.stage].name
            where = f", in stage {name}" if name else f" of {self.data[0].total_steps}"
            log_info(f"{self.folder}: going on after step {state.step}{where}")
        elif not state.stage:
            self.begin()
        with MetricsLog(self.folder, state.log_bytes) if self.distribution.is_chief else NoLog() as log:
            clock = Clock(state.seconds)
            while True:
                if not self.state.finished:
                    self._train_stage(log, clock)
                if self.state.stage + 1 == len(stages):
                    break
                self.state = self.state.next_stage()
        return self.result()

    def result(self) -> dict[str, Any]:
        """What a finished run answers, but the model's folder."""
        state, watch = self.state, self.activation_watch
        summaries = zip(self.plan.stages, [*state.past, state.summary()], strict=True)
        if watch is not None:
            self.load_kept()
        return {
            "main_metric": self.plan.main_metric,
            **self.scores(),
            "seed": self.plan.run.seed,
            "best_step": state.best_step,
            "steps": state.step,
            "seconds": round(state.seconds, 3),
            "stages": [{"name": stage.name, **summary} for stage, summary in summaries],
            "activation_range": activations.report(watch),
        }

    def scores(self) -> dict[str, Any]:
        """The metrics for the result, beside the baseline's where a task was learned; says them."""
        data, metrics = self.plan.data, self.state.best_metrics
        if not isinstance(data, TaskData) or not metrics:
            return {"metrics": metrics}
        found = supervised_task(data.task).beside_baseline(data.dev, metrics, data.metrics, data.main_metric)
        found.log(f"student, after step {self.state.best_step}")
        return found.to_json()

    def load_kept(self) -> None:
        """Sets the weights to those that the run keeps: the last steps need not be the best.

        Of a run that was killed after them the model is fresh.
        """
        check_kept(self.folder, self.state.kept)
        load_kept(self.folder, self.model, self.adapters)

    def evaluator(self, stage: Stage) -> StageEvaluator | None:
        """Scores the model; made once a length, since making it is tracing the model."""
        length = evaluated_length(self.plan, stage)
        if length is None:
            return None
        if length not in self._evaluators:
            self._evaluators[length] = make_evaluator(self.model, self.plan, length)
        return self._evaluators[length]

    @functools.cached_property
    def activation_watch(self) -> ActivationWatch | None:
        """One for all stages, so that their curves continue: on the last one's training examples."""
        return activations.open_watch(
            self.model, lambda: self.data[-1].some(activations.BATCHES, activations.BATCH_SIZE)
        )

    def kept_folder(self, index: int) -> Path:
        """Where a stage's weights are kept: the last one's are the run's."""
        if index + 1 == len(self.plan.stages):
            return self.folder
        return self.folder / STAGES_FOLDER / self.plan.stages[index].name

    def _train_stage(self, log: MetricsLog, clock: Clock) -> None:
        plan, index = self.plan, self.state.stage
        stage, data = plan.stages[index], self.data[index]
        if index and self.state.step == self.state.first_step:
            check_kept(self.kept_folder(index - 1), self.state.kept)
            load_kept(self.kept_folder(index - 1), self.model, self.adapters)
        stage_run = StageRun(stage, self.model, self.make_step(stage), data, plan.run, self.distribution)
        self.state = stage_run.restore(self.folder, self.state)
        named = f"stage {stage.name} ({index + 1} of {len(self.data)}): " if stage.name else ""
        log_info(f"{named}{data.total_steps} steps of {stage.batch_size}, {len(data)} examples")
        _StageLoop(self, stage_run, log, clock).run()
        # The next stage starts from what the chief has written.
        self.distribution.wait()


class _StageLoop:
    """The steps of one stage, from where the run stands."""

    def __init__(self, trainer: Trainer, stage_run: StageRun, log: MetricsLog, clock: Clock) -> None:
        self.trainer, self.stage_run, self.log, self.clock = trainer, stage_run, log, clock
        self.state, self.stage = trainer.state, stage_run.stage
        self.watch = LossWatch(self.state.losses, self.state.step, stage_run.loss_names, self.stage.name)
        self.evaluator = trainer.evaluator(self.stage)
        self.main_metric = trainer.plan.main_metric if self.stage.keep == "best" else None

    def run(self) -> None:
        """Trains until the stage is finished; its last checkpoint says so."""
        state, total = self.state, self.stage_run.total_steps
        run = self.trainer.plan.run
        with bar(total, self.stage.name or "training", "step", initial=state.step - state.first_step) as progress:
            while not state.finished:
                before = state.step - state.first_step - state.step_in_epoch
                plan = self.stage_run.plan(state.epoch)[: total - before]
                for losses in self.stage_run.steps(state.epoch, plan, state.step_in_epoch):
                    self.watch.add(losses)
                    state.step += 1
                    state.step_in_epoch += 1
                    progress.update()
                    if state.step % STEPS_PER_LOG_LINE == 0:
                        self._log_losses(progress)
                    if state.step_in_epoch == len(plan):
                        state.epoch += 1
                        state.step_in_epoch = 0
                        state.finished = state.step - state.first_step == total
                    every = run.evaluation_steps
                    if state.step_in_epoch == 0 or (every and state.step % every == 0):
                        self._log_losses(progress)
                        self._log_activations()
                        self._evaluate()
                    if state.finished and self.main_metric is None:
                        self._save()
                    if state.finished or state.step_in_epoch == 0 or self.clock.due(run.checkpoint_seconds):
                        self._write_checkpoint()
                    if state.finished:
                        break

    def _write_checkpoint(self) -> None:
        state, trainer = self.state, self.trainer
        state.losses, state.log_bytes = self.watch.look(), self.log.sync()
        state.seconds = self.clock.seconds()
        if trainer.distribution.is_chief:
            write_checkpoint(trainer.folder / CHECKPOINT_FILE, self.stage_run.variables, state)
        self.clock.restart()

    def _save(self) -> None:
        """Keeps the weights as they are."""
        trainer = self.trainer
        self.state.kept = ""
        if trainer.distribution.is_chief:
            task = getattr(self.evaluator, "task", None)
            self.state.kept = self.stage_run.save(trainer.kept_folder(self.state.stage), task)

    def _log_losses(self, progress: Any) -> None:
        rows = self.watch.look()
        if rows:
            means = {
                name: math.fsum(values) / len(rows)
                for name, values in zip(self.stage_run.loss_names, zip(*rows, strict=True), strict=True)
            }
            self._write_line("train", {**means, "learning_rate": self.stage_run.learning_rate()})
            progress.set_postfix_str(", ".join(f"{name} {mean:.4f}" for name, mean in means.items()), refresh=False)
            self.watch.clear()

    def _log_activations(self) -> None:
        watch = self.trainer.activation_watch
        if watch is None:
            return
        maxima = watch.maxima()
        for where, value in maxima.named().items():
            if not math.isfinite(value):
                raise TrainingFailed(
                    f"activations must stay finite; {where} is not after step {self.state.step}{self._of_stage}; try a "
                    "lower learning rate, a longer warm-up, or clipping"
                )
        self._write_line("activations", maxima.largest())

    @property
    def _of_stage(self) -> str:
        return f" of stage {self.stage.name}" if self.stage.name else ""

    def _evaluate(self) -> None:
        """Logs the metrics, keeps the weights if they are the best so far, and ends the stage if patience is over."""
        state = self.state
        if self.evaluator is None:
            return
        found = self.evaluator.metrics(f"after step {state.step}{self._of_stage}")
        self._write_line("dev", found)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        if self.main_metric is None:
            state.best_metrics, state.best_step = found, state.step
            log_info(f"step {state.step}: {shown}")
            return
        # Every metric is better when it is higher; of equals the earlier stays.
        if not state.best_metrics or found[self.main_metric] > state.best_metrics[self.main_metric]:
            self._save()
            state.best_metrics, state.best_step, state.evaluations_since_best = found, state.step, 0
            log_info(f"step {state.step}: {shown} (best so far, saved)")
            return
        state.evaluations_since_best += 1
        log_info(f"step {state.step}: {shown}")
        patience = self.trainer.plan.run.patience
        if patience is not None and state.evaluations_since_best >= patience:
            log_info(f"stopping: no new best in {state.evaluations_since_best} evaluations")
            state.finished = True

    def _write_line(self, split: str, numbers: Mapping[str, float]) -> None:
        self.log.write(self.state.step, split, numbers, self.stage.name)
