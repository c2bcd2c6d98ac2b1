r"""Turn plain text into pretraining's examples: pairs of segments for the masked-words and next-sentence tasks.

--text is a file or a folder: what WikiExtractor makes of a Wikipedia dump, lines with an empty one between documents,
or JSONL with `text`; gzip, xz or bzip2. Sentences are found, tokenized with --vocab or a model's vocabulary, and paired
as BERT does it. --output becomes a folder of TFRecord shards with a manifest that names what was read, counted and left
out. Words are masked while training, anew in each epoch (whole words with pretrain --whole-words); --baked-masks stores
masks instead, in the form that tf-models-official reads. --dev-every=50 holds every 50th document out, in OUTPUT/dev.

The same text, options and --shards give the same bytes, with any --workers or --runner. Killed and called again with
the same options, it goes on after the shards that it had finished.

Example:
  pocketbert pretrain-data --text=enwiki.txt.xz --vocab=vocab.txt --output=pretraining --dev-every=50
  pocketbert pretrain-data --text=wiki --model=models/bert-base --output=baked --max-length=512 --baked-masks \
    --duplicates=10 --whole-words --shards=64 --runner=direct --workers=8
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from absl import flags

from pocketbert.errors import UserError, raise_if_any

if TYPE_CHECKING:
    from pocketbert.data.pretraining_run import ShardWriter
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer


def define(flag_values: flags.FlagValues) -> None:
    """Defines the command's flags."""

    def text(name: str, default: str | None, description: str) -> None:
        flags.DEFINE_string(name, default, description, flag_values=flag_values)

    def number(name: str, default: int, description: str) -> None:
        flags.DEFINE_integer(name, default, description, flag_values=flag_values)

    def switch(name: str, default: bool, description: str) -> None:
        flags.DEFINE_boolean(name, default, description, flag_values=flag_values)

    text("text", None, "a file, or a folder whose files are read in the order of their paths")
    flags.DEFINE_enum(
        "format",
        None,
        ["wikiextractor", "plain", "jsonl"],
        "form of the text; each file's is found from its first line if none is given",
        flag_values=flag_values,
    )
    text("vocab", None, "a WordPiece vocabulary, a piece a line")
    switch("lowercase", True, "whether --vocab is of an uncased model")
    text("model", None, "instead of --vocab: a model directory, whose vocabulary and lower-casing are taken")
    text("output", None, "the folder to make")
    switch("overwrite", False, "replace --output, or an unfinished run of it with other options")
    number("max-length", 128, "the most tokens of an example, special ones included")
    flags.DEFINE_float(
        "short-sequence-probability",
        0.1,
        "part of the documents that is cut into shorter examples, of a length drawn for each; BERT's 0.1",
        flag_values=flag_values,
    )
    number("duplicates", 1, "how often the text is gone through, with other pairs each time (and masks, if baked in)")
    switch("baked-masks", False, "mask now, 15 % of the tokens, and not while training")
    switch("whole-words", False, "with --baked-masks: mask whole words, not pieces")
    number("dev-every", 0, "hold out one of every so many documents of a shard, in OUTPUT/dev; 0 for none")
    number("seed", 0, "of all draws")
    number("shards", 0, "files of examples; part of what decides the result; 0 for one for each 64 MiB of text")
    number("workers", 0, "processes; 0 for as many as there are processors, 1 for this one alone")
    text("runner", None, "run as an Apache Beam pipeline: direct, embedded here, or one of Beam's, such as FlinkRunner")
    text("beam-options", "", "Beam's own options for --runner, as on a command line")


def run(flag_values: flags.FlagValues) -> None:
    """Makes the data; prints what came out as JSON."""
    _check(flag_values)
    from pocketbert.data.masking import MaskingOptions
    from pocketbert.data.pretraining_manifest import PretrainingOptions
    from pocketbert.data.pretraining_run import to_json, write_pretraining_data

    max_length = flag_values["max-length"].value
    masking = None
    if flag_values["baked-masks"].value:
        masking = MaskingOptions.of_length(max_length, whole_words=flag_values["whole-words"].value)
    options = PretrainingOptions(
        max_length=max_length,
        duplicates=flag_values.duplicates,
        masking=masking,
        short_sequence_probability=flag_values["short-sequence-probability"].value,
        seed=flag_values.seed,
        dev_every=flag_values["dev-every"].value,
    )
    result = write_pretraining_data(
        flag_values.text,
        _tokenizer(flag_values),
        flag_values.output,
        options,
        format=flag_values.format,
        shards=flag_values.shards,
        workers=flag_values.workers,
        writer=_writer(flag_values),
        overwrite=flag_values.overwrite,
    )
    print(json.dumps(to_json(result), indent=2, ensure_ascii=False))


def _check(flag_values: flags.FlagValues) -> None:
    problems = [f"--{name} is required; received none" for name in ("text", "output") if not flag_values[name].value]
    given = [f"--{name}" for name in ("vocab", "model") if flag_values[name].value]
    if len(given) != 1:
        problems.append(f"the vocabulary is --vocab's or --model's; received {' and '.join(given) or 'neither'}")
    problems += [
        f"--{name} must not be negative; received {flag_values[name].value}"
        for name in ("shards", "workers")
        if flag_values[name].value < 0
    ]
    if flag_values["whole-words"].value and not flag_values["baked-masks"].value:
        problems.append(
            "--whole-words is for --baked-masks; received it alone; masks that are drawn while training are of whole "
            "words with pretrain --whole-words, or distill --whole-words"
        )
    if flag_values["beam-options"].value and not flag_values.runner:
        problems.append("--beam-options are for --runner; received no --runner")
    raise_if_any(problems, "pretrain-data")


def _tokenizer(flag_values: flags.FlagValues) -> WordPieceTokenizer:
    from pocketbert.checkpoints.directory import read_directory
    from pocketbert.configs import TokenizerConfig
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    options: dict[str, Any] = {"vocab_path": flag_values.vocab, "lowercase": flag_values.lowercase}
    if flag_values.model:
        directory = read_directory(flag_values.model)
        if directory.vocab_path is None:
            raise UserError(f"--model must have a vocab.txt; received {flag_values.model}; give one with --vocab")
        config = directory.tokenizer or TokenizerConfig()
        config.require_default("pretraining data", "pass --vocab and --lowercase")
        options = {"vocab_path": directory.vocab_path, "lowercase": config.lowercase}
    # As in BERT's own code, no text brings a [SEP] of its own.
    return WordPieceTokenizer(**options, special_tokens_in_text="text")


def _writer(flag_values: flags.FlagValues) -> ShardWriter | None:
    if not flag_values.runner:
        return None
    from pocketbert.data.pretraining_beam import beam_writer

    return beam_writer(flag_values.runner, flag_values["beam-options"].value, flag_values.workers)
