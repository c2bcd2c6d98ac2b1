"""A distilled student beside the same student fine-tuned on the labels alone.

Both start from the same weights and take as many steps, and the best of equally many evaluations is kept, so that what
is left between them is what the teacher and the augmented examples gave.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pocketbert.distillation import comparison_report
from pocketbert.distillation.label_losses import label_loss, span_label_loss
from pocketbert.distillation.method import (
    Adapters,
    Batch,
    OptimizerConfig,
    Setting,
    Stage,
    Steps,
    StudentFeatures,
    WithoutTeacher,
)
from pocketbert.distillation.preparation import Preparation, prepare
from pocketbert.distillation.run import distill_prepared
from pocketbert.distillation.run_options import DistillResult, RunOptions
from pocketbert.errors import raise_if_any
from pocketbert.files import write_json, write_text
from pocketbert.model import Model, from_pretrained
from pocketbert.progress import log_info
from pocketbert.tasks.span import SPAN_OUTPUTS
from pocketbert.training.distribution import open_distribution
from pocketbert.training.run import run_seeds, spread
from pocketbert.training.run_folder import COMPARISON_FILE, FINE_TUNED_FOLDER, LOG_FILE, REPORT_FILE

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """How the student is fine-tuned alone.

    Attributes:
      steps: updates, as many as the distillation took on the task.
      evaluations: on the development examples, evenly over the steps; as many as the distilled student had.
      batch_size: batch size.
      max_length: tokens.
      micro_batches: parts that each batch is computed in.
      optimizer: how weights are updated.
    """

    steps: int
    evaluations: int
    batch_size: int
    max_length: int
    micro_batches: int
    optimizer: OptimizerConfig


class LabelsAlone(WithoutTeacher):
    """Fine-tuning (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) as a method with one stage.

    It has no name on the command line: it belongs to a distillation, and its run has all that a distillation's has.

    Args:
      beside: that distillation, where the student's first weights come from.
    """

    name = "labels_alone"
    reference = "Devlin et al. 2019, BERT, section 3.2, https://arxiv.org/abs/1810.04805"
    options: type = FineTuningOptions

    def __init__(self, beside: Preparation) -> None:
        self._beside = beside

    def stages(self, setting: Setting, options: FineTuningOptions) -> Sequence[Stage]:
        """`fine_tuning`, on the task's own examples."""
        return [
            Stage(
                name="fine_tuning",
                teacher_features={},
                student_features={"logits": ()},
                weights={"labels": 1.0},
                data="task",
                max_length=options.max_length,
                duration=Steps(options.steps),
                batch_size=options.batch_size,
                micro_batches=options.micro_batches,
                optimizer=options.optimizer,
                keep="best",
                evaluations=options.evaluations,
            )
        ]

    def initialize(self, teacher: Model | None, student: Model, options: FineTuningOptions) -> None:
        """Copies what the distillation's method copies, and so reads the teacher that this run does not follow."""
        beside = self._beside
        if beside.store is None and beside.teacher_directory is not None:
            teacher = from_pretrained(beside.teacher_directory)
        beside.method.initialize(teacher, student, beside.options)

    def loss(
        self,
        stage: Stage,
        targets: Mapping[str, tf.Tensor],
        student: StudentFeatures,
        adapters: Adapters,
        batch: Batch,
    ) -> Mapping[str, tf.Tensor]:
        """`labels`: cross-entropy of classes or of an answer's ends, or the squared difference to scores."""
        labels, outputs = batch["labels"], student["logits"]
        if len(outputs) == 1:
            return {"labels": label_loss(labels, outputs[0])}
        positions = dict(zip(SPAN_OUTPUTS, outputs, strict=True))
        return {"labels": span_label_loss(labels, positions, batch["input_mask"])}


def distill_and_compare(
    seeds: Sequence[int],
    output: str | os.PathLike[str],
    run: RunOptions,
    *,
    learning_rate: float | None = None,
    overwrite: bool = False,
    **arguments: Any,
) -> dict[str, Any]:
    """Distils, then fine-tunes the same student on the labels alone, once a seed.

    Killed at any moment and called again with the same arguments, it goes on where it was. What `distill` has finished
    in `output` is not made again.

    Args:
      seeds: all different.
      output: the distillation's folder, as of `distill`, or of `distill_seeds` where there are several seeds. Beside
        each distilled student gets `fine_tuned/`, a run's folder; gets `comparison.json` and `report.html`.
      run: how each is run; its seed is replaced.
      learning_rate: the highest of the fine-tuning; None for that of the stage that trains the distilled student's
        head. Schedule, batch size and length are that stage's.
      overwrite: throw away finished runs in `output`, or those with other options.
      **arguments: the others of `prepare`.

    Returns:
      What `distill` gives, or `distill_seeds`, and in `comparison` what `compared` does.

    Raises:
      UserError: as `distill`; or nothing can be compared, which is said before anything is trained.
      TrainingFailed: as `distill`.
    """
    pairs: list[_Pair] = []

    def run_one(seed: int, folder: Path) -> DistillResult:
        preparation = prepare(run=dataclasses.replace(run, seed=seed), **arguments)
        pairs.append(_make_pair(preparation, folder, learning_rate, overwrite=overwrite))
        return pairs[-1].distilled

    def writes() -> bool:
        return open_distribution(run.distribution, run.tpu).is_chief

    folder = Path(output)
    result = (
        dataclasses.asdict(run_one(seeds[0], folder))
        if len(seeds) == 1
        else run_seeds(seeds, folder, run_one, writes=writes)
    )
    found = compared([(pair.distilled, pair.fine_tuned) for pair in pairs], pairs[0].dev_examples)
    if writes():
        write_json(folder / COMPARISON_FILE, found)
        logs = [{"distilled": pair.distilled_log, "fine_tuned": pair.fine_tuned_log} for pair in pairs]
        write_text(folder / REPORT_FILE, comparison_report.page(found, logs))
    for line in comparison_report.table(found):
        log_info(line)
    log_info(comparison_report.sentence(found))
    return {**result, "comparison": found}


