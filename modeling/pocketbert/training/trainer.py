"""The trainer: it runs the stages of any objective in order, with a log, evaluations and checkpoints."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pocketbert._keras import tf_keras
from pocketbert.activation_stats import ActivationWatch
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.training.callbacks import MetricsLog, NoLog
from pocketbert.training.distribution import Distribution, open_distribution, precision_policy
from pocketbert.training.initialization import make_model
from pocketbert.training.objective import Adapters
from pocketbert.training.plan import TrainingPlan
from pocketbert.training.rounding import round_model
from pocketbert.training.run_data import StageEvaluator
from pocketbert.training.run_folder import (
    CHECKPOINT_FILE,
    RESULT_FILE,
    STAGES_FOLDER,
    begin_run,
    open_run,
    read_result,
    record_outcome,
)
from pocketbert.training.stage import Stage
from pocketbert.training.stage_data import EncodedSource, PretrainingSource, Source, StageData
from pocketbert.training.stage_run import Clock, StageLoop, StageRun, load_kept
from pocketbert.training.state import TrainState, check_kept, read_state
from pocketbert.training.step import TrainingModel

# Examples that measure activations: few enough to cost less than a step, in batches that fit wherever training fits.
_WATCHED_BATCHES, _WATCHED_BATCH_SIZE = 4, 8


class Trainer:
    """Trains a model from the last checkpoint of a run to the end of its last stage.

    Subclasses add what an objective needs: a distillation adds its teacher, a fine-tuning its report.

    Args:
      plan: model, objective, data and stages.
      folder: folder of the run.
      distribution: replicas of the run; if there are several processes, only the chief writes.

    Attributes:
      model: the trained model.
      adapters: trained layers between the model and the loss; they are not part of the model.
      state: current position of the run.
    """

    def __init__(self, plan: TrainingPlan, folder: Path, distribution: Distribution) -> None:
        self.plan, self.folder, self.distribution = plan, folder, distribution
        self._evaluators: dict[int, StageEvaluator] = {}
        self.state = read_state(folder / CHECKPOINT_FILE) or TrainState()
        # Open the data of all stages first: bad data must be reported before anything is written.
        self.data = [
            StageData(stage, self.make_source(index, stage), distribution.replicas)
            for index, stage in enumerate(plan.stages)
        ]
        self.model = self.make_model()
        self.adapters: Adapters = {}

    def make_source(self, index: int, stage: Stage) -> Source:
        """Opens the examples of a stage; `index` is its number, from 0."""
        plan = self.plan
        encoded = plan.encoded(stage)
        if encoded is None:
            return PretrainingSource(plan.data.given, plan.run.seed, index, whole_words=plan.run.whole_words)
        masks = plan.tokenizer if stage.masked_text else None
        return EncodedSource(encoded, plan.run.seed, masks=masks, cache=self.teacher_cache(stage, encoded))

    def teacher_cache(self, stage: Stage, encoded: EncodedExamples) -> TeacherCache | None:
        """Cached teacher targets for the examples of a stage, or None."""
        return None

    def make_model(self) -> Model:
        """Makes the model with its initial weights."""
        plan = self.plan
        if plan.frozen_parts:
            log_info(
                f"keeping {len(plan.frozen_paths)} weights as they are, because their layers have trainable=False: "
                f"{', '.join(plan.frozen_parts)}"
            )
        return make_model(plan.start, plan.tasks, plan.tokenizer, plan.run.seed, new_head=plan.new_head)

    def make_step(self, stage: Stage) -> TrainingModel:
        """Makes the model with its loss for a stage."""
        return TrainingModel(self.model, self.plan.objective, stage, adapters=self.adapters)

    def begin(self) -> None:
        """Hook before the first step of a new run; resumed runs do not call it."""

    def run(self) -> dict[str, Any]:
        """Runs the remaining stages; returns the fields of `TrainResult` except the model's folder."""
        state, stages = self.state, self.plan.stages
        if state.step:
            name = stages[state.stage].name
            where = f", in stage {name}" if name else f" of {self.data[0].total_steps}"
            log_info(f"{self.folder}: resuming after step {state.step}{where}")
        elif not state.stage:
            self.begin()
        with MetricsLog(self.folder, state.log_bytes) if self.distribution.is_chief else NoLog() as log:
            clock = Clock(state.seconds)
            while True:
                is_last = self.state.stage + 1 == len(stages)
                if is_last:
                    self._round()
                if not self.state.finished:
                    self._train_stage(log, clock)
                if is_last:
                    break
                self.state = self.state.next_stage()
        return self.result()

    def result(self) -> dict[str, Any]:
        """Fields of `TrainResult` except the model's folder, after the last stage."""
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
            "activation_range": None if watch is None else watch.report(),
        }

    def scores(self) -> dict[str, Any]:
        """Fields of `TrainResult` that describe the metrics."""
        title = f"{self.plan.ROLE}, after step {self.state.best_step}"
        return self.plan.data.result(self.state.best_metrics, title)

    def load_kept(self) -> None:
        """Loads the weights that the run keeps.

        The last step is not always the best one, and a resumed run that had finished training has initial weights.
        """
        check_kept(self.folder, self.state.kept)
        load_kept(self.folder, self.model, self.adapters)

    def evaluator(self, stage: Stage) -> StageEvaluator | None:
        """Returns the evaluator of a stage, or None; one per sequence length, because each traces the model."""
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
        """Measures activations of a NoNorm model on some training examples of the last stage; None for other models.

        Layer normalization bounds activations, so other models need no watch. All stages share it, so that their
        curves are comparable.
        """
        if self.model.config.norm != "no_norm":
            return None
        return ActivationWatch(self.model, self.data[-1].some(_WATCHED_BATCHES, _WATCHED_BATCH_SIZE))

    def kept_folder(self, index: int) -> Path:
        """Folder of the weights that a stage keeps; the last stage keeps the run's."""
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
        # Their graphs of earlier stages do not round.
        self._evaluators.clear()
        self.__dict__.pop("activation_watch", None)

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
        StageLoop(self, stage_run, log, clock).run()
        # The next stage reads the weights that the chief has written.
        self.distribution.wait()


