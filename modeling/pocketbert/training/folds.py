"""Cross-validation in fine-tuning: folds give the score, and one model trains on all examples."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.configs import TaskConfig
from pocketbert.data.final_split import ThreeSplits, examples_to_fold, fold_indices, folds_of, recorded_parts
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.files import write_tensors, write_text
from pocketbert.heads_config import with_decisions_of
from pocketbert.notation import argument
from pocketbert.output_folders import check_inputs
from pocketbert.progress import log_info
from pocketbert.tasks.registry import TASKS, listed, supervised_kinds, supervised_task
from pocketbert.training.config import CrossValidatedResult, FinetuneConfig, RunConfig
from pocketbert.training.decision_options import choice_of
from pocketbert.training.objectives.finetuning import FinetuningPlan, log_defaults
from pocketbert.training.out_of_fold import OutOfFold, ScoredFold
from pocketbert.training.outcome_notes import falling_notes, with_notes
from pocketbert.training.plan import PlannedRun
from pocketbert.training.rounding import round_model
from pocketbert.training.run_data import TaskRunData
from pocketbert.training.run_folder import (
    FOLDS_FOLDER,
    MODEL_FOLDER,
    OPTIONS_FILE,
    PREDICTIONS_FILE,
    REPORT_FILE,
    begin_run,
    clear_run,
    run_once,
)
from pocketbert.training.score_report import page, show_or_hide_texts
from pocketbert.training.stage import Stage
from pocketbert.training.trainer import Trainer, run_plan
from pocketbert.trials.jobs import RESULT_FILE, read_result
from pocketbert_runtime.forward import Outputs, check_finite_answers

if TYPE_CHECKING:
    from pocketbert.model import Model
    from pocketbert.training.callbacks import Callback

MakePlan = Callable[[TaskData, FinetuneConfig, RunConfig], FinetuningPlan]
_NOTE = (
    "the metrics are means over folds; the model was trained on all {} examples for {} steps, and has no dev score of "
    "its own"
)
_CHOSEN = (
    "; its thresholds were chosen out of fold, on the predictions for all examples; the metrics of each fold are those "
    "with thresholds that the other folds chose"
)


def check_foldable(data: TaskData, kfold: int, run: RunConfig, callbacks: Sequence[Callback]) -> None:
    """Raises a `UserError` if folds cannot score the task, or contradict other options."""
    scored = [kind for kind in supervised_kinds() if TASKS[kind].scored_by_folds]
    option = argument("kfold", kfold)
    if data.task.kind not in scored:
        raise UserError(
            f"{option} needs a task of kind {listed(scored)}; received {data.task.kind}; leave it out, or pass a dev "
            "split"
        )
    if run.distribution == "multi-worker":
        raise UserError(f"{option} trains several models; received it with multi-worker; use one machine")
    if callbacks:
        raise UserError(f"{option} trains several models; received callbacks, which follow one; leave one of them out")


def finetune_in_folds(
    make_plan: MakePlan,
    directory: str | os.PathLike[str],
    data: TaskData,
    output: str | os.PathLike[str],
    kfold: int,
    *,
    config: FinetuneConfig,
    run: RunConfig,
) -> CrossValidatedResult:
    """Trains and scores a model for each fold, and trains one model on all examples; see `finetune`.

    Each fold's model trains on the other folds. A part of them, its dev split, selects its checkpoint. The last model
    takes the median steps of the folds' best checkpoints, rounded down.

    Args:
      make_plan: checks input for a fine-tuning of the model in `directory`, and returns its plan.
      directory: the model.
      data: all examples; see `check_foldable`.
      output: see `finetune`.
      kfold: number of folds.
      config: training options.
      run: run options.
    Raises:
      UserError: bad input, options that contradict folds, or `output` contains a run with other options.
      TrainingFailed: the loss or the outputs are not finite.
    """
    whole = dataclasses.replace(data, train=examples_to_fold(data, kfold), undivided=None)
    plan = make_plan(whole, config, run)
    check_inputs(output, (directory, *plan.data.paths()))
    plan = log_defaults(plan, config, data)
    validation = _CrossValidation(make_plan, data, kfold, config, plan)
    folder, result = run_once(output, validation.recorded, validation.run, overwrite=run.overwrite)
    show_or_hide_texts(folder / REPORT_FILE, show=run.show_texts)
    return CrossValidatedResult.of(folder, result)


class UnscoredData(TaskRunData):
    """Examples for training, without a dev split: no checkpoint is better than another one."""

    def __init__(self, data: TaskData) -> None:
        super().__init__(data)
        self.main_metric = ""

    def evaluated_length(self, stage: Stage) -> None:
        """See `RunData`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnscoredPlan(FinetuningPlan):
    """A fine-tuning on all examples that keeps its last weights.

    Attributes:
      decided: the task with answer thresholds chosen by the folds; None for the default.
    """

    decided: TaskConfig | None = None

    def make_model(self, run: PlannedRun) -> Model:
        """See `FinetuningPlan`; adds the thresholds."""
        model = super().make_model(run)
        if self.decided is not None:
            model.tasks = tuple(with_decisions_of(task, self.decided) for task in model.tasks)
        return model

    def scores(self, run: PlannedRun) -> dict[str, Any]:
        """Returns no metrics, but the head, as in a fine-tuning."""
        head = {name: run.start[name] for name in ("pooling", "reason") if name in run.start}
        return {"metrics": {}, "head": {**head, "temperature": run.state.temperature}}


