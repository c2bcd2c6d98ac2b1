r"""Pretrain a model from scratch with MLM and NSP.

Make the examples with pretrain-data. The defaults are the settings of MobileBERT's teacher. If a batch does not fit
into memory, increase --micro-batches; the update is the same. --output gets model/ (a model directory with both
heads, for finetune and distill --teacher), metrics.jsonl, tensorboard/ and result.json, which is also printed.
Rerun the same command to resume; the result is bit-identical.

Example:
  pocketbert pretrain --model=bert_base_uncased --data=data/wiki --dev-data=data/wiki/dev --steps=1000000 \
    --batch-size=256 --optimizer=adamw --learning-rate=1e-4 --precision=bfloat16 --output=runs/bert
  pocketbert pretrain --model=config.json --data=data/wiki --micro-batches=16 --distribution=mirrored \
    --output=runs/teacher
  pocketbert pretrain --model=runs/teacher/model --data=data/long --steps=50000 --output=runs/teacher-512
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from pocketbert.commands import runs
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.errors import raise_if_any
from pocketbert.options import DirectoryPath, PresetOrPath
from pocketbert.training.config import PretrainConfig, RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingModelOptions:
    """Model and data of pretraining.

    Attributes:
      model: a preset or config.json for random weights, or a model directory to continue from.
      data: folder with examples from pocketbert pretrain-data.
      dev_data: dev split, evaluated after each epoch and every --evaluation-steps, such as the dev folder in --data.
    """

    GROUP: ClassVar = "Data"

    model: PresetOrPath
    data: DirectoryPath
    dev_data: DirectoryPath | None = None


# RunFolderOptions has the seeds.
# Options of `RunConfig` without effect on pretraining.
_NOT_OF_PRETRAINING = (
    "seed",
    "truncation",
    "qat",
    "teacher_precision",
    "show_texts",
    "overwrite",
    "decision_thresholds",
    "reject",
)

OPTIONS = (
    PretrainingModelOptions,
    PretrainConfig,
    RunFolderOptions,
    OptionGroup(RunConfig, without=_NOT_OF_PRETRAINING),
)


def run(options: Options) -> int | None:
    """Pretrains once per seed; prints the result as JSON."""
    model_options, folder_options = options[PretrainingModelOptions], options[RunFolderOptions]
    seeds = folder_options.seeds
    if len(seeds) > 1 and not model_options.dev_data:
        raise_if_any(["several --seeds need --dev-data to compare the runs; received none"], "pretrain")
    from pocketbert.data.pretraining.reader import PretrainingData
    from pocketbert.training.pretrain import pretrain

    positional = (
        model_options.model,
        PretrainingData.open(model_options.data, model_options.dev_data),
        folder_options.output,
    )
    arguments: dict[str, Any] = {
        "config": options[PretrainConfig],
        "run": dataclasses.replace(options[RunConfig], seed=seeds[0], overwrite=folder_options.overwrite),
    }
    return runs.answer(options, pretrain, *positional, **arguments)
