"""Where a model's vocabulary is, and what keeps two of them from being one. Nothing here imports TensorFlow."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pocketbert.configs import TokenizerConfig

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

Start = Literal["random", "teacher-layers", "directory"]


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Where a model's vocabulary is, and how its texts are cut.

    Attributes:
      path: the vocab.txt, a token a line.
      config: what the tokenizer does to letters, accents and ideographs.
    """

    path: Path
    config: TokenizerConfig

    def tokenizer(self) -> WordPieceTokenizer:
        """The tokenizer of this vocabulary."""
        from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

        return WordPieceTokenizer(self.path, **dataclasses.asdict(self.config))


def tokenizer_problems(one: Vocabulary, other: Vocabulary, ones: str, others: str, remedy: str) -> list[str]:
    """Differences between the tokens of two vocabularies, as far as both go, and in how texts are cut.

    Args:
      one: a vocabulary.
      other: another.
      ones: whose the first is, for example `the teacher`.
      others: whose the other is.
      remedy: what to do.
    """
    from pocketbert.tokenizers.vocabulary import read_vocabulary

    problems = []
    for name, value in dataclasses.asdict(one.config).items():
        if value != getattr(other.config, name):
            problems.append(
                f"both need one way to cut texts; {ones} has {name}={value}, {others} "
                f"{name}={getattr(other.config, name)}; {remedy}"
            )
    pieces = zip(read_vocabulary(one.path), read_vocabulary(other.path), strict=False)
    differ = [(index, *pair) for index, pair in enumerate(pieces) if pair[0] != pair[1]]
    if differ:
        index, ours, theirs = differ[0]
        problems.append(
            f"both need one vocabulary; {one.path} and {other.path} differ in {len(differ)} tokens, the first at id "
            f"{index}: {ours!r} and {theirs!r}; {remedy}"
        )
    return problems
