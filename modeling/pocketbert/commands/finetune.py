r"""Train a model directory on a task and keep the best checkpoint.

The task is one of GLUE's, with --task and --data, or a CSV, TSV or JSONL file of your own, with --train-file,
--dev-file and the names of its columns. --output gets model/ (the best checkpoint, a model directory), metrics.jsonl,
tensorboard/ and result.json, which is printed on stdout too. Interrupted, even killed, the same command goes on where
it was and ends with the same weights. With several --seeds each has a folder of its own, and the answer is the mean
and spread over them.

Example:
  pocketbert finetune --model=models/all-minilm --task=sst2 --data=glue --output=runs/sst2
  pocketbert finetune --model=models/all-minilm --train-file=train.csv --dev-file=dev.csv --text-column=review \
    --label-column=stars --epochs=2 --learning-rate=6e-5 --seeds=0,1,2 --output=runs/reviews
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from pocketbert.errors import UserError, raise_if_any

if TYPE_CHECKING:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.examples import Examples

# Field of FinetuneOptions → help. The defaults are repeated from there, since TensorFlow must not load for --help;
# a test compares them.
_OPTIONS: dict[str, tuple[Any, str]] = {
    "learning_rate": (3e-5, "the highest learning rate"),
    "schedule": ("linear", "what follows the warm-up: linear, down to 0 at the last step, or constant"),
    "warmup_ratio": (0.1, "part of all steps in which the learning rate rises from 0"),
    "epochs": (3, "passes over the training examples"),
    "batch_size": (32, "examples a step"),
    "max_length": (128, "tokens; longer texts are cut"),
    "weight_decay": (0.01, "decoupled decay of all weights but biases and norms"),
    "clip_norm": (1.0, "the highest global norm of the gradients; 0 for no clipping"),
    "precision": ("float32", "float32, or bfloat16 to compute in it with float32 weights"),
    "evaluation_steps": (None, "evaluate every so many steps, not only after each epoch"),
    "patience": (None, "stop after so many evaluations in a row without a new best"),
    "checkpoint_seconds": (60.0, "seconds between checkpoints for resuming; the result does not depend on it"),
}


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""

    def text(name: str, default: str | None, description: str) -> None:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)

    text("model", None, "the model directory to start from; a head in it is replaced by a fresh one")
    text("task", None, "a GLUE task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte or wnli")
    text("data", None, "GLUE's folder, or the task's own in it")
    text("train-file", None, "instead of --task: a .csv, .tsv or .jsonl file to train on")
    text("dev-file", None, "such a file, to choose the best checkpoint by")
    text("text-column", "text", "column of the sentence, or of the first sentence of a pair")
    text("pair-column", None, "column of the second sentence")
    text("label-column", "label", "column of the label or score")
    flags.DEFINE_list(
        "labels", None, "the labels in the order of the logits; else those found", flag_values=flag_values
    )
    flags.DEFINE_enum(
        "kind", "classification", ["classification", "regression"], "what the labels are", flag_values=flag_values
    )
    text("output", None, "the run's folder")
    flags.DEFINE_boolean(
        "overwrite", False, "throw away a finished run in --output, or one with other options", flag_values=flag_values
    )
    flags.DEFINE_list(
        "seeds", ["0"], "of fresh weights, dropout and order; several make several runs", flag_values=flag_values
    )
    define_of = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
    for name, (default, description) in _OPTIONS.items():
        kind = int if default is None else type(default)
        define_of[kind](name.replace("_", "-"), default, description, flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> int | None:
    """Trains, once a seed; prints the result as JSON."""
    _check(flag_values)
    seeds = _seeds(flag_values.seeds)

    from pocketbert.training.callbacks import TrainingFailed
    from pocketbert.training.loop import finetune, finetune_seeds
    from pocketbert.training.options import FinetuneOptions

    values = {name: flag_values[name.replace("_", "-")].value for name in _OPTIONS}
    options = FinetuneOptions(**values | {"clip_norm": values["clip_norm"] or None}, seed=seeds[0])
    task, train, dev, metrics, main_metric = _read(flag_values)
    arguments: dict[str, Any] = {
        "model_directory": flag_values.model,
        "task": task,
        "train": train,
        "dev": dev,
        "output": flag_values.output,
        "options": options,
        "metrics": metrics,
        "main_metric": main_metric,
        "overwrite": flag_values.overwrite,
    }
    try:
        if len(seeds) > 1:
            result = finetune_seeds(seeds, **arguments)
            _print_table(result)
        else:
            result = dataclasses.asdict(finetune(**arguments))
    except TrainingFailed as error:
        print(f"pocketbert finetune: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return None


def _check(flag_values: flags.FlagValues) -> None:
    given = {name for name in ("model", "output", "task", "data", "train-file", "dev-file") if flag_values[name].value}
    problems = [f"--{name} is required; received none" for name in ("model", "output") if name not in given]
    glue, own = given & {"task", "data"}, given & {"train-file", "dev-file"}
    if len(glue) + len(own) != 2 or len(glue) == 1:
        problems.append(
            "the data are either --task and --data or --train-file and --dev-file; received "
            + (" and ".join(f"--{name}" for name in sorted(glue | own)) or "none of them")
        )
    raise_if_any(problems, "finetune")


def _seeds(texts: list[str]) -> list[int]:
    try:
        seeds = [int(text) for text in texts]
    except ValueError:
        raise UserError(f"--seeds must be whole numbers with commas between them; received {','.join(texts)}") from None
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds must be at least one number, all different; received {','.join(texts)}")
    return seeds


def _read(flag_values: flags.FlagValues) -> tuple[TaskConfig, Examples, Examples, tuple[str, ...], str]:
    from pocketbert.configs import TaskConfig
    from pocketbert.data.glue import glue_task, read_glue
    from pocketbert.data.tables import read_table
    from pocketbert.tasks.metrics import default_metrics

    if flag_values.task:
        glue = glue_task(flag_values.task)
        train, dev = (read_glue(flag_values.task, flag_values.data, split) for split in ("train", "dev"))
        return glue.task, train, dev, glue.metrics, glue.main_metric
    columns = {
        "text_column": flag_values["text-column"].value,
        "pair_column": flag_values["pair-column"].value,
        "label_column": flag_values["label-column"].value,
        "kind": flag_values.kind,
    }
    train, labels = read_table(flag_values["train-file"].value, labels=flag_values.labels, **columns)
    dev, _ = read_table(flag_values["dev-file"].value, labels=labels or None, **columns)
    task = TaskConfig(kind=flag_values.kind, labels=labels)
    return task, train, dev, *default_metrics(task)


def _print_table(summary: dict[str, Any]) -> None:
    from pocketbert.progress import say

    names = list(summary["metrics"])
    say("seed    " + "".join(f"{name:>12}" for name in names))
    for result in summary["runs"]:
        say(f"{result['seed']:<8}" + "".join(f"{result['metrics'][name]:>12.4f}" for name in names))
    for row, label in (("mean", "mean"), ("standard_deviation", "± sample")):
        say(f"{label:<8}" + "".join(f"{summary['metrics'][name][row]:>12.4f}" for name in names))
