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

from typing import TYPE_CHECKING, Any

from absl import flags

from pocketbert.commands import grid_flags, run_flags, task_flags
from pocketbert.errors import raise_if_any
from pocketbert.training.options import FIXED_IN_A_GRID, FinetuneOptions

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig

# Field of FinetuneOptions → help. The defaults are repeated from there, since TensorFlow must not load for --help;
# a test compares them.
_OPTIONS: dict[str, tuple[Any, str]] = {
    "learning_rate": (3e-5, "the highest learning rate"),
    "schedule": ("linear", "what follows the warm-up: linear, down to 0 at the last step, or constant"),
    "warmup_ratio": (0.1, "part of all steps in which the learning rate rises from 0"),
    "epochs": (3, "passes over the training examples"),
    "batch_size": (32, "examples a step"),
    "max_length": (128, "tokens; longer texts are cut, paragraphs read in windows of so many (384 where not given)"),
    "stride": (None, "tokens from one window of a paragraph to the next (default: a third of --max-length)"),
    "max_question_tokens": (64, "longer questions on a paragraph are cut"),
    "weight_decay": (0.01, "decoupled decay of all weights but biases and norms"),
    "clip_norm": (1.0, "the highest global norm of the gradients; 0 for no clipping"),
    "class_weights": ("none", "what examples of each class count in the loss: none, balanced or label=weight,…"),
    "precision": ("float32", "float32, or bfloat16 to compute in it with float32 weights"),
    "evaluation_steps": (None, "evaluate every so many steps, not only after each epoch"),
    "patience": (None, "stop after so many evaluations in a row without a new best"),
    "checkpoint_seconds": (60.0, "seconds between checkpoints for resuming; the result does not depend on it"),
}


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""
    define_training(flag_values)
    run_flags.define(flag_values)
    grid_flags.define(flag_values)


def define_training(flag_values: flags.FlagValues) -> None:
    """Defines what one run is told: the model, its task and examples, and how it is trained."""
    flags.DEFINE_string(
        "model",
        None,
        "the model directory to start from; a head in it is replaced by a fresh one",
        flag_values=flag_values,
    )
    task_flags.define(flag_values)
    define_of = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
    for name, (default, description) in _OPTIONS.items():
        kind = int if default is None else type(default)
        define_of[kind](name.replace("_", "-"), default, description, flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> int | None:
    """Trains, once a seed; prints the result as JSON."""
    _check(flag_values)
    seeds = run_flags.seeds(flag_values)
    grid = grid_flags.read(flag_values, FinetuneOptions, fixed=FIXED_IN_A_GRID)

    from pocketbert.training.loop import finetune, finetune_grid, finetune_seeds

    task = task_flags.read(flag_values)
    arguments: dict[str, Any] = {
        "model_directory": flag_values.model,
        **task._asdict(),
        "output": flag_values.output,
        "options": options(flag_values, task.task, seeds[0]),
        "overwrite": flag_values.overwrite,
    }
    if grid is not None:
        search = grid_flags.search(flag_values, task.task.kind)
        return grid_flags.answer("finetune", lambda: finetune_grid(grid, seeds, **search, **arguments))
    return run_flags.answer(
        "finetune", seeds, lambda: finetune(**arguments), lambda: finetune_seeds(seeds, **arguments)
    )


def options(flag_values: flags.FlagValues, task: TaskConfig, seed: int) -> FinetuneOptions:
    """The options that the flags name; where they do not say it, paragraphs are read in windows of BERT's length."""
    from pocketbert.data.windows import WindowOptions

    values = {name: flag_values[name.replace("_", "-")].value for name in _OPTIONS}
    if task.kind == "span" and not flag_values["max-length"].present:
        values["max_length"] = WindowOptions.max_length
    return FinetuneOptions(**values | {"clip_norm": values["clip_norm"] or None}, seed=seed)


def _check(flag_values: flags.FlagValues) -> None:
    required = ("model", "output")
    problems = [f"--{name} is required; received none" for name in required if not flag_values[name].value]
    raise_if_any([*problems, *task_flags.problems(flag_values)], "finetune")
