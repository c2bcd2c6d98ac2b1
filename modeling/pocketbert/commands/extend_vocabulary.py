r"""Add tokens to a model's vocabulary, for markers such as [E1] or for words of your field.

This command adds your tokens to the tokenizer, and a row for each to the word embedding: the mean row of the tokens
that its text had before. All other weights stay as they are, heads included. Train the model afterwards: the new rows
are only a start. The result equals `add_tokens` and `resize_token_embeddings` in transformers, and transformers reads
it with equal ids. It works for WordPiece, byte-level BPE and unigram.

With --text and --count instead of --tokens, the command chooses the new tokens: the words in your text that the
tokenizer splits most, by occurrences times saved tokens. It finds them as whole words only. It prints the tokens per
word before and after, on --dev-text or on every tenth paragraph (these do not count for the choice).

The command prints the ids. It refuses existing tokens, repetitions and empty lines.

Example:
  pocketbert extend-vocabulary --model=models/bert --text=letters.txt --count=500 --output=models/bert-letters
  pocketbert extend-vocabulary --model=models/bert --tokens=markers.txt --special --output=models/bert-markers
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.errors import raise_if_any
from pocketbert.options import AnyPath, DirectoryPath, FilePath, ModelPath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendOptions:
    """Input and output of the extension.

    Attributes:
      model: model directory.
      output: output folder.
      tokens: file with the new tokens, one per line.
      text: instead of --tokens: plain text to choose words from, a file or folder; repeat the flag for several.
      count: number of words to choose from --text.
      min_count: for --text: least occurrences of a new word (default: 3).
      dev_text: for --text: plain text to measure on (default: every tenth paragraph of --text, not counted then).
      special: find the tokens exactly as written, as special tokens (default: in the normalized text, so an uncased
        model finds them in any case).
      overwrite: replace an existing model directory.
    """

    GROUP: ClassVar = "Extension"

    model: ModelPath
    output: DirectoryPath
    tokens: FilePath | None = None
    text: tuple[AnyPath, ...] = option((), repeated=True)
    count: int | None = None
    min_count: int | None = None
    dev_text: tuple[AnyPath, ...] = option((), repeated=True)
    special: bool = False
    overwrite: bool = False


OPTIONS = (ExtendOptions,)


def run(options: Options) -> None:
    """Extends; prints the result as JSON."""
    chosen = options[ExtendOptions]
    print(json.dumps(dataclasses.asdict(_extended(chosen)), indent=2, ensure_ascii=False))


def _extended(chosen: ExtendOptions) -> Any:
    if chosen.tokens:
        from pocketbert.checkpoints.vocabulary_extension import extend_vocabulary

        return extend_vocabulary(
            chosen.model, chosen.tokens, chosen.output, special=chosen.special, overwrite=chosen.overwrite
        )
    from pocketbert.pruning.new_words import extend_vocabulary_from_text

    assert chosen.count is not None
    given = {} if chosen.min_count is None else {"min_count": chosen.min_count}
    return extend_vocabulary_from_text(
        chosen.model,
        chosen.text,
        chosen.output,
        count=chosen.count,
        dev_text=chosen.dev_text,
        overwrite=chosen.overwrite,
        **given,
    )


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen, problems = options[ExtendOptions], []
    if bool(chosen.tokens) == bool(chosen.text):
        received = "both" if chosen.tokens else "neither"
        problems.append(f"either --tokens or --text is required; received {received}")
    elif chosen.text:
        if chosen.count is None:
            problems.append("--text needs --count, the number of words to choose; received none")
        if chosen.special:
            problems.append("--special is for --tokens; received it with --text; leave it out")
    else:
        problems += [
            f"--{name.replace('_', '-')} is for --text; received it with --tokens; leave it out"
            for name in ("count", "min_count", "dev_text")
            if getattr(chosen, name) != getattr(ExtendOptions, name)
        ]
    raise_if_any(problems, "extend-vocabulary")
