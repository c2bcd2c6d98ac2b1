"""Words of a text for labelled spans, as BERT splits them, and also in scripts without spaces."""

from __future__ import annotations

import functools

import numpy as np

from pocketbert_runtime.tokenizers.bert_characters import DROPPED, IDEOGRAPHS, ISOLATED, SPACE, WORD, normalized_codes

# Letters and marks of scripts without spaces between words, beside ideographs: Thai, Lao, Myanmar, Khmer, Tai, kana.
UNSPACED = (
    (0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF), (0x3005, 0x3007),
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F),
)  # fmt: skip


def split_words(text: str) -> np.ndarray:
    """Splits a text as BERT does: at white space; punctuation marks and ideographs are words of their own.

    A departure from BERT: so are characters of other scripts without spaces, see `UNSPACED`. A span can then begin and
    end at each token.

    Returns:
      int64 `[words, 2]`, the offsets of each word in code points.
    """
    kinds = np.fromiter(map(_kind, text), np.int8, len(text))
    is_space = kinds == SPACE
    alone = kinds == ISOLATED
    # A word starts at a character that is no space, behind a space or beside a character that stands alone.
    before = np.concatenate([[True], (is_space | alone)[:-1]])[: len(kinds)]
    behind = np.concatenate([(is_space | alone)[1:], [True]])[: len(kinds)]
    starts = np.flatnonzero(~is_space & (alone | before))
    ends = np.flatnonzero(~is_space & (alone | behind)) + 1
    return np.stack([starts, ends], axis=1)


@functools.cache
def _kind(character: str) -> int:
    """The kind of a character; those that a tokenizer drops do not end a word."""
    results = normalized_codes(ord(character), lowercase=False, strip_accents=False, tokenize_chinese_chars=True)
    kind = results[0].kind if results else DROPPED
    return ISOLATED if kind == WORD and _is_unspaced(character) else kind


@functools.cache
def _is_unspaced(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in (*UNSPACED, *IDEOGRAPHS))


def continues(text: str, words: np.ndarray) -> np.ndarray:
    """Whether each word follows another one without space and is a character of a script without spaces.

    A token may have several such words. Those without a token of their own belong to the word before.

    Args:
      text: the text.
      words: int64 `[words, 2]`, offsets.

    Returns:
      bool `[words]`.
    """
    is_unspaced = np.array([_is_unspaced(text[start]) for start in words[:, 0]], bool)
    follows = np.concatenate([[False], words[1:, 0] == words[:-1, 1]])[: len(words)]
    return follows & is_unspaced
