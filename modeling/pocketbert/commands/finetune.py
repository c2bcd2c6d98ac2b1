r"""Train a model directory on a task and keep the best checkpoint.

The task is one of GLUE's, xnli, squad, squad2 or tydiqa, with --task and --data, or a CSV, TSV or JSONL file of your
own, with --train-file, --dev-file (or a tenth is set aside) and the names of its columns. A .json file is one of
questions on paragraphs, as SQuAD's: the model learns where the answer starts and ends, in windows of --max-length
tokens, and, if some questions have no answer, when to give none. --output gets model/ (the best checkpoint, a model
directory), metrics.jsonl, tensorboard/, report.html and result.json, which is printed on stdout too. They show a
baseline beside each score (always the most frequent label, the mean score, or no answer) and the results of each class.
Interrupted, even killed, the same command goes on where it was and ends with the same weights. With several --seeds
each has a folder of its own, and the answer is the mean and spread over them.

With --grid options vary over the values behind them, or over those that a paper searched, named bert, mobilebert,
tinybert, minilmv2 (GLUE), minilmv2-xnli, minilmv2-squad2, minilmv2-mlqa or hsk: every combination is trained with every
seed, in runs/ in --output, and the answer, a table and report.html there say which is best on the development examples.
Finished runs are not made again. --seeds are the seeds themselves: --seeds=0,1,2 makes three runs of each combination,
--seeds=3 makes one, of seed 3.

Example:
  pocketbert finetune --model=models/all-minilm --task=sst2 --data=glue --output=runs/sst2
  pocketbert finetune --model=models/all-minilm --train-file=train.csv --dev-file=dev.csv --text-column=review \
    --label-column=stars --epochs=2 --learning-rate=6e-5 --seeds=0,1,2 --output=runs/reviews
  pocketbert finetune --model=models/all-minilm --train-file=questions.json --dev-file=held-out.json \
    --max-length=384 --output=runs/questions
  pocketbert finetune --model=models/mobilebert --task=mrpc --data=glue --grid=learning_rate=3e-5,5e-5,1e-4 \
    --grid=epochs=3,5,10 --seeds=0,1,2 --parallel=2 --output=runs/mrpc-grid
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.commands import grid_options, runs, task_options
from pocketbert.commands.command_line import Options, Part
from pocketbert.commands.grid_options import GridOptions
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import raise_if_any
from pocketbert.training.options import FIXED_IN_A_GRID, FinetuneOptions

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartOptions:
    """Where training starts.

    Attributes:
      model: the model directory to start from; a head in it is replaced by a fresh one.
    """

    GROUP: ClassVar = "Model"

    model: str


# --seeds has the seeds.
TRAINING = (TaskOptions, TableOptions, Part(FinetuneOptions, without=("seed",)))
OPTIONS = (StartOptions, *TRAINING, RunFolderOptions, GridOptions)


def run(options: Options) -> int | None:
    """Trains, once a seed; prints the result as JSON."""
    raise_if_any(task_options.problems(options[TaskOptions]), "finetune")
    place = options[RunFolderOptions]
    seeds = place.seeds
    grid = grid_options.read(options, FinetuneOptions, fixed=FIXED_IN_A_GRID)

    from pocketbert.training.loop import finetune, finetune_grid, finetune_seeds

    task = task_options.read(options[TaskOptions], options[TableOptions])
    arguments: dict[str, Any] = {
        "model_directory": options[StartOptions].model,
        **task._asdict(),
        "output": place.output,
        "options": training_options(options, task.task, seeds[0]),
        "overwrite": place.overwrite,
    }
    if grid is not None:
        search = grid_options.search(options[GridOptions], task.task.kind)
        return grid_options.answer(options, lambda: finetune_grid(grid, seeds, **search, **arguments))
    return runs.answer(options, lambda: finetune(**arguments), lambda: finetune_seeds(seeds, **arguments))


def training_options(options: Options, task: TaskConfig, seed: int) -> FinetuneOptions:
    """The options as given; where they do not say it, paragraphs are read in windows of BERT's length."""
    from pocketbert.data.windows import WindowOptions

    given: dict[str, Any] = {"seed": seed}
    if task.kind == "span" and not options.given("max_length"):
        given["max_length"] = WindowOptions.max_length
    return dataclasses.replace(options[FinetuneOptions], **given)
