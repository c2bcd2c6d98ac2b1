r"""Augment training examples: copies with some words replaced (TinyBERT, section 3.2).

A masked-LM model suggests replacements for words with one token, GloVe vectors for words with several tokens. Pass a
GLUE task (--task, --data) or your own CSV, TSV or JSONL file (--train-file and its column names); pass
--label-column= (empty) for text without labels. --output gets each original and its copies with the same columns
(for GLUE: text, pair, label), plus `example` and `copy`. Pass it to distill as --augmented-file.

The same seed gives the same file, with or without --runner (an Apache Beam pipeline). Rerun the same command to
resume.

Example:
  pocketbert augment --masked-lm=models/bert-base --glove=glove.6B.300d.txt --task=sst2 --data=glue \
    --output=sst2-augmented.jsonl
  pocketbert augment --masked-lm=models/bert-base --glove=glove.6B.300d.txt --train-file=train.csv \
    --text-column=question --pair-column=answer --label-column=score --kind=regression --preset=authors-code \
    --output=augmented.tsv
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pocketbert.augmentation.augmented_rows import AugmentationOptions, preset_options
from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.commands.task_options import TableOptions
from pocketbert.configs import TASK_RULES
from pocketbert.errors import raise_if_any
from pocketbert.options import DirectoryPath, FilePath, ModelPath

if TYPE_CHECKING:
    from pocketbert.data.examples import Examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Texts to augment.

    Attributes:
      task: a GLUE task (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli).
      data: folder with the GLUE download.
      train_file: instead of --task: your .csv, .tsv or .jsonl table.
      kind: kind of labels in --train-file: a class or a score.
    """

    GROUP: ClassVar = "Data"

    task: str | None = None
    data: DirectoryPath | None = None
    train_file: FilePath | None = None
    kind: Literal["classification", "regression"] = "classification"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextTableOptions(TableOptions):
    """`TableOptions`, described for one label in a row.

    Attributes:
      label_column: column with the label or score.
      skip_bad_rows: skip and count unreadable rows instead of stopping.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentOptions:
    """Candidates and output of augmentation.

    Attributes:
      masked_lm: model directory with a masked-LM head.
      output: output file, .jsonl or .tsv.
      glove: word vectors in GloVe's text format, plain or .gz; without them, words with several tokens are not
        replaced.
      glove_rows: lines to read from --glove; 0 for all.
      max_length: maximum sequence length for the masked-LM model; 0 for its own maximum.
      overwrite: replace --output, or an unfinished run with other options.
      runner: run as an Apache Beam pipeline on this runner.
      shards: data shards for --runner.
      preset: source of defaults: the paper, or the authors' code.
    """

    GROUP: ClassVar = "Augmentation"
    COMMON: ClassVar = ("masked_lm", "output", "glove", "overwrite", "preset")

    masked_lm: ModelPath
    output: FilePath
    glove: FilePath | None = None
    glove_rows: int = 100_000
    max_length: int = 0
    overwrite: bool = False
    runner: Literal["direct"] | None = None
    shards: int = 8
    preset: Literal["paper", "authors-code"] = "paper"


OPTIONS = (
    TextOptions,
    OptionGroup(TextTableOptions, without=("label_separator",)),
    AugmentOptions,
    AugmentationOptions,
)


def run(options: Options) -> None:
    """Augments the examples; prints counts as JSON."""
    chosen, task, table = options[AugmentOptions], options[TextOptions], options[TextTableOptions]
    columns = [table.text_column, table.pair_column or ""] if task.train_file else ["text", "pair"]
    examples, label_texts = _read(task, table)
    from pocketbert.augmentation.run import AugmentationJob, augment, to_json

    job = AugmentationJob(
        masked_lm=chosen.masked_lm,
        glove=chosen.glove,
        glove_rows=chosen.glove_rows or None,
        options=dataclasses.replace(preset_options(chosen.preset, task.task), **options.given_of(AugmentationOptions)),
        max_length=chosen.max_length,
        columns=tuple(columns[: 1 if examples.pairs is None else 2]),
        label_column=table.one_label if task.train_file else "label",
        suffix=Path(chosen.output).suffix,
    )
    shards = chosen.shards if chosen.runner else 0
    result = augment(job, examples, label_texts, chosen.output, overwrite=chosen.overwrite, shards=shards)
    print(json.dumps(to_json(result), indent=2, ensure_ascii=False))


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen, task, table = options[AugmentOptions], options[TextOptions], options[TextTableOptions]
    problems = []
    sources = [name for name in ("task", "data", "train_file") if getattr(task, name)]
    if sources not in (["task", "data"], ["train_file"]):
        problems.append(
            "data must be --task and --data, or --train-file; received "
            + (" and ".join(f"--{name.replace('_', '-')}" for name in sources) or "none of them")
        )
    named = [column for column in (table.text_column, table.pair_column, table.one_label) if column]
    if task.train_file and len({*named, "example", "copy"}) != len(named) + 2:
        problems.append(
            "--text-column, --pair-column and --label-column must be different, and not example or copy, which the "
            f"output adds; received {', '.join(named)}"
        )
    if Path(chosen.output).suffix not in (".jsonl", ".tsv"):
        problems.append(f"--output must end in .jsonl or .tsv; received {chosen.output}")
    if chosen.glove_rows < 0:
        problems.append(f"--glove-rows must not be negative; received {chosen.glove_rows}")
    if chosen.shards < 1:
        problems.append(f"--shards must be at least 1; received {chosen.shards}")
    raise_if_any(problems, "augment")


def _read(task: TextOptions, table: TextTableOptions) -> tuple[Examples, tuple[str, ...]]:
    """Returns the examples and the labels."""
    if task.task:
        from pocketbert.data.readers.glue import glue_task, read_glue

        assert task.data is not None
        return read_glue(task.task, task.data, "train"), glue_task(task.task).task.labels
    from pocketbert.data.readers.tables import read_table

    assert task.train_file is not None
    form = TASK_RULES[task.kind].label_form
    return read_table(task.train_file, **table.rows, label_column=table.one_label, kind=form)
