"""A tokenizer's kind, files and options."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pocketbert_runtime.digests import sha256
from pocketbert_runtime.errors import UserError, did_you_mean, raise_if_any
from pocketbert_runtime.tokenizer_config import UNNAMED_KIND, TokenizerConfig, TokenizerKind
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, added_problems, appended
from pocketbert_runtime.tokenizers.byte_bpe_files import ByteBPEFiles, read_byte_bpe
from pocketbert_runtime.tokenizers.kinds.registry import ALL_RULES, layouts_of, rules_of
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD, parse_truncation

ADDED_NAME = "added_tokens.json"


def vocabulary_kind(name: str) -> TokenizerKind | None:
    """Returns the tokenizer kind for a file name with tokens; None for other names."""
    return next((kind for kind, rules in ALL_RULES if rules.files[0] == name), None)


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer's files and options.

    Attributes:
      path: file with the tokens: a vocab.txt, vocab.json or sentencepiece model.
      merges: merges.txt for byte-level BPE, else None.
      kind: the tokenizer.
      config: WordPiece options; None if the directory has none, and for other kinds.
      added: tokens found before the split, in the vocabulary or after it; special tokens only with unusual flags.
      layout: ids and special tokens, one of `layouts_of(kind)`: a name in `layouts.LAYOUTS` for unigram, and in
        `byte_layouts.BYTE_LAYOUTS` for byte-level BPE.
      keeps_space: for unigram: whether a space before a normalized added token is a token, as in transformers'
        tokenizers that split at white space by Metaspace only.
      add_prefix_space: for byte-level BPE: whether texts, and parts after tokens found earlier, get a space in front.
      truncation: how to cut longer texts; see `pocketbert_runtime.tokenizers.truncation`.
      held: the files' bytes by name, if they are in memory and the paths only name them, as in a zip file.
    """

    path: Path
    merges: Path | None = None
    kind: TokenizerKind = UNNAMED_KIND
    layout: str = XLM_R
    config: TokenizerConfig | None = None
    added: tuple[AddedToken, ...] = ()
    keeps_space: bool = False
    add_prefix_space: bool = False
    truncation: str = HEAD
    held: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "truncation", parse_truncation(self.truncation))
        if self.layout not in (layouts := layouts_of(self.kind)):
            raise UserError(
                f"layout must be one of {', '.join(layouts)} for {self.kind}; received {self.layout!r:.60}"
                f"{did_you_mean(self.layout, layouts)}"
            )

    @property
    def rules(self) -> TokenizerRules:
        """The kind's row in the table, or the layout's."""
        return rules_of(self.kind, self.layout)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files, as in `rules.files`."""
        return (self.path,) if self.merges is None else (self.path, self.merges)

    @property
    def options(self) -> TokenizerConfig:
        """WordPiece options, with defaults if the directory has none."""
        return self.config or TokenizerConfig()

    @property
    def lowercase(self) -> bool:
        """Whether the options lower-case texts; false for kinds without options."""
        return self.rules.has_options and self.options.lowercase

    def tokens(self) -> Sequence[str]:
        """Reads all tokens by id; raises `UserError` if a file is invalid or an added token contradicts it."""
        tokens = self.base_tokens()
        if not self.added:
            return tokens
        raise_if_any(added_problems(self.added, tokens), str(self.path))
        return [*tokens, *appended(self.added, len(tokens))]

    def base_tokens(self) -> Sequence[str]:
        """Reads the tokens in `path` once, by id; raises `UserError` if a file is invalid."""
        return self._base_tokens

    @functools.cached_property
    def _base_tokens(self) -> Sequence[str]:
        return self.rules.tokens(self)

    @functools.cached_property
    def byte_bpe(self) -> ByteBPEFiles:
        """Tokens and merges for byte-level BPE, read once; raises a `UserError` for an invalid file."""
        assert self.merges is not None
        held = None if self.held is None else (self.held[self.path.name], self.held[self.merges.name])
        required = () if self.rules.special_behind else self.rules.special_tokens
        return read_byte_bpe(self.path, self.merges, held, required)

    def held_content(self, path: Path) -> bytes | None:
        """Returns a file's bytes if they are in memory."""
        return None if self.held is None else self.held[path.name]

    def content(self, path: Path) -> bytes:
        """Returns a file's bytes."""
        return path.read_bytes() if self.held is None else self.held[path.name]

    def segmentation(self) -> str:
        """SHA-256 of the remaining rules for ids: merges, or scores and normalizer, and added tokens; empty for none.

        Raises:
          UserError: a file is invalid.
        """
        rules = self.rules.segmentation(self)
        return self._with_added(rules) if rules or self.added else ""

    @property
    def prefix_option(self) -> str:
        """`add_prefix_space` for digests; empty if it is off."""
        return " add_prefix_space" if self.add_prefix_space else ""

    def _with_added(self, rules: str) -> str:
        added = "".join(f" {token}" for token in sorted(self.added, key=lambda token: token.id))
        if self.added and self.keeps_space:
            added += " keeps_space"
        return hashlib.sha256(f"{rules}{added}".encode()).hexdigest()

    def contents(self) -> dict[str, bytes]:
        """All files: name in a model directory → content; added tokens are in added_tokens.json."""
        contents = {name: self.content(path) for name, path in zip(self.rules.files, self.files, strict=True)}
        if self.added:
            added = {token.content: token.id for token in self.added}
            contents[ADDED_NAME] = json.dumps(added, ensure_ascii=False, indent=2).encode()
        return contents

    def digest(self) -> str:
        """SHA-256 of everything that determines a text's ids."""
        options = f" lowercase={self.options.lowercase}" if self.rules.has_options else self.prefix_option
        options += "" if self.layout == XLM_R else f" layout={self.layout}"
        if self.held is None:
            files = " ".join(sha256(path) for path in self.files)
        else:
            files = " ".join(hashlib.sha256(self.held[path.name]).hexdigest() for path in self.files)
        cut = "" if self.truncation == HEAD else f" truncation={self.truncation}"
        return self._with_added(f"{files}{options}{cut}")

    def require_wordpiece(self, subject: str) -> None:
        """Raises `UserError` unless this is WordPiece."""
        if not self.rules.has_options:
            raise UserError(
                f"{subject} needs a WordPiece tokenizer (vocab.txt); received {self.kind} ({self.path.name}); "
                "use a model with a vocab.txt"
            )

    def require_no_added(self, subject: str, remedy: str) -> None:
        """Raises `UserError` if there are added tokens."""
        if self.added:
            shown = ", ".join(repr(token.content) for token in self.added[:5])
            raise UserError(f"{subject} cannot have added tokens; received {shown}; {remedy}")
