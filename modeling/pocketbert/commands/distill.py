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

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert.commands import distillation_flags, method_flags, run_flags, task_flags
from pocketbert.distillation.methods import get_method
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import raise_if_any


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags, but not those of a method."""
    distillation_flags.define(flag_values)
    flags.DEFINE_string(
        "teacher-cache",
        None,
        "the teacher's targets as cache-teacher wrote them; the teacher is then not loaded",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "compare",
        False,
        "then fine-tune the same student on the labels alone, in as many steps, and show both beside the teacher",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "compare-learning-rate",
        None,
        "the highest of that fine-tuning (default: of the stage that trains the distilled student's head)",
        flag_values=flag_values,
    )
    run_flags.define(flag_values)
    method_flags.define_options(flag_values, RunOptions, skip=["seed"])


def define_chosen(flag_values: flags.FlagValues, arguments: Sequence[str]) -> None:
    """Defines the flags of the method that the command line names."""
    method_flags.define_chosen(flag_values, arguments)


def run(flag_values: flags.FlagValues) -> int | None:
    """Distils, once a seed; prints the result as JSON."""
    method = get_method(method_flags.required_method(flag_values))
    _check(flag_values)
    seeds = run_flags.seeds(flag_values)
    options = method_flags.read_options(flag_values, method.options)
    run_options = method_flags.read_options(flag_values, RunOptions, seed=seeds[0])
    layers = distillation_flags.teacher_layers(flag_values)

    arguments: dict[str, Any] = {
        "method": method,
        "options": options,
        "student": flag_values.student,
        "teacher_layers": layers,
        **_folders(flag_values),
        "task_data": distillation_flags.task_data(flag_values),
        "run": run_options,
        "output": flag_values.output,
        "overwrite": flag_values.overwrite,
    }
    if flag_values.compare:
        from pocketbert.distillation.comparison import distill_and_compare

        rate = flag_values["compare-learning-rate"].value
        return run_flags.print_result("distill", lambda: distill_and_compare(seeds, learning_rate=rate, **arguments))
    from pocketbert.distillation.run import distill, distill_seeds

    return run_flags.answer("distill", seeds, lambda: distill(**arguments), lambda: distill_seeds(seeds, **arguments))


def _folders(flag_values: flags.FlagValues) -> dict[str, Path | None]:
    named = {
        "teacher_directory": flag_values.teacher,
        "store": flag_values["teacher-cache"].value,
        "text": flag_values.text,
    }
    return {
        **{name: Path(folder) if folder else None for name, folder in named.items()},
        **distillation_flags.pretraining(flag_values),
    }


def _check(flag_values: flags.FlagValues) -> None:
    problems = []
    if not flag_values.output:
        problems.append("--output is required; received none")
    rate = flag_values["compare-learning-rate"].value
    if rate is not None and not flag_values.compare:
        problems.append("--compare-learning-rate belongs to --compare; received it alone")
    elif rate is not None and not rate > 0:
        problems.append(f"--compare-learning-rate must be positive; received {rate}")
    problems += distillation_flags.problems(flag_values)
    compared = task_flags.given(flag_values) or flag_values["dev-pretraining-data"].value
    if not compared and len(flag_values.seeds) > 1:
        problems.append(
            "several --seeds are compared by a task's metric, or on --dev-pretraining-data; received neither"
        )
    raise_if_any(problems, "distill")