def run_plan(
    plan: TrainingPlan, output: str | os.PathLike[str], trainer: Callable[..., Trainer] = Trainer
) -> tuple[Path, dict[str, Any]]:
    """Starts or resumes a planned run.

    Args:
      plan: the run.
      output: folder of the run.
      trainer: makes the trainer from plan, folder and distribution.

    Returns:
      The folder and the result.
    """
    run, recorded = plan.run, plan.recorded()
    distribution = open_distribution(run.distribution, run.tpu)

    def train_in(folder: Path) -> dict[str, Any]:
        with precision_policy(run.precision), distribution.scope():
            started = trainer(plan, folder, distribution)
            # Not earlier, so that bad input leaves no run behind.
            if distribution.is_chief:
                begin_run(folder, recorded)
            return started.run()

    return run_once(output, recorded, train_in, overwrite=run.overwrite, distribution=distribution)


def run_once(
    output: str | os.PathLike[str],
    recorded: Mapping[str, Any],
    train: Callable[[Path], dict[str, Any]],
    *,
    overwrite: bool,
    distribution: Distribution | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Returns the result of a finished run; starts or resumes any other run.

    Args:
      output: folder of the run.
      recorded: everything that determines the result, as JSON values.
      train: resumes from the state in the folder and returns the result. It calls `begin_run` after it has checked its
        input, so that bad input leaves no run behind.
      overwrite: discard a finished run, or a run with other options.
      distribution: replicas of the run. Only the chief writes; the other processes read its files.

    Returns:
      The folder and the result.
    """
    distribution = distribution or open_distribution()
    with _opened(output, recorded, distribution, overwrite=overwrite) as folder:
        path = folder / RESULT_FILE
        if distribution.as_chief_says(path.exists()):
            log_info(f"{folder}: this run is finished; reading its result")
            result = read_result(path)
        else:
            # Keras numbers layers across the process, and graphs contain the numbers in names that affect the order of
            # sums. Without a reset, the last bits of a run would depend on models made before it.
            tf_keras.backend.reset_uids()
            result = train(folder)
            if distribution.is_chief:
                if result.get("outcome") is not None:
                    record_outcome(folder, result["outcome"])
                write_json(path, result)
        if distribution.is_chief:
            (folder / CHECKPOINT_FILE).unlink(missing_ok=True)
        # Other processes would treat a worker that leaves early as failed.
        distribution.leave()
        # The same types as in the file, with lists for tuples, whether or not this process sees the file yet.
        return folder, json.loads(json.dumps(result))


@contextlib.contextmanager
def _opened(
    output: str | os.PathLike[str], recorded: Mapping[str, Any], distribution: Distribution, *, overwrite: bool
) -> Iterator[Path]:
    """Opens the run folder; the chief opens it before other processes read it."""
    if not distribution.is_chief:
        if not distribution.as_chief_says(True):
            raise UserError(f"the chief could not use {output}; read the chief's error message")
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
