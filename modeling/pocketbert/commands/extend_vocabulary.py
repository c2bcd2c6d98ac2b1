r"""Add tokens to a model's vocabulary, for markers such as [E1] or for words of your field.

This command adds your tokens to the tokenizer and a row for each to the word embedding: the mean of the rows of the
tokens that its text had before. All other weights stay as they are, heads included. Train the model afterwards: the new
rows are only a start. The result is that of `add_tokens` and `resize_token_embeddings` in transformers, which reads it
with equal ids. It works for WordPiece, byte-level BPE and unigram.

The command prints the ids. It refuses tokens that exist, repetitions and empty lines.

Example:
  pocketbert extend-vocabulary --model=models/bert --tokens=markers.txt --special --output=models/bert-markers
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import DirectoryPath, FilePath, ModelPath


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendOptions:
    """Input and output of the extension.

    Attributes:
      model: model directory.
      tokens: file with the new tokens, one per line.
      output: output folder.
      special: find the tokens exactly as written, as special tokens (default: in the normalized text, so an uncased
        model finds them in any case).
      overwrite: replace an existing model directory.
    """

    GROUP: ClassVar = "Extension"

    model: ModelPath
    tokens: FilePath
    output: DirectoryPath
    special: bool = False
    overwrite: bool = False


OPTIONS = (ExtendOptions,)


def run(options: Options) -> None:
    """Extends; prints the result as JSON."""
    chosen = options[ExtendOptions]
    from pocketbert.checkpoints.vocabulary_extension import extend_vocabulary

    result = extend_vocabulary(
        chosen.model, chosen.tokens, chosen.output, special=chosen.special, overwrite=chosen.overwrite
    )
    print(json.dumps(dataclasses.asdict(result), indent=2, ensure_ascii=False))
