"""A tokenizer's kind, files and options: everything from which it is made."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pocketbert_runtime.digests import sha256
from pocketbert_runtime.errors import UserError, raise_if_any
from pocketbert_runtime.tokenizer_config import TokenizerConfig, TokenizerKind
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, added_problems, appended
from pocketbert_runtime.tokenizers.byte_bpe_files import ByteBPEFiles, read_byte_bpe
from pocketbert_runtime.tokenizers.truncation import HEAD, parse_truncation

# Kind → names of its files in a model directory, as in transformers. The first one has the tokens.
FILE_NAMES: dict[TokenizerKind, tuple[str, ...]] = {
    "wordpiece": ("vocab.txt",),
    "byte_bpe": ("vocab.json", "merges.txt"),
    "unigram": ("sentencepiece.bpe.model",),
}
# Token → id, as transformers writes it.
ADDED_NAME = "added_tokens.json"


def vocabulary_kind(name: str) -> TokenizerKind | None:
    """The kind of tokenizer whose tokens a file of this name has; None for other names."""
    return next((kind for kind, names in FILE_NAMES.items() if names[0] == name), None)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The files of a tokenizer and its options.

    Attributes:
      path: file with the tokens: a vocab.txt, vocab.json or sentencepiece.bpe.model.
      merges: merges.txt of byte-level BPE, else None.
      kind: the tokenizer.
      config: options of WordPiece; None if the directory has none, and for other kinds.
      added: tokens to find in a text before it is split, in the vocabulary or behind it. Special tokens are among them
        only if they have unusual flags.
      keeps_space: of unigram: whether a space before a normalized added token is a token, as for transformers'
        tokenizers that split at white space only with Metaspace.
      add_prefix_space: of byte-level BPE: whether a text that begins without a space gets one, and each part after a
        token that is found before the split.
      truncation: how longer texts are cut; see `pocketbert_runtime.tokenizers.truncation`.
    """

    path: Path
    merges: Path | None = None
    kind: TokenizerKind = "wordpiece"
    config: TokenizerConfig | None = None
    added: tuple[AddedToken, ...] = ()
    keeps_space: bool = False
    add_prefix_space: bool = False
    truncation: str = HEAD

    def __post_init__(self) -> None:
        object.__setattr__(self, "truncation", parse_truncation(self.truncation))

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, in the order of `FILE_NAMES`."""
        return (self.path,) if self.merges is None else (self.path, self.merges)

    @property
    def options(self) -> TokenizerConfig:
        """Options of WordPiece, with defaults if the directory has none."""
        return self.config or TokenizerConfig()

    def tokens(self) -> Sequence[str]:
        """Reads the tokens, in the order of their ids, added tokens included.

        Raises:
          UserError: a file is invalid, or an added token contradicts it.
        """
        tokens = self.base_tokens()
        if not self.added:
            return tokens
        raise_if_any(added_problems(self.added, tokens), str(self.path))
        return [*tokens, *appended(self.added, len(tokens))]

    def base_tokens(self) -> Sequence[str]:
        """Reads the tokens in `path` once, in the order of their ids.

        Raises:
          UserError: a file is invalid.
        """
        return self._base_tokens

    @functools.cached_property
    def _base_tokens(self) -> Sequence[str]:
        if self.kind == "byte_bpe":
            return self.byte_bpe.tokens
        if self.kind == "unigram":
            from pocketbert_runtime.tokenizers.sentencepiece_model import fairseq_tokens, read_model

            return fairseq_tokens(read_model(self.path))
        from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_vocabulary

        return read_vocabulary(self.path)

    @functools.cached_property
    def byte_bpe(self) -> ByteBPEFiles:
        """Tokens and merges of byte-level BPE, read once.

        Raises:
          UserError: a file is invalid.
        """
        assert self.merges is not None
        return read_byte_bpe(self.path, self.merges)

    def segmentation(self) -> str:
        """SHA-256 of what else decides the ids: merges, or scores and normalizer, and added tokens; empty for none.

        Raises:
          UserError: a file is invalid.
        """
        if self.kind == "byte_bpe":
            return self._with_added(f"{self.byte_bpe.merges!r}{self._prefix}")
        if self.kind == "unigram":
            from pocketbert_runtime.tokenizers.sentencepiece_model import fairseq_scores, read_model

            model = read_model(self.path)
            rules = fairseq_scores(model), model.normalizer_spec.precompiled_charsmap
            return self._with_added(repr(rules))
        return self._with_added("") if self.added else ""

    @property
    def _prefix(self) -> str:
        return " add_prefix_space" if self.add_prefix_space else ""

    def _with_added(self, rules: str) -> str:
        added = "".join(f" {token}" for token in sorted(self.added, key=lambda token: token.id))
        if self.added and self.keeps_space:
            added += " keeps_space"
        return hashlib.sha256(f"{rules}{added}".encode()).hexdigest()

    def contents(self) -> dict[str, bytes]:
        """All files: name in a model directory → content; added tokens are in added_tokens.json."""
        names = FILE_NAMES[self.kind]
        contents = {name: path.read_bytes() for name, path in zip(names, self.files, strict=True)}
        if self.added:
            added = {token.content: token.id for token in self.added}
            contents[ADDED_NAME] = json.dumps(added, ensure_ascii=False, indent=2).encode()
        return contents

    def digest(self) -> str:
        """SHA-256 of everything that determines the ids of a text."""
        options = f" lowercase={self.options.lowercase}" if self.kind == "wordpiece" else self._prefix
        files = " ".join(sha256(path) for path in self.files)
        cut = "" if self.truncation == HEAD else f" truncation={self.truncation}"
        return self._with_added(f"{files}{options}{cut}")

    def require_wordpiece(self, subject: str) -> None:
        """Raises `UserError` for other tokenizers than WordPiece."""
        if self.kind != "wordpiece":
            raise UserError(
                f"{subject} needs a WordPiece tokenizer (vocab.txt); received {self.kind} ({self.path.name}); "
                "use a model with a vocab.txt"
            )

    def require_no_added(self, subject: str, remedy: str) -> None:
        """Raises `UserError` if there are added tokens."""
        if self.added:
            shown = ", ".join(repr(token.content) for token in self.added[:5])
            raise UserError(f"{subject} cannot have added tokens; received {shown}; {remedy}")