class _CrossValidation:
    """A cross-validation with checked input; `plan` is for the model on all examples."""

    def __init__(
        self,
        make_plan: MakePlan,
        data: TaskData,
        kfold: int,
        config: FinetuneConfig,
        plan: FinetuningPlan,
    ) -> None:
        self._make_plan, self._plan = make_plan, plan
        self._indices = [indices for _, indices in fold_indices(plan.data.given.train, kfold)]
        self._folds = folds_of(data, kfold)
        # Defaults that depend on the number of examples are the same in all models.
        self._config = dataclasses.replace(
            config,
            learning_rate=plan.options["learning_rate"],
            contrastive_steps=plan.objective.contrastive_steps,
        )
        # The dev split's digest identifies scored examples; here, they are those in `train`.
        self.recorded = {
            **plan.recorded(),
            "dev_sha256": None,
            "kfold": kfold,
            **recorded_parts(plan.data.given.train, [_final(splits).dev for splits in self._folds]),
        }

    def run(self, folder: Path) -> dict[str, Any]:
        """Runs or resumes; returns the `CrossValidatedResult` fields except the folder."""
        new = not (folder / OPTIONS_FILE).exists()
        begin_run(folder, self.recorded)
        root = folder / FOLDS_FOLDER
        root.mkdir(exist_ok=True)
        try:
            outputs = [self._outputs(root, number) for number in range(1, len(self._folds) + 1)]
        except UserError:
            if new and not any(root.glob(f"*/{RESULT_FILE}")):
                # Leave no folder behind after bad input.
                clear_run(folder)
            raise
        results = [read_result(root / _name(number) / RESULT_FILE) for number in range(1, len(self._folds) + 1)]
        of_folds = self._scored(outputs)
        return self._result(folder, of_folds, results, self._train_on_all(folder, results, of_folds.decisions))

    def _outputs(self, root: Path, number: int) -> Outputs:
        """Trains a fold's model, unless its outputs exist; returns these."""
        from safetensors.numpy import load_file

        from pocketbert._keras import tf_keras
        from pocketbert.model import from_pretrained

        splits, folder, path = self._folds[number - 1], root / _name(number), root / f"{_name(number)}.safetensors"
        if not path.exists():
            log_info(f"fold {number} of {len(self._folds)}")
            run = dataclasses.replace(self._plan.run, keep_checkpoints="best", overwrite=False)
            fold_plan = self._make_plan(splits.data, self._config, run)
            run_plan(dataclasses.replace(fold_plan, compares=False), folder)
            # As in a run of its own: see `run_once`.
            tf_keras.backend.reset_uids()
            model = from_pretrained(folder / MODEL_FOLDER)
            if run.qat != "none":
                # As the evaluations of a run.
                round_model(model, run.qat, logits_only=True)
            task, final = supervised_task(fold_plan.tasks[0]), _final(splits).dev
            rows = task.rows(final, fold_plan.tokenizer, self._config.max_length, **fold_plan.windows)
            write_tensors(path, check_finite_answers(model.forward(rows.encoded)), {})
        # Nothing reads the model any more, and the page has the score on the fold's own dev split.
        shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
        (folder / REPORT_FILE).unlink(missing_ok=True)
        outputs: Outputs = load_file(path)
        return outputs

    def _scored(self, outputs: Sequence[Outputs]) -> OutOfFold:
        plan, data = self._plan, self._plan.data.given
        folds = [
            ScoredFold(data=_final(splits), indices=indices, outputs=fold_outputs)
            for splits, indices, fold_outputs in zip(self._folds, self._indices, outputs, strict=True)
        ]
        choice = choice_of(plan.run, data.main_metric)
        return OutOfFold(folds, data, plan.tokenizer, self._config.max_length, choice, **plan.windows)

    def _train_on_all(
        self, folder: Path, results: Sequence[Mapping[str, Any]], decided: TaskConfig | None
    ) -> dict[str, Any]:
        from pocketbert._keras import tf_keras
        from pocketbert.training.distribution import open_distribution, precision_policy

        best_steps = [result["best_step"] for result in results]
        steps = math.floor(statistics.median(best_steps))
        run = dataclasses.replace(self._plan.run, max_steps=steps, patience=None, evaluation_steps=None)
        plan = self._plan.as_kind(
            UnscoredPlan,
            data=UnscoredData(self._plan.data.given),
            run=run,
            compares=False,
            temperature=statistics.median(result["head"]["temperature"] for result in results),
            decided=decided,
        )
        count = len(plan.data.given.train)
        log_info(
            f"training on all {count} examples for {steps} steps, the median of the folds' best "
            f"({', '.join(map(str, best_steps))}); this model has no dev split: its quality is that of the folds"
        )
        distribution = open_distribution(run.distribution, run.tpu)
        # As in a run of its own: see `run_once`.
        tf_keras.backend.reset_uids()
        with precision_policy(run.precision), distribution.scope():
            return Trainer(plan, folder, distribution).run()

    def _result(
        self,
        folder: Path,
        of_folds: OutOfFold,
        results: Sequence[Mapping[str, Any]],
        trained: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Scores the folds, and writes predictions and page."""
        plan, given = self._plan, self._plan.data.given
        write_text(folder / PREDICTIONS_FILE, of_folds.predictions())
        scores = of_folds.scores()
        methods = [dataclasses.asdict(method) for method in scores.baselines]
        scores = with_notes(scores, methods, self._notes(folder), plan.data_notes, plan.data.paths())
        scores.log("cross-validated")
        mistakes = of_folds.mistakes() if plan.run.show_texts else None
        title = page({"cross-validated model": scores}, len(given.train), given.train.source, mistakes=mistakes)
        write_text(folder / REPORT_FILE, title)
        note = _NOTE.format(len(given.train), trained["steps"]) + ("" if of_folds.decisions is None else _CHOSEN)
        summary = of_folds.summary() | {"note": note}
        for fold, result in zip(summary["folds"], results, strict=True):
            fold |= {name: result[name] for name in ("best_step", "steps", "seconds")}
        return {
            **trained,
            **scores.to_json(),
            "main_metric": scores.main_metric,
            "best_step": trained["steps"],
            "seconds": round(trained["seconds"] + sum(result["seconds"] for result in results), 3),
            "cross_validation": summary,
        }

    def _notes(self, folder: Path) -> list[str]:
        """Warns if the dev loss fell to the end in most folds."""
        notes = [falling_notes(folder / FOLDS_FOLDER / _name(number), "") for number in range(1, len(self._folds) + 1)]
        falling = sum(map(bool, notes))
        if 2 * falling <= len(notes):
            return []
        return [f"the dev loss was still falling at the end of {falling} of {len(notes)} folds; try more epochs"]


def _name(number: int) -> str:
    return f"fold-{number}"


def _final(splits: ThreeSplits) -> TaskData:
    assert splits.final is not None
    return splits.final
