r"""Pretrain a model with MLM and NSP, or adapt one to your texts with MLM alone.

With --objective=mlm, --text is a file or folder with plain text and --model a model directory with a tokenizer. A part
of the text, or --dev-text, gives the dev loss and the perplexity. Pass the result to finetune --model.

From scratch, make the examples with pretrain-data. The defaults are the settings of MobileBERT's teacher. If a batch
does not fit into memory, increase --micro-batches; the update is the same. --output gets model/ (a model directory
with the heads, for finetune and distill --teacher), metrics.jsonl, tensorboard/ and result.json, which is also printed.
Rerun the same command to resume; the result is bit-identical.

Example:
  pocketbert pretrain --objective=mlm --model=models/all-minilm --text=letters.txt --output=runs/letters
  pocketbert pretrain --objective=mlm --model=models/roberta --text=wiki --dev-text=wiki-dev.txt --whole-words \
    --epochs=10 --patience=2 --output=runs/wiki
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
from pocketbert.options import AnyPath, DirectoryPath, PresetOrPath
from pocketbert.training.config import RunConfig
from pocketbert.training.pretrain_config import PretrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingModelOptions:
    """Model and data for pretraining.

    Attributes:
      model: a preset or config.json for random weights, or a model directory to continue from.
      data: folder with examples from pocketbert pretrain-data.
      dev_data: dev split, evaluated after each epoch and every --evaluation-steps, such as the dev folder in --data.
      text: for --objective=mlm, plain text instead of --data: a file or folder, one paragraph per line with an empty
        line between documents, or WikiExtractor output, or JSONL with `text`.
      dev_text: dev part for --text (default: split off, see --dev-every).
    """

    GROUP: ClassVar = "Data"

    model: PresetOrPath
    data: DirectoryPath | None = None
    dev_data: DirectoryPath | None = None
    text: AnyPath | None = None
    dev_text: AnyPath | None = None


# Defaults that another option replaces.
_NOT_RESOLVED = ("epochs", "dev_every")
# `RunConfig` options without effect on pretraining.
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
# RunFolderOptions has the seeds.
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
    # run.toml has the objective's defaults.
    values = vars(options[PretrainConfig].resolved())
    options.resolve(**{name: value for name, value in values.items() if name not in _NOT_RESOLVED})
    data = _read_data(model_options)
    from pocketbert.training.pretrain import pretrain

    positional = (model_options.model, data, folder_options.output)
    arguments: dict[str, Any] = {
        "config": options[PretrainConfig],
        "run": dataclasses.replace(options[RunConfig], seed=seeds[0], overwrite=folder_options.overwrite),
    }
    return runs.answer(options, pretrain, *positional, **arguments)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen, config = options[PretrainingModelOptions], options[PretrainConfig]
    given = {name: getattr(chosen, name) for name in ("data", "dev_data", "text", "dev_text")}
    for_text = config.objective == "mlm"
    needed, others = ("text", ("data", "dev_data")) if for_text else ("data", ("text", "dev_text"))
    problems = []
    if not given[needed]:
        problems.append(f"--{needed} is required for --objective={config.objective}; received none")
    problems += [
        f"--{name.replace('_', '-')} is not for --objective={config.objective}; received {given[name]}; "
        f"{'leave it out, or leave out --objective' if for_text else 'pass --objective=mlm, or leave it out'}"
        for name in others
        if given[name]
    ]
    if chosen.dev_text and config.dev_every is not None:
        problems.append(f"--dev-text replaces --dev-every; received {config.dev_every} too; leave out one")
    has_dev = (chosen.dev_text or config.dev_every != 0) if for_text else chosen.dev_data
    if len(options[RunFolderOptions].seeds) > 1 and not has_dev:
        needed = "--dev-text or --dev-every" if for_text else "--dev-data"
        problems.append(f"several --seeds need {needed} to compare the runs; received none")
    raise_if_any(problems, "pretrain")


def _read_data(chosen: PretrainingModelOptions) -> Any:
    """Opens the examples or the text; raises a `UserError` for unreadable files."""
    if chosen.text:
        from pocketbert.data import text

        return text(chosen.text, chosen.dev_text or None)
    from pocketbert.data.pretraining.reader import PretrainingData

    assert chosen.data is not None
    return PretrainingData.open(chosen.data, chosen.dev_data or None)
