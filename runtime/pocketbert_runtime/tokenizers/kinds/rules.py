"""What a kind of tokenizer is: its files, its special tokens and its properties."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class TokenizerRules(abc.ABC):
    """A kind of tokenizer.

    Attributes:
      files: file names in a model directory, as in transformers. The first file has the tokens.
      special_tokens: the special tokens in every tokenizer of the kind.
      special_names: transformers' name, such as `sep_token` → special token.
      special_behind: whether special tokens may be added ones behind the vocabulary.
      json_type: `model.type` in tokenizer.json.
      classes: transformers' classes, without "Tokenizer" and "Fast".
      config_keys: keys in tokenizer_config.json → supported values, besides those of all kinds.
      has_options: whether it normalizes texts by the options in `TokenizerConfig`. Bundles then have these, and do not
        name the kind.
      continuation: start of a token that continues a word; empty if tokens that begin a word have a sign instead.
      takes_space: whether words include the space before them.
      mask_takes_space: whether the mask token does.
      joins_spaces: whether its normalizer joins and removes spaces, so that `Vocabulary.keeps_space` counts.
      tokens_are_bytes: whether tokens stand for bytes; a space then is a part of the token behind it.
      unit: what its vocabulary consists of, for messages.
    """

    files: tuple[str, ...]
    special_tokens: tuple[str, ...]
    special_names: Mapping[str, str]
    json_type: str
    classes: tuple[str, ...]
    config_keys: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    special_behind: bool = False
    has_options: bool = False
    continuation: str = ""
    takes_space: bool = True
    mask_takes_space: bool = True
    joins_spaces: bool = False
    tokens_are_bytes: bool = False
    unit: str = "tokens"

    @abc.abstractmethod
    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        """Reads all tokens but added ones, by id; raises `UserError` if a file is invalid."""

    @abc.abstractmethod
    def segmentation(self, vocabulary: Vocabulary) -> str:
        """Returns the rules for ids that the tokens do not tell; empty for none."""

    def unseen(self, vocabulary: Vocabulary) -> Sequence[str]:
        """Returns tokens that decide on a text's ids without being among them."""
        return ()

    @abc.abstractmethod
    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        """Makes a vocabulary's tokenizer; raises `UserError` for an invalid file or a missing package."""
