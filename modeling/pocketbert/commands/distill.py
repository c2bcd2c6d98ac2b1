r"""Distil a teacher into a small student.

The task is one of GLUE's, with --task and --data, or a CSV, TSV or JSONL file of your own, with --train-file,
--dev-file and the names of its columns, as for finetune. Without a task, --text distils the encoder on plain text, and
--pretraining-data, a folder of pretrain-data, teaches what it knows of masked words. Where a stage learns the task, the
weights that do best on the development examples are kept; else the last.
--output gets model/ (the student, a model directory), metrics.jsonl, tensorboard/ and result.json, which is printed on
stdout too and has the teacher's metrics beside the student's. Interrupted, even killed, the same command goes on where
it was and ends with the same weights.

With --compare the same student is then fine-tuned on the labels alone, from the same first weights and in as many
steps, in fine_tuned/ in --output. comparison.json, the answer and a table on stderr have teacher, distilled and
fine-tuned student side by side; report.html has the curves of both. A finished run in --output is not made again for
it.

With --teacher-cache the teacher's targets come from a folder that cache-teacher wrote, and the teacher is not loaded.

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
from pathlib import Path
from typing import ClassVar

from pocketbert.commands import distillation_options, runs
from pocketbert.commands.command_line import Options, Part
from pocketbert.commands.distillation_options import DistillationDataOptions, chosen_options, variants
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TaskOptions
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import raise_if_any

__all__ = ["OPTIONS", "chosen_options", "run", "variants"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillOptions:
    """Where the targets come from, and what the student is compared with.

    Attributes:
      teacher_cache: the teacher's targets as cache-teacher wrote them; the teacher is then not loaded.
      compare: then fine-tune the same student on the labels alone, in as many steps, and show both beside the teacher.
      compare_learning_rate: the highest of that fine-tuning (default: of the stage that trains the distilled student's
        head).
    """

    GROUP: ClassVar = "Run"

    teacher_cache: str | None = None
    compare: bool = False
    compare_learning_rate: float | None = None


# --seeds has the seeds.
OPTIONS = (*distillation_options.OPTIONS, RunFolderOptions, DistillOptions, Part(RunOptions, without=("seed",)))


def run(options: Options) -> int | None:
    """Distils, once a seed; prints the result as JSON."""
    _check(options)
    own, place = options[DistillOptions], options[RunFolderOptions]
    seeds = place.seeds
    arguments = {
        **distillation_options.arguments(options),
        "store": Path(own.teacher_cache) if own.teacher_cache else None,
        "run": dataclasses.replace(options[RunOptions], seed=seeds[0]),
        "output": place.output,
        "overwrite": place.overwrite,
    }
    if own.compare:
        from pocketbert.distillation.comparison import distill_and_compare

        rate = own.compare_learning_rate
        return runs.print_result(options, lambda: distill_and_compare(seeds, learning_rate=rate, **arguments))
    from pocketbert.distillation.run import distill, distill_seeds

    return runs.answer(options, lambda: distill(**arguments), lambda: distill_seeds(seeds, **arguments))


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
