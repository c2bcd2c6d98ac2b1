r"""Distil a teacher into a small student.

Pass a GLUE task (--task, --data) or your own CSV, TSV or JSONL file (--train-file, --dev-file and the names of its
columns), as for finetune. Without a task, --text distils the encoder on plain text, and --pretraining-data (a
folder from pretrain-data) adds MLM and NSP losses. Stages with a task keep the weights that score best on the dev
split, others the last. --output gets model/ (the student, a model directory), metrics.jsonl, tensorboard/ and
result.json, which is also printed and has the teacher's metrics too. Rerun the same command to resume; the result
is bit-identical.

With --compare, the same student is also fine-tuned on the labels alone, from the same initial weights and for as
many steps, in fine_tuned/ in --output. comparison.json, stdout and a table on stderr compare teacher, distilled and
fine-tuned student; report.html plots their curves. You can add --compare to a finished run.

With --teacher-cache, the targets come from a folder of cache-teacher, and the teacher is not loaded.

Example:
  pocketbert distill --method=tinybert --teacher=runs/sst2/model --student=tinybert_4l_312d --task=sst2 --data=glue \
    --output=runs/sst2-tiny
  pocketbert distill --method=tinybert --teacher=runs/reviews/model --teacher-layers=1,3,5 --train-file=train.csv \
    --dev-file=dev.csv --text-column=review --label-column=stars --augmented-file=augmented.tsv --seeds=0,1,2 \
    --intermediate-epochs=3 --compare --output=runs/reviews-tiny
  pocketbert distill --method=tinybert --teacher=models/bert-base --student=tinybert_4l_312d --text=wikipedia \
    --output=runs/general
  pocketbert distill --method=mobilebert --teacher=runs/teacher/model --student=mobilebert_paper \
    --pretraining-data=data/wiki --dev-pretraining-data=data/wiki/dev --micro-batches=32 --output=runs/mobilebert
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from pocketbert.commands import distillation_options, runs
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.distillation_options import (
    DistillationDataOptions,
    DistillationOptions,
    chosen_options,
    variants,
)
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TaskOptions
from pocketbert.errors import raise_if_any
from pocketbert.training.config import RunConfig

__all__ = ["OPTIONS", "chosen_options", "run", "variants"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions:
    """Teacher cache and comparison.

    Attributes:
      teacher_cache: teacher cache written by cache-teacher; the teacher is not loaded.
      compare: also fine-tune the same student without the teacher, for as many steps, and compare.
      compare_learning_rate: peak learning rate of that fine-tuning (default: as in the stage that trains the head).
    """

    GROUP: ClassVar = "Run"

    teacher_cache: str | None = None
    compare: bool = False
    compare_learning_rate: float | None = None


# --seeds has the seeds, and the folder's options whether a run is overwritten.
OPTIONS = (
    *distillation_options.OPTIONS,
    RunFolderOptions,
    DistillOptions,
    OptionGroup(RunConfig, without=("seed", "overwrite")),
)


def run(options: Options) -> int | None:
    """Distils, once a seed; prints the result as JSON."""
    _check(options)
    own, place = options[DistillOptions], options[RunFolderOptions]
    seeds = place.seeds
    given = (distillation_options.student(options), distillation_options.data(options), place.output)
    arguments: dict[str, Any] = {
        "teacher": _teacher(options),
        "method": distillation_options.method(options),
        "run": dataclasses.replace(options[RunConfig], seed=seeds[0], overwrite=place.overwrite),
    }
    if own.compare:
        from pocketbert.distillation.comparison import distill_and_compare

        rate = own.compare_learning_rate
        return runs.print_result(options, lambda: distill_and_compare(seeds, *given, learning_rate=rate, **arguments))
    from pocketbert.distillation.run import distill, distill_seeds

    return runs.answer(options, lambda: distill(*given, **arguments), lambda: distill_seeds(seeds, *given, **arguments))


def _teacher(options: Options) -> Any:
    """What `distill` takes as its teacher."""
    teacher, cache = options[DistillationOptions].teacher or None, options[DistillOptions].teacher_cache
    if not cache:
        return teacher
    from pocketbert.distillation.plan import CachedTeacher

    return CachedTeacher(cache, teacher)


def _check(options: Options) -> None:
    problems = []
    rate = options[DistillOptions].compare_learning_rate
    if rate is not None and not options[DistillOptions].compare:
        problems.append("--compare-learning-rate belongs to --compare; received it alone")
    elif rate is not None and not rate > 0:
        problems.append(f"--compare-learning-rate must be positive; received {rate}")
    problems += distillation_options.problems(options)
    compared = options[TaskOptions].given or options[DistillationDataOptions].dev_pretraining_data
    if not compared and len(options[RunFolderOptions].seeds) > 1:
        problems.append(
            "several --seeds are compared by a task's metric, or on --dev-pretraining-data; received neither"
        )
    raise_if_any(problems, "distill")
