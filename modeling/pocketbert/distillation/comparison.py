"""Compares a distilled student with the no-distillation baseline: the same student, fine-tuned on labels.

Both start from the same weights, take as many steps and keep the best of as many evaluations, so the difference is due
to the teacher and the augmented examples.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.directory import read_described
from pocketbert.distillation import comparison_report
from pocketbert.distillation.plan import DistillationPlan
from pocketbert.distillation.planning import plan_distillation, warn_of_few_examples
from pocketbert.distillation.run import check_outputs, with_data_notes
from pocketbert.errors import raise_if_any
from pocketbert.files import write_json, write_text
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.training.config import DistillResult, RunConfig, TrainResult
from pocketbert.training.distribution import open_distribution
from pocketbert.training.frozen_weights import FrozenWeights
from pocketbert.training.initialization import saved_models
from pocketbert.training.objectives.finetuning import Finetuning, label_stage
from pocketbert.training.plan import Plan, PlannedRun, open_data
from pocketbert.training.run_data import Data
from pocketbert.training.run_folder import (
    COMPARISON_FILE,
    FINE_TUNED_FOLDER,
    OPTIONS_FILE,
    REPORT_FILE,
    read_log,
    read_record,
    run_seeds,
    spread,
)
from pocketbert.training.stage import Steps
from pocketbert.training.trainer import run_plan
from pocketbert.trials.jobs import RESULT_FILE, read_result


@dataclass(frozen=True, kw_only=True)
class _BaselinePlan(Plan):
    """The baseline to a `distillation` plan, from the student's initial weights."""

    distillation: DistillationPlan

    def make_model(self, run: PlannedRun) -> Model:
        """Makes the student with its initial weights."""
        return self.distillation.with_teacher_layers(super().make_model(run))

    def prepare(self, run: PlannedRun, *, resumes: bool) -> dict[str, Any]:
        """Copies the same weights as the method, so that both students start equal."""
        if not resumes and self.start.directory is None:
            self.distillation.initialize(run.model)
        return {}


def distill_and_compare(
    seeds: Sequence[int],
    student: Any,
    data: Data,
    output: str | os.PathLike[str],
    *,
    learning_rate: float | None = None,
    others: Sequence[str | os.PathLike[str]] = (),
    run: RunConfig = RunConfig(),  # noqa: B008
    **arguments: Any,
) -> dict[str, Any]:
    """Distils a student, then fine-tunes the same student on the labels, once per seed.

    Call it again with the same arguments to resume. It reuses a finished distillation in `output`.

    The arguments are those of `distill`, or of `train_seeds` for several seeds; `learning_rate`, the peak rate in
    fine-tuning (None: as in the stage that trains the head, like schedule, batch size and sequence length always); and
    `others`, folders with finished runs on the same dev split, to show in the table. Each run's folder receives
    `fine_tuned/`; `output` receives `comparison.json` and `report.html`.

    Returns:
      The result of `distill` or `train_seeds`, with the result of `compared` as `comparison`.
    Raises:
      UserError: as for `distill`, or the comparison is not possible; nothing was trained.
      TrainingFailed: as for `distill`.
    """
    pairs: list[_Pair] = []
    other_rows: list[dict[str, Any]] = []
    teacher = arguments.pop("teacher", None)

    def run_one(seed: int, folder: Path) -> DistillResult:
        models = saved_models(student, teacher, output=folder, overwrite=run.overwrite)
        with models as (student_given, teacher_given):
            check_outputs(folder, student_given, teacher_given, data)
            seeded = dataclasses.replace(run, seed=seed)
            frozen = FrozenWeights.of(student)
            plan = plan_distillation(student_given, data, teacher=teacher_given, run=seeded, frozen=frozen, **arguments)
            warn_of_few_examples(plan)
            if not pairs:
                other_rows.extend(_other_rows(others, plan))
            pairs.append(_make_pair(plan, folder, learning_rate))
        return pairs[-1].distilled

    def writes() -> bool:
        return open_distribution(run.distribution, run.tpu).is_chief

    folder = Path(output)
    result = (
        dataclasses.asdict(run_one(seeds[0], folder))
        if len(seeds) == 1
        else run_seeds(seeds, folder, run_one, writes=writes)
    )
    comparison = compared([(pair.distilled, pair.fine_tuned) for pair in pairs], pairs[0].dev_examples, other_rows)
    if writes():
        write_json(folder / COMPARISON_FILE, comparison)
        logs = [{"distilled": pair.distilled_log, "fine_tuned": pair.fine_tuned_log} for pair in pairs]
        write_text(folder / REPORT_FILE, comparison_report.page(comparison, logs))
    for line in comparison_report.table(comparison):
        log_info(line)
    log_info(comparison_report.sentence(comparison))
    log_info(f"the better model is {comparison['better_model']}")
    for warning in comparison["warnings"]:
        log_info(f"warning: {warning}")
    return {**result, "comparison": comparison}


