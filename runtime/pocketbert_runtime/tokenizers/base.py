"""Base class for tokenizers: the call, its arguments, and tokens as NumPy arrays."""

from __future__ import annotations

import abc
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pocketbert_runtime.errors import UserError, raise_if_any
from pocketbert_runtime.tokenizers.added_tokens import added_problems, appended
from pocketbert_runtime.tokenizers.framing import Frame, pack
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

SpecialTokensInText = Literal["token", "text"]
_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokens(NamedTuple):
    """One text's tokens.

    Attributes:
      ids: the ids.
      starts: offsets of first code points.
      ends: offsets after last code points.
    """

    ids: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]


class TextTokens(NamedTuple):
    """The T tokens in N texts, concatenated, without special tokens around texts.

    Attributes:
      ids: int32 [T].
      starts: int32 [T], each token's first code point in its text.
      ends: int32 [T], the position after its last code point.
      splits: int64 [N + 1]; text i has the tokens `splits[i]:splits[i + 1]`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    splits: np.ndarray


class TextTokenizer(abc.ABC):
    """Turns texts into model inputs. Threads can share it.

    Args:
      vocabulary: files and options.
      make_frame: the special tokens around texts, from token ids.
    Attributes:
      vocabulary: see the argument.
      ids: token → id, without added tokens.
      special_ids: special token → id.
      vocab_size: number of tokens, added ones included.
      frame: special tokens around texts.
    Raises:
      UserError: a file is invalid, or an added token contradicts it. One error lists all problems.
    """

    def __init__(self, vocabulary: Vocabulary, make_frame: Callable[[Mapping[str, int]], Frame]) -> None:
        tokens = vocabulary.base_tokens()
        raise_if_any(added_problems(vocabulary.added, tokens), str(vocabulary.path))
        self.vocabulary = vocabulary
        self.ids = {token: position for position, token in enumerate(tokens)}
        self.vocab_size = len(tokens) + len(appended(vocabulary.added, len(tokens)))
        all_ids = {**self.ids, **{token.content: token.id for token in vocabulary.added}}
        rules = vocabulary.rules
        if missing := [token for token in rules.special_tokens if token not in all_ids]:
            raise UserError(
                f"{vocabulary.path}: a tokenizer must have {' '.join(rules.special_tokens)}; received one without "
                f"{' '.join(missing)}; take all tokenizer files from one model"
            )
        self.special_ids = {token: all_ids[token] for token in rules.special_tokens}
        self.frame = make_frame(all_ids)

    @property
    def pad_token_id(self) -> int:
        """Padding id."""
        return self.frame.pad

    def __call__(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int = 128, pad_to: int | None = None
    ) -> dict[str, np.ndarray]:
        """Makes model inputs: `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`, with the family's special tokens.

        Args:
          texts: the texts.
          pairs: the same number of second texts, or None.
          max_length: maximum sequence length, including special tokens; longer texts are cut by the vocabulary's
            `truncation`.
          pad_to: length of the result, at least `max_length`; None for the longest row's length.
        Returns:
          int32 `[batch, length]`: `input_word_ids`, `input_mask` (1 = token), `input_type_ids` (1 = second text; 0 for
            families with one segment).
        Raises:
          UserError: texts are not strings, the numbers of texts and pairs differ, or a length is invalid.
        """
        problems = self.frame.length_problems(pairs=pairs is not None, max_length=max_length, pad_to=pad_to)
        raise_if_any(problems, "tokenizer")
        first, second = self.id_rows(texts), None if pairs is None else self.id_rows(pairs, "pairs")
        if second is not None and len(first) != len(second):
            raise UserError(
                f"each text must have a pair; received {len(first)} texts and {len(second)} pairs; pass the same "
                "number of both"
            )
        truncation = self.vocabulary.truncation
        return pack(self.frame, first, second, max_length=max_length, pad_to=pad_to, truncation=truncation)

    def id_rows(self, texts: Sequence[str], name: str = "texts") -> list[list[int]]:
        """Returns each text's ids, without special tokens around it; messages call the texts `name`."""
        check_strings(texts, name)
        return self._ids_of(texts)

    def tokens(self, texts: Sequence[str]) -> TextTokens:
        """Returns ids and offsets, without special tokens around texts."""
        check_strings(texts, "texts")
        return concatenated(self._tokens_of(texts))

    @abc.abstractmethod
    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns each text's ids."""

    @abc.abstractmethod
    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        """Returns each text's tokens."""


def check_strings(texts: Sequence[object], name: str, kinds: type | tuple[type, ...] = str) -> None:
    """Raises a `UserError` for a text with another type; the message calls the texts `name`."""
    if isinstance(texts, str):
        raise UserError(f"{name} must be a list of strings; received one text, {texts!r:.60}; put it into a list")
    for row, text in enumerate(texts):
        if not isinstance(text, kinds):
            raise UserError(f"{name} must be a list of strings; received {text!r} at index {row}; convert it to str")


def without_surrogates(texts: Sequence[str]) -> list[str]:
    """Replaces lone surrogates by U+FFFD: they have no UTF-8."""
    return [_SURROGATES.sub("\ufffd", text) for text in texts]


def concatenated(rows: Iterable[Tokens]) -> TextTokens:
    """Joins tokens from several texts."""
    rows = list(rows)
    ids, starts, ends = (
        np.fromiter(itertools.chain.from_iterable(row[part] for row in rows), np.int32) for part in range(3)
    )
    splits = np.cumsum([0, *(len(row.ids) for row in rows)], dtype=np.int64)
    return TextTokens(ids, starts, ends, splits)
