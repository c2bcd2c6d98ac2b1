r"""Pretrain a model on masked words and next sentences.

--data is a folder of pretrain-data. Without more options this is the paper's setting for MobileBERT's teacher, for
which --batch-size examples must fit into the replicas' memory: more --micro-batches need less of it, for the same
result. --output gets model/ (a model directory with both heads, for finetune and for distill --teacher), metrics.jsonl,
tensorboard/ and result.json, which is printed on stdout too. Interrupted, even killed, the same command goes on where
it was and ends with the same weights.

Example:
  pocketbert pretrain --preset=bert_base_uncased --data=data/wiki --dev-data=data/wiki/dev --steps=1000000 \
    --batch-size=256 --optimizer=adamw --learning-rate=1e-4 --precision=bfloat16 --output=runs/bert
  pocketbert pretrain --config=config.json --data=data/wiki --micro-batches=16 --distribution=mirrored \
    --output=runs/teacher
  pocketbert pretrain --student=runs/teacher/model --data=data/long --steps=50000 --output=runs/teacher-512
"""

from __future__ import annotations

from typing import Any

from absl import flags

from pocketbert.commands import method_flags, run_flags
from pocketbert.distillation.pretraining import PretrainOptions, pretrain, pretrain_seeds
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import raise_if_any

_MODELS = ("preset", "config", "student")


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""

    def text(name: str, description: str) -> None:
        flags.DEFINE_string(name, None, description, flag_values=flag_values)

    text("preset", "the architecture's name, for fresh weights; see pocketbert presets")
    text("config", "a config.json, for fresh weights in that architecture")
    text("student", "a model directory to go on from; the heads that it lacks are fresh")
    text("data", "the examples: a folder of pocketbert pretrain-data")
    text("dev-data", "held-out examples, to evaluate by after each epoch and every --evaluation-steps")
    run_flags.define(flag_values)
    method_flags.define_options(flag_values, PretrainOptions)
    # Nothing here chooses the best weights, so nothing can be patient.
    method_flags.define_options(flag_values, RunOptions, skip=["seed", "patience"])


def run(flag_values: flags.FlagValues) -> int | None:
    """Pretrains, once a seed; prints the result as JSON."""
    _check(flag_values)
    seeds = run_flags.seeds(flag_values)
    arguments: dict[str, Any] = {
        "model": next(flag_values[name].value for name in _MODELS if flag_values[name].value),
        "data": flag_values.data,
        "dev_data": flag_values["dev-data"].value,
        "options": method_flags.read_options(flag_values, PretrainOptions),
        "output": flag_values.output,
        "run": method_flags.read_options(flag_values, RunOptions, seed=seeds[0], patience=None),
        "overwrite": flag_values.overwrite,
    }
    return run_flags.answer(
        "pretrain", seeds, lambda: pretrain(**arguments), lambda: pretrain_seeds(seeds, **arguments)
    )


def _check(flag_values: flags.FlagValues) -> None:
    problems = [f"--{name} is required; received none" for name in ("data", "output") if not flag_values[name].value]
    models = [f"--{name}" for name in _MODELS if flag_values[name].value]
    if len(models) != 1:
        problems.append(
            f"the model is --preset, --config or --student; received {' and '.join(models) or 'none of them'}"
        )
    if len(flag_values.seeds) > 1 and not flag_values["dev-data"].value:
        problems.append("several --seeds are compared on --dev-data; received them without it")
    raise_if_any(problems, "pretrain")
