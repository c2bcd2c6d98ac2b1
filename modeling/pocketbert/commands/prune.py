r"""Prune a fine-tuned BERT or RoBERTa to fewer layers, heads and neurons, with a factored embedding (ROSITA).

One pass over the training examples measures the importance of every attention head and feed-forward neuron. The
pruned model keeps the first --layers, or --teacher-layers, and in each the most important --heads and
--intermediate-size neurons; its word embedding is factored to --embedding-rank. The defaults make ROSITA6 from
BERT-base. Pass off to keep a part whole.

The model must be fine-tuned on the task. Pass a task with --task and --data, or your own file with --train-file.
--output gets model/ (a model directory), importance.safetensors, report.html and result.json, which is also printed.
Distil or fine-tune the model next. Rerun the same command to resume; the result is bit-identical.

Example:
  pocketbert prune --method=rosita --model=runs/sst2/model --task=sst2 --data=glue --output=runs/sst2-pruned
  pocketbert prune --method=rosita --model=runs/reviews/model --train-file=train.csv --text-column=review \
    --label-column=stars --layers=3 --heads=2 --intermediate-size=384 --embedding-rank=64 --output=runs/pruned
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from pocketbert.commands import runs, task_options
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import raise_if_any
from pocketbert.options import ModelPath
from pocketbert.pruning.config import PruneConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TeacherOptions:
    """Model to prune.

    Attributes:
      model: model directory, fine-tuned on the task.
    """

    GROUP: ClassVar = "Model"

    model: ModelPath


OPTIONS = (
    TeacherOptions,
    # Here, heads are attention heads, and a model has one head for its task.
    OptionGroup(TaskOptions, without=("heads", "head_weights")),
    TableOptions,
    PruneConfig,
    OptionGroup(RunFolderOptions, without=("seeds",)),
)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    raise_if_any(task_options.problems(options[TaskOptions]), "prune")


def run(options: Options) -> int | None:
    """Prunes; prints the result as JSON."""
    runs.check_output(options, single=True)
    data = task_options.read_examples(options[TaskOptions], options[TableOptions])

    from pocketbert.pruning.run import prune
    from pocketbert.tasks.registry import get_task

    default = get_task(data.task).default_max_length
    if default is not None and not options.given("max_length"):
        options.resolve(max_length=default)

    def make() -> dict[str, Any]:
        folder_options = options[RunFolderOptions]
        result = prune(
            options[TeacherOptions].model,
            data,
            folder_options.output,
            config=options[PruneConfig],
            overwrite=folder_options.overwrite,
        )
        return dataclasses.asdict(result)

    return runs.print_result(options, make)
