r"""Fine-tune a model directory on a task and keep the best checkpoint.

Pass a task with --task and --data, or your own file with --train-file: a CSV, TSV or JSONL table with texts and
labels, questions in SQuAD's JSON format, or a CoNLL file. Without --dev-file, a tenth of the examples
is the dev split.

--output gets model/ (the best checkpoint), metrics.jsonl, tensorboard/, report.html and result.json, which is also
printed. Results include scores per class and a baseline: the most frequent label, the mean score, or no answer.
Rerun the same command to resume; the result is bit-identical. With several --seeds, each run has its own folder,
and you also get mean and spread.

For small data, --kfold=5 scores each example with a model trained on the other folds, and writes these predictions
to predictions.jsonl. model/ is then trained on all examples, and has no dev score. These predictions also choose the
thresholds for --decision-thresholds and --reject.

From a CoNLL file, or a JSONL file with --kind=token_classification, the model learns to find spans such as names.

For questions, the model predicts the start and end of the answer in windows of --max-length tokens. It also learns
to give no answer if some training questions have none.

--grid searches over your values, or over a paper's: bert, mobilebert, tinybert, minilmv2 (GLUE), minilmv2-xnli,
minilmv2-squad2, minilmv2-mlqa or hsk. It trains each combination with each seed, in OUTPUT/runs, and shows the best
one on the dev split. Finished runs are not repeated.

Example:
  pocketbert finetune --model=models/all-minilm --task=sst2 --data=glue --output=runs/sst2
  pocketbert finetune --model=models/all-minilm --train-file=train.csv --dev-file=dev.csv --text-column=review \
    --label-column=stars --epochs=2 --learning-rate=6e-5 --seeds=0,1,2 --output=runs/reviews
  pocketbert finetune --model=models/all-minilm --train-file=questions.json --dev-file=dev.json \
    --max-length=384 --output=runs/questions
  pocketbert finetune --model=models/mobilebert --task=mrpc --data=glue --grid=learning_rate=3e-5,5e-5,1e-4 \
    --grid=epochs=3,5,10 --seeds=0,1,2 --parallel=2 --output=runs/mrpc-grid
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from pocketbert.commands import grid_options, runs, task_options
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.grid_options import GridOptions
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.commands.task_options import TableOptions, TaskOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import ModelPath
from pocketbert.training.config import FIXED_IN_A_GRID, FinetuneConfig, RunConfig
from pocketbert.training.grids.published import PUBLISHED, PUBLISHED_HEAD

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartOptions:
    """Model to fine-tune.

    Attributes:
      model: model directory; its head stays if it has the task's kind and labels.
    """

    GROUP: ClassVar = "Model"

    model: ModelPath


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldOptions:
    """Cross-validation.

    Attributes:
      kfold: number of folds for the score, instead of a dev split; the model is then trained on all examples in
        --train-file, for the median of the folds' best steps.
    """

    GROUP: ClassVar = "Training"
    COMMON: ClassVar = ("kfold",)

    kfold: int | None = None

    def __post_init__(self) -> None:
        if self.kfold is not None and self.kfold < 2:
            raise UserError(f"--kfold must be at least 2; received {self.kfold}; pass --kfold=5, for example")


# `RunConfig` options without effect on fine-tuning.
_NOT_OF_FINETUNING = ("teacher_precision", "evaluation_batches", "whole_words")
_DATA_AND_TRAINING = (TaskOptions, TableOptions, FinetuneConfig)
# For `bundle`, which exports in one process.
TRAINING = (
    *_DATA_AND_TRAINING,
    OptionGroup(RunConfig, without=("seed", "overwrite", "distribution", "tpu", *_NOT_OF_FINETUNING)),
)
OPTIONS = (
    StartOptions,
    *_DATA_AND_TRAINING,
    FoldOptions,
    OptionGroup(RunConfig, without=("seed", "overwrite", *_NOT_OF_FINETUNING)),
    RunFolderOptions,
    GridOptions,
)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    problems = task_options.problems(options[TaskOptions])
    if options[GridOptions].grid and options[RunConfig].distribution == "multi-worker":
        problems.append("--grid trains several models; received it with --distribution=multi-worker; use --ray instead")
    kfold, given = options[FoldOptions].kfold, options[TaskOptions].given
    if kfold is not None:
        contradicts = [f"--{name.replace('_', '-')}" for name in ("dev_file", "task") if name in given]
        contradicts += ["--grid"] if options[GridOptions].grid else []
        contradicts += ["--distribution=multi-worker"] if options[RunConfig].distribution == "multi-worker" else []
        problems += [
            f"--kfold divides the examples of --train-file and trains a model for each part; received --kfold={kfold} "
            f"with {option}; leave one of them out"
            for option in contradicts
        ]
    raise_if_any(problems, "finetune")


def run(options: Options) -> int | None:
    """Fine-tunes once per seed; prints the result as JSON."""
    folder_options = options[RunFolderOptions]
    seeds = folder_options.seeds
    if any(name in PUBLISHED for name in options[GridOptions].grid):
        # The papers' heads read the first token and start at random.
        options.resolve(**{name: value for name, value in PUBLISHED_HEAD.items() if not options.given(name)})
    grid = grid_options.read(options, (FinetuneConfig, RunConfig), fixed=FIXED_IN_A_GRID)

    runs.check_output(options, single=grid is None)
    data = task_options.read_examples(options[TaskOptions], options[TableOptions])

    from pocketbert.training.finetune import finetune, finetune_grid

    positional = (options[StartOptions].model, data, folder_options.output)
    arguments: dict[str, Any] = {
        "config": training_config(options, data.task),
        "run": dataclasses.replace(options[RunConfig], seed=seeds[0], overwrite=folder_options.overwrite),
    }
    if options[FoldOptions].kfold is not None:
        arguments["kfold"] = options[FoldOptions].kfold
    if grid is not None:
        search = grid_options.search(options[GridOptions], data.task.kind)
        return grid_options.answer(options, lambda: finetune_grid(grid, seeds, *positional, **{**search, **arguments}))
    return runs.answer(options, finetune, *positional, **arguments)


def training_config(options: Options, task: TaskConfig) -> FinetuneConfig:
    """Returns the training options; the task sets the default length."""
    from pocketbert.tasks.registry import get_task

    default = get_task(task).default_max_length
    if default is not None and not options.given("max_length"):
        options.resolve(max_length=default)
    return options[FinetuneConfig]
