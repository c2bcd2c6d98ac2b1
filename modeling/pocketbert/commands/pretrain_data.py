r"""Turn plain text into pretraining examples for MLM and NSP.

--text is a file or folder: WikiExtractor output, one paragraph per line with an empty line between documents, or
JSONL with `text`; plain or compressed with gzip, xz or bzip2. Sentences are tokenized with --vocab or the
vocabulary of --model, and paired as in BERT. --output gets TFRecord shards and a manifest. --dev-every=50 writes
every 50th document to the dev split in OUTPUT/dev.

Training draws new masks in each epoch. --baked-masks stores static masks instead, in tf-models-official's format.

The same text, options and --shards give the same bytes, with any --workers or --runner. Rerun the same command to
resume.

Example:
  pocketbert pretrain-data --text=enwiki.txt.xz --vocab=vocab.txt --output=pretraining --dev-every=50
  pocketbert pretrain-data --text=wiki --model=models/bert-base --output=baked --max-length=512 --baked-masks \
    --duplicates=10 --whole-words --shards=64 --runner=direct --workers=8
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pocketbert.commands.command_line import OptionGroup, Options
from pocketbert.data.pretraining.options import MaskingOptions, PretrainingOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.options import AnyPath, DirectoryPath, FilePath, ModelPath

if TYPE_CHECKING:
    from pocketbert.data.pretraining.run import ShardWriter
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainDataOptions:
    """Input, output and parallelism for pretraining examples.

    Attributes:
      text: text file or folder.
      output: output folder.
      vocab: WordPiece vocabulary, one token per line.
      model: instead of --vocab and --lowercase: a model directory with its tokenizer.
      lowercase: lower-case texts, for the vocabulary of an uncased model.
      format: text format (default: detected from the first line in each file).
      overwrite: replace --output, or an unfinished run with other options.
      baked_masks: store static masks for 15 % of the tokens, instead of masking during training.
      whole_words: with --baked-masks: mask whole words, not tokens.
      shards: output files; their number affects the result; 0 for one per 64 MiB of text.
      workers: number of processes; 0 for one per processor.
      runner: run as an Apache Beam pipeline: direct (embedded) or a Beam runner such as FlinkRunner.
      beam_options: command-line options for Beam, with --runner.
    """

    GROUP: ClassVar = "Data"
    COMMON: ClassVar = ("text", "output", "vocab", "model", "lowercase", "overwrite", "workers")

    text: AnyPath
    output: DirectoryPath
    vocab: FilePath | None = None
    model: ModelPath | None = None
    lowercase: bool = True
    format: Literal["wikiextractor", "plain", "jsonl"] | None = None
    overwrite: bool = False
    baked_masks: bool = False
    whole_words: bool = False
    shards: int = 0
    workers: int = 0
    runner: str | None = None
    beam_options: str = ""


OPTIONS = (PretrainDataOptions, OptionGroup(PretrainingOptions, without=("masking",)))


def run(options: Options) -> None:
    """Makes the examples; prints counts as JSON."""
    chosen = options[PretrainDataOptions]
    from pocketbert.data.pretraining.run import to_json, write_pretraining_data

    pretraining_options = options[PretrainingOptions]
    if chosen.baked_masks:
        masking = MaskingOptions.of_length(pretraining_options.max_length, whole_words=chosen.whole_words)
        pretraining_options = dataclasses.replace(pretraining_options, masking=masking)
    result = write_pretraining_data(
        chosen.text,
        _tokenizer(chosen),
        chosen.output,
        pretraining_options,
        format=chosen.format,
        shards=chosen.shards,
        workers=chosen.workers,
        writer=_writer(chosen),
        overwrite=chosen.overwrite,
    )
    print(json.dumps(to_json(result), indent=2, ensure_ascii=False))


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen = options[PretrainDataOptions]
    problems = []
    sources = [f"--{name}" for name in ("vocab", "model") if getattr(chosen, name)]
    if len(sources) != 1:
        problems.append(f"either --vocab or --model is required; received {' and '.join(sources) or 'neither'}")
    problems += [
        f"--{name} must not be negative; received {getattr(chosen, name)}"
        for name in ("shards", "workers")
        if getattr(chosen, name) < 0
    ]
    if chosen.whole_words and not chosen.baked_masks:
        problems.append(
            "--whole-words needs --baked-masks; received it alone; to mask whole words during training, pass it to "
            "pretrain or distill"
        )
    if chosen.beam_options and not chosen.runner:
        problems.append("--beam-options needs --runner; received it alone")
    raise_if_any(problems, "pretrain-data")


def _tokenizer(chosen: PretrainDataOptions) -> WordPieceTokenizer:
    from pocketbert.checkpoints.directory import describe_directory
    from pocketbert.configs import TokenizerConfig
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

    options: dict[str, Any] = {"vocab_path": chosen.vocab, "lowercase": chosen.lowercase}
    if chosen.model:
        directory = describe_directory(chosen.model)
        if directory.vocab_path is None:
            raise UserError(f"--model must have a vocab.txt; received {chosen.model}; pass --vocab instead")
        assert directory.vocabulary is not None
        directory.vocabulary.require_no_added("pretraining data", "pass --vocab instead, for data without these tokens")
        config = directory.tokenizer or TokenizerConfig()
        config.require_default("pretraining data", "pass --vocab and --lowercase instead of --model")
        options = {"vocab_path": directory.vocab_path, "lowercase": config.lowercase}
    # As in BERT's code, a literal [SEP] in a text is ordinary text.
    return WordPieceTokenizer(**options, special_tokens_in_text="text")


def _writer(chosen: PretrainDataOptions) -> ShardWriter | None:
    if not chosen.runner:
        return None
    from pocketbert.data.pretraining.beam import beam_writer

    return beam_writer(chosen.runner, chosen.beam_options, chosen.workers)