def compared(
    pairs: Sequence[tuple[DistillResult, TrainResult]], dev_examples: int, others: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Summarizes comparisons for one or more seeds.

    Returns:
      `main_metric`, `seeds`, `dev_examples`; `rows` for `teacher`, `distilled`, `fine_tuned` and `others`, with `name`,
      `metrics` (`spread` over seeds; None for a teacher without metrics), the mean `steps` and `seconds` (None for the
      teacher) and `teacher_cache_bytes` (None without a cache); `difference`, the `spread` of distilled minus
      fine-tuned per metric, paired by seed; `baseline`, the results' majority baseline; `warnings` with student and
      seed; and `better_model`, the better student's model directory.
    """
    distilled: list[DistillResult] = [pair[0] for pair in pairs]
    fine_tuned: list[TrainResult] = [pair[1] for pair in pairs]
    teacher = distilled[0].teacher_metrics
    return {
        "main_metric": distilled[0].main_metric,
        "seeds": [result.seed for result in distilled],
        "dev_examples": dev_examples,
        "rows": [
            {
                "name": "teacher",
                "metrics": None if teacher is None else {name: spread([value]) for name, value in teacher.items()},
                "steps": None,
                "seconds": None,
                "teacher_cache_bytes": None,
            },
            _row("distilled", distilled),
            _row("fine_tuned", fine_tuned),
            *others,
        ],
        "difference": {
            name: spread([one.metrics[name] - other.metrics[name] for one, other in pairs])
            for name in distilled[0].metrics
        },
        "baseline": distilled[0].baseline,
        "better_model": _better_model(pairs),
        "warnings": [
            *_worse_than_alone(pairs),
            *(
                f"{name}, seed {result.seed}: {warning}"
                for pair in pairs
                for name, result in zip(("distilled", "fine-tuned alone"), pair, strict=True)
                for warning in result.warnings
            ),
        ],
    }


def _better_model(pairs: Sequence[tuple[DistillResult, TrainResult]]) -> str:
    """Returns the better student's best run, as a model directory; the mean main metric decides."""
    main = pairs[0][0].main_metric
    columns = [[pair[side] for pair in pairs] for side in (0, 1)]
    better = max(columns, key=lambda results: statistics.fmean(result.metrics[main] for result in results))
    return max(better, key=lambda result: result.metrics[main]).model_directory


def _worse_than_alone(pairs: Sequence[tuple[DistillResult, TrainResult]]) -> list[str]:
    """Warns if the distilled student is more than two standard errors below the same student fine-tuned alone."""
    main, outcome = pairs[0][0].main_metric, pairs[0][0].outcome
    distilled, alone = (statistics.fmean(pair[side].metrics[main] for pair in pairs) for side in (0, 1))
    interval = (outcome or {}).get("interval")
    # A 95 % interval is four standard errors wide.
    if interval is None or alone - distilled <= (interval[1] - interval[0]) / 2:
        return []
    return [
        f"the same student fine-tuned alone is better: {main} {alone:.4f} against {distilled:.4f} distilled; use "
        f"{_better_model(pairs)}"
    ]


def _row(name: str, results: Sequence[TrainResult]) -> dict[str, Any]:
    return {
        "name": name,
        "metrics": {metric: spread([result.metrics[metric] for result in results]) for metric in results[0].metrics},
        "steps": round(statistics.fmean(result.steps for result in results)),
        "seconds": round(statistics.fmean(result.seconds for result in results), 3),
        "teacher_cache_bytes": getattr(results[0], "teacher_cache_bytes", None),
    }


def _other_rows(folders: Sequence[str | os.PathLike[str]], plan: DistillationPlan) -> list[dict[str, Any]]:
    """Reads other finished runs' rows; raises a `UserError` for a run that is not comparable."""
    problems, rows = [], []
    expected = plan.recorded()
    for folder in map(Path, folders):
        if not ((folder / RESULT_FILE).exists() and (folder / OPTIONS_FILE).exists()):
            problems.append(f"a run to compare with must be a finished run of one seed; received {folder}")
            continue
        recorded, result = read_record(folder / OPTIONS_FILE), read_result(folder / RESULT_FILE)
        if any(recorded.get(name) != expected[name] for name in ("dev_sha256", "main_metric")):
            problems.append(
                f"a run to compare with must have the same dev split and metric; received {folder} with others; pass "
                f"both runs the same data and {argument('dev')}"
            )
            continue
        rows.append(
            {
                "name": str(folder),
                "metrics": {name: spread([value]) for name, value in result["metrics"].items()},
                **{name: result.get(name) for name in ("steps", "seconds", "teacher_cache_bytes")},
            }
        )
    raise_if_any(problems, "compare")
    return rows


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Both students for a seed, their logged lines, and the dev split's size."""

    distilled: DistillResult
    fine_tuned: TrainResult
    distilled_log: list[dict[str, Any]]
    fine_tuned_log: list[dict[str, Any]]
    dev_examples: int


def _make_pair(plan: DistillationPlan, folder: Path, learning_rate: float | None) -> _Pair:
    _check(plan)
    if plan.start.description is not None:
        # Both students start from one reading.
        start = dataclasses.replace(plan.start, description=read_described(plan.start.description))
        plan = dataclasses.replace(plan, start=start)
    plan = with_data_notes(plan)
    data = plan.data.given
    distilled = DistillResult.of(*run_plan(plan, folder))
    distilled_log = read_log(folder)
    of_task = {stage.name for stage in plan.stages if stage.data != "text"}
    head = plan.stages[-1]
    optimizer = head.optimizer
    if learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=learning_rate)
    steps = sum(stage["steps"] for stage in distilled.stages if stage["name"] in of_task)
    stage = label_stage(
        data.task,
        name="fine_tuning",
        max_length=head.max_length,
        duration=Steps(steps),
        batch_size=head.batch_size,
        micro_batches=head.micro_batches,
        optimizer=optimizer,
        evaluations=sum(line["split"] == "dev" for line in distilled_log),
    )
    alone = _BaselinePlan(
        objective=Finetuning(),
        options={"stage": stage.describe(), "distillation": plan.recorded()},
        stages=(stage,),
        run=dataclasses.replace(plan.run, evaluation_steps=None, patience=None, max_steps=None),
        start=plan.start,
        tasks=plan.tasks,
        vocabulary=plan.vocabulary,
        data=open_data(dataclasses.replace(data, augmented=None, unlabelled=None)),
        frozen=plan.frozen,
        distillation=plan,
    )
    log_info("baseline: fine-tuning the same student on the labels")
    fine_tuned = TrainResult.of(*run_plan(alone, folder / FINE_TUNED_FOLDER))
    return _Pair(
        distilled=distilled,
        fine_tuned=fine_tuned,
        distilled_log=distilled_log,
        fine_tuned_log=read_log(folder / FINE_TUNED_FOLDER),
        dev_examples=len(data.dev),
    )


def _check(plan: DistillationPlan) -> None:
    """Raises a `UserError` if fine-tuning is not a baseline for the distillation."""
    method, data, last = plan.objective.name, plan.data, plan.stages[-1]
    names = ", ".join(stage.name for stage in plan.stages)
    problems = []
    if data.task is None:
        problems.append(
            f"a comparison needs a task with labels; {method} ends with stage {last.name} on {last.data}; leave the "
            "comparison out, and compare after you distil this student on a task"
        )
    else:
        train = data.given.train
        if not train.labelled:
            problems.append(f"fine-tuning learns from labels; {train.source} has none; give labelled examples")
        if "logits" not in last.student_features:
            problems.append(
                f"the last stage must train a head, to compare metrics; received stage {last.name}; end with a stage "
                "that trains one"
            )
        if not any(stage.teacher_features for stage in plan.stages):
            problems.append(f"a comparison needs a stage that reads the teacher; {method} has none in {names}")
        if plan.run.qat != "none":
            problems.append(
                f"a comparison needs qat=none, because the baseline does not round; received {plan.run.qat}; compare "
                "without qat first"
            )
    raise_if_any(problems, "compare")
