r"""Augment a task's training examples: copies with some words replaced (TinyBERT, section 3.2).

A word of one piece is replaced by one of the words that a masked-LM model finds most probable in its place, a word of
several pieces by one of its nearest neighbours in GloVe. The task is one of GLUE's, with --task and --data, or a CSV,
TSV or JSONL file of your own, with --train-file and the names of its columns; --label-column= (empty) for text without
labels. --output gets each original and its copies, with the original's label, in the same columns (of a GLUE task:
text, pair, label), and the columns `example` and `copy` that say where a row is from. `pocketbert distill` takes it as
--augmented-file.

The same seed gives the same file, also with --runner, which cuts the data into shards for an Apache Beam pipeline.
Killed and called again with the same options, it goes on after the parts that it had finished.

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
from typing import TYPE_CHECKING, Any

from absl import flags

from pocketbert.commands import task_flags
from pocketbert.errors import raise_if_any

if TYPE_CHECKING:
    from pocketbert.augmentation.augmented_rows import AugmentationOptions
    from pocketbert.data.examples import Examples

# Flag → (field of AugmentationOptions, type, help). None keeps the preset's value.
_OPTIONS: dict[str, tuple[str, type, str]] = {
    "copies": (
        "copies",
        int,
        "augmented copies an example (a side of a pair, in turn); paper 20, authors-code by task",
    ),
    "probability": ("probability", float, "how likely each word is replaced; 0.4 in both"),
    "candidates": ("num_candidates", int, "words to choose from; 15 in both"),
    "seed": ("seed", int, "of all draws; 0 if none is given"),
    "keep-original": ("keep_original", bool, "write each original before its copies; both do"),
    "unique": ("unique", bool, "leave out copies equal to an earlier one or the original; authors-code does"),
    "fill-candidates": (
        "fill_candidates",
        bool,
        "the most probable whole words (paper), not those among the most probable pieces (authors-code)",
    ),
}
_CHOICES: dict[str, tuple[str, list[str], str]] = {
    "words": (
        "words",
        ["all", "content"],
        "what may be replaced: all words (paper) or content, words of a to z that are no function words (authors-code)",
    ),
    "pair-sides": (
        "pair_sides",
        ["in-turn", "together"],
        "copies of a pair: first one side augmented, then the other (both), or both sides in each copy",
    ),
    "masked-input": (
        "masked_input",
        ["alone", "with-original"],
        "the model reads the masked sentence alone (paper) or with-original, followed by the original (authors-code)",
    ),
}


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""

    def text(name: str, default: str | None, description: str) -> None:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)

    text("masked-lm", None, "a model directory with a masked-LM head")
    text("glove", None, "word vectors in GloVe's text format, .gz too; without them words of several pieces stay")
    flags.DEFINE_integer(
        "glove-rows", 100_000, "lines of --glove to read, from the top; 0 for all", flag_values=flag_values
    )
    task_flags.define_sentences(flag_values)
    text("train-file", None, "instead of --task: a .csv, .tsv or .jsonl file")
    text("label-column", "label", "column of the label or score; empty for text without labels")
    text("output", None, "the .jsonl or .tsv file to write")
    flags.DEFINE_boolean(
        "overwrite", False, "replace --output, or an unfinished run of it with other options", flag_values=flag_values
    )
    flags.DEFINE_enum(
        "preset",
        "paper",
        ["paper", "authors-code"],
        "where the options below come from that you do not give",
        flag_values=flag_values,
    )
    define_of: dict[type, Any] = {int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_boolean}
    for name, (_, kind, description) in _OPTIONS.items():
        define_of[kind](name, None, description, flag_values=flag_values)
    for name, (_, choices, description) in _CHOICES.items():
        flags.DEFINE_enum(name, None, choices, description, flag_values=flag_values)
    flags.DEFINE_integer(
        "max-length", 0, "tokens that the masked-LM model reads; 0 for all that it can", flag_values=flag_values
    )
    flags.DEFINE_enum(
        "runner", None, ["direct"], "run as an Apache Beam pipeline, on this runner", flag_values=flag_values
    )
    flags.DEFINE_integer("shards", 8, "shards of the data for --runner", flag_values=flag_values)


def run(flag_values: flags.FlagValues) -> None:
    """Augments; prints what came out as JSON."""
    _check(flag_values)
    options = _options(flag_values)
    from pocketbert.augmentation.run import AugmentationJob, augment, to_json

    own = flag_values["train-file"].value
    pair = flag_values["pair-column"].value if own else "pair"
    examples, label_texts = _read(flag_values)
    job = AugmentationJob(
        masked_lm=flag_values["masked-lm"].value,
        glove=flag_values.glove,
        glove_rows=flag_values["glove-rows"].value or None,
        options=options,
        max_length=flag_values["max-length"].value,
        columns=(
            flag_values["text-column"].value if own else "text",
            *([pair] if examples.pairs is not None else []),
        ),
        label_column=(flag_values["label-column"].value or None) if own else "label",
        suffix=Path(flag_values.output).suffix,
    )
    result = augment(
        job,
        examples,
        label_texts,
        flag_values.output,
        overwrite=flag_values.overwrite,
        shards=flag_values.shards if flag_values.runner else 0,
    )
    print(json.dumps(to_json(result), indent=2, ensure_ascii=False))


def _check(flag_values: flags.FlagValues) -> None:
    required = ("masked-lm", "output")
    problems = [f"--{name} is required; received none" for name in required if not flag_values[name].value]
    given = [name for name in ("task", "data", "train-file") if flag_values[name].value]
    if given not in (["task", "data"], ["train-file"]):
        problems.append(
            "the data are either --task and --data or --train-file; received "
            + (" and ".join(f"--{name}" for name in given) or "none of them")
        )
    columns = [flag_values[f"{name}-column"].value for name in ("text", "pair", "label")]
    named = [column for column in columns if column]
    if flag_values["train-file"].value and len({*named, "example", "copy"}) != len(named) + 2:
        problems.append(
            "--text-column, --pair-column and --label-column must differ from one another, and from example and copy, "
            f"which the output has too; received {', '.join(named)}"
        )
    suffix = Path(flag_values.output or ".jsonl").suffix
    if suffix not in (".jsonl", ".tsv"):
        problems.append(f"--output must end in .jsonl or .tsv; received {flag_values.output}")
    if flag_values["glove-rows"].value < 0:
        problems.append(f"--glove-rows must not be negative; received {flag_values['glove-rows'].value}")
    if flag_values.shards < 1:
        problems.append(f"--shards must be at least 1; received {flag_values.shards}")
    raise_if_any(problems, "augment")


def _options(flag_values: flags.FlagValues) -> AugmentationOptions:
    from pocketbert.augmentation.augmented_rows import preset_options

    fields = {name: field for name, (field, _, _) in [*_OPTIONS.items(), *_CHOICES.items()]}
    given = {field: flag_values[name].value for name, field in fields.items() if flag_values[name].value is not None}
    return dataclasses.replace(preset_options(flag_values.preset, flag_values.task), **given)


def _read(flag_values: flags.FlagValues) -> tuple[Examples, tuple[str, ...]]:
    """The examples and the classes' texts."""
    if flag_values.task:
        from pocketbert.data.glue import glue_task, read_glue

        return read_glue(flag_values.task, flag_values.data, "train"), glue_task(flag_values.task).task.labels
    from pocketbert.data.tables import read_table

    path = flag_values["train-file"].value
    return read_table(
        path,
        **task_flags.table_options(flag_values),
        label_column=flag_values["label-column"].value or None,
        kind=flag_values.kind,
    )
