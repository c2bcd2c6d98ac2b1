r"""Pretrain a model on masked words and next sentences.

--data is a folder of pretrain-data. Without more options this is the paper's setting for MobileBERT's teacher, for
which --batch-size examples must fit into the replicas' memory: more --micro-batches need less of it, for the same
result. --output gets model/ (a model directory with both heads, for finetune and for distill --teacher), metrics.jsonl,
tensorboard/ and result.json, which is printed on stdout too. Interrupted, even killed, the same command goes on where
it was and ends with the same weights.

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
from pocketbert.commands.command_line import Options, Part
from pocketbert.commands.runs import RunFolderOptions
from pocketbert.distillation.pretraining import PretrainOptions, pretrain, pretrain_seeds
from pocketbert.distillation.run_options import RunOptions
from pocketbert.errors import raise_if_any


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingModelOptions:
    """What is trained, on what.

    Attributes:
      model: a preset or a config.json for fresh weights, or a model directory to go on from; the heads that it lacks
        are fresh.
      data: the examples: a folder of pocketbert pretrain-data.
      dev_data: held-out examples, to evaluate by after each epoch and every --evaluation-steps.
    """

    GROUP: ClassVar = "Data"

    model: str
    data: str
    dev_data: str | None = None


# --seeds has the seeds. Nothing here chooses the best weights, so nothing can be patient.
OPTIONS = (
    PretrainingModelOptions,
    PretrainOptions,
    RunFolderOptions,
    Part(RunOptions, without=("seed", "patience")),
)


def run(options: Options) -> int | None:
    """Pretrains, once a seed; prints the result as JSON."""
    own, place = options[PretrainingModelOptions], options[RunFolderOptions]
    seeds = place.seeds
    if len(seeds) > 1 and not own.dev_data:
        raise_if_any(["several --seeds are compared on --dev-data; received them without it"], "pretrain")
    arguments: dict[str, Any] = {
        **dataclasses.asdict(own),
        "options": options[PretrainOptions],
        "output": place.output,
        "run": dataclasses.replace(options[RunOptions], seed=seeds[0]),
        "overwrite": place.overwrite,
    }
    return runs.answer(options, lambda: pretrain(**arguments), lambda: pretrain_seeds(seeds, **arguments))
