r"""Trim a model's vocabulary to the tokens in your texts.

The word embedding is the largest part of a small model. This command counts the tokens in your texts, keeps those
that you use, and writes a model directory with only their embedding rows. Special tokens and single characters
always stay, so the trimmed tokenizer can still write every word. If all its tokens stay and it has no unknown words,
a text gets the same tokens and bit-identical outputs. A trimmed model trains, distils and exports like any other.

The command prints the sizes before and after, and measures on dev text how many sentences and tokens stay the
same. If you interrupt it, rerun it: the result is bit-identical.

Example:
  pocketbert trim-vocabulary --model=runs/sst2/model --text=reviews.txt --keep-top=10000 --output=models/trimmed
  pocketbert trim-vocabulary --model=models/all-minilm --text=wikipedia --text=reviews.txt --min-count=20 \
    --keep=names.txt --dev-text=recent.txt --output=models/trimmed
"""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.options import AnyPath, DirectoryPath, FilePath, ModelPath, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrimOptions:
    """Input and output of trimming.

    Attributes:
      model: model directory.
      text: plain text to count tokens in: a file or folder; repeat the flag for several.
      output: output folder.
      keep_top: new vocabulary size: the most frequent tokens.
      min_count: keep tokens with at least so many occurrences (default: 1, unless you pass --keep-top).
      keep: file with tokens to keep in any case, one per line.
      dev_text: plain text to measure on (default: every tenth paragraph of --text, not counted then).
      overwrite: replace an existing model directory.
    """

    GROUP: ClassVar = "Trimming"

    model: ModelPath
    text: tuple[AnyPath, ...] = option(repeated=True)
    output: DirectoryPath
    keep_top: int | None = None
    min_count: int | None = None
    keep: FilePath | None = None
    dev_text: tuple[AnyPath, ...] = option((), repeated=True)
    overwrite: bool = False


OPTIONS = (TrimOptions,)


def run(options: Options) -> None:
    """Trims; prints the result as JSON."""
    chosen = options[TrimOptions]
    from pocketbert.pruning.vocabulary import trim_vocabulary

    arguments = {name: getattr(chosen, name) for name in ("keep_top", "min_count", "keep", "dev_text", "overwrite")}
    result = trim_vocabulary(chosen.model, chosen.text, chosen.output, **arguments)
    print(json.dumps(dataclasses.asdict(result), indent=2))