def compared(pairs: Sequence[tuple[DistillResult, DistillResult]], dev_examples: int) -> dict[str, Any]:
    """What comparisons of one or more seeds say together.

    Args:
      pairs: of each seed the distilled student's result and the fine-tuned one's.
      dev_examples: how many examples the metrics are of.

    Returns:
      `main_metric`, `seeds`, `dev_examples`; `rows`, of `teacher`, `distilled` and `fine_tuned` the `name`, `metrics`
      (each one's `spread` over the seeds; None for a teacher that was not scored), and the mean `steps` and `seconds`
      (None of the teacher); `difference`, each metric's `spread` of distilled less fine-tuned, seed by seed;
      `baseline`, as the results have it; and `warnings`, of which student and seed.
    """
    distilled, fine_tuned = ([pair[side] for pair in pairs] for side in (0, 1))
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
            },
            _row("distilled", distilled),
            _row("fine_tuned", fine_tuned),
        ],
        "difference": {
            name: spread([one.metrics[name] - other.metrics[name] for one, other in pairs])
            for name in distilled[0].metrics
        },
        "baseline": distilled[0].baseline,
        "warnings": [
            f"{name}, seed {result.seed}: {warning}"
            for pair in pairs
            for name, result in zip(("distilled", "fine-tuned alone"), pair, strict=True)
            for warning in result.warnings
        ],
    }


def _row(name: str, results: Sequence[DistillResult]) -> dict[str, Any]:
    return {
        "name": name,
        "metrics": {metric: spread([each.metrics[metric] for each in results]) for metric in results[0].metrics},
        "steps": round(statistics.fmean(each.steps for each in results)),
        "seconds": round(statistics.fmean(each.seconds for each in results), 3),
    }


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Of one seed both students, the lines of their logs, and how many examples scored them."""

    distilled: DistillResult
    fine_tuned: DistillResult
    distilled_log: list[dict[str, Any]]
    fine_tuned_log: list[dict[str, Any]]
    dev_examples: int


def _make_pair(preparation: Preparation, folder: Path, learning_rate: float | None, *, overwrite: bool) -> _Pair:
    _check(preparation)
    assert preparation.task_data is not None
    distilled = distill_prepared(preparation, folder, overwrite=overwrite)
    distilled_log = _read_log(folder)
    of_task = {stage.name for stage in preparation.stages if stage.data in ("task", "augmented")}
    head = preparation.stages[-1]
    optimizer = head.optimizer
    if learning_rate is not None:
        optimizer = dataclasses.replace(optimizer, learning_rate=learning_rate)
    options = FineTuningOptions(
        steps=sum(stage["steps"] for stage in distilled.stages if stage["name"] in of_task),
        evaluations=sum(line["split"] == "dev" for line in distilled_log),
        batch_size=head.batch_size,
        max_length=head.max_length,
        micro_batches=head.micro_batches,
        optimizer=optimizer,
    )
    method = LabelsAlone(preparation)
    alone = dataclasses.replace(
        preparation,
        method=method,
        options=options,
        stages=tuple(method.stages(preparation.setting, options)),
        run=dataclasses.replace(preparation.run, evaluation_steps=None, patience=None),
        store=None,
        task_data=dataclasses.replace(preparation.task_data, augmented=None),
        text=None,
        pretraining=None,
        dev_pretraining=None,
    )
    log_info("the same student, fine-tuned on the labels alone")
    fine_tuned = distill_prepared(alone, folder / FINE_TUNED_FOLDER, overwrite=overwrite)
    return _Pair(
        distilled=distilled,
        fine_tuned=fine_tuned,
        distilled_log=distilled_log,
        fine_tuned_log=_read_log(folder / FINE_TUNED_FOLDER),
        dev_examples=len(preparation.task_data.dev),
    )


def _check(preparation: Preparation) -> None:
    """Refuses a distillation beside which fine-tuning says nothing."""
    method, data, last = preparation.method.name, preparation.task_data, preparation.stages[-1]
    names = ", ".join(stage.name for stage in preparation.stages)
    problems = []
    if data is None or last.data not in ("task", "augmented"):
        problems.append(
            f"only a task has labels to fine-tune on; {method} ends with stage {last.name}, which learns from "
            f"{last.data}; leave the comparison out, and compare what becomes of this student on a task"
        )
    else:
        if not data.train.labelled:
            problems.append(f"fine-tuning learns from labels; {data.train.source} has none; give labelled examples")
        if "logits" not in last.student_features:
            problems.append(
                f"there must be a metric to compare; stage {last.name}, the last one, trains no head; end with one "
                "that does"
            )
        if not any(stage.teacher_features for stage in preparation.stages):
            problems.append(f"the student must learn from a teacher; {names} of {method} is fine-tuning already")
    raise_if_any(problems, "compare")


def _read_log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LOG_FILE).read_text("utf-8").splitlines()]
