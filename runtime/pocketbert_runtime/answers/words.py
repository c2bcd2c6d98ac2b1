"""Splits texts into words for labelled spans, as BERT does, and also in scripts without spaces."""

from __future__ import annotations

import functools

import numpy as np

from pocketbert_runtime.tokenizers.bert_characters import DROPPED, IDEOGRAPHS, ISOLATED, SPACE, WORD, normalized_codes

# Letters and marks in scripts without spaces between words, beside ideographs: Thai, Lao, Myanmar, Khmer, Tai, kana.
UNSPACED = (
    (0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19FF), (0x1A20, 0x1AAF), (0x3005, 0x3007),
    (0x3041, 0x30FF), (0x31F0, 0x31FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F),
)  # fmt: skip


def split_words(text: str) -> np.ndarray:
    """Splits a text as BERT does: at white space; punctuation marks and ideographs are separate words.

    Departure: so are characters in other scripts without spaces (`UNSPACED`): spans can begin and end at any token.

    Returns:
      int64 `[words, 2]`, word offsets in code points.
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
    """Returns a character's kind; those that a tokenizer drops do not end a word."""
    results = normalized_codes(ord(character), lowercase=False, strip_accents=False, tokenize_chinese_chars=True)
    kind = results[0].kind if results else DROPPED
    return ISOLATED if kind == WORD and _is_unspaced(character) else kind


@functools.cache
def _is_unspaced(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in (*UNSPACED, *IDEOGRAPHS))


def continues(text: str, words: np.ndarray) -> np.ndarray:
    """Returns bool `[words]`, whether a word follows another one without space in a script without spaces.

    A token may have several such words. Those without their own token belong to the word before.

    Args:
      text: the text.
      words: int64 `[words, 2]`, offsets.
    """
    is_unspaced = np.array([_is_unspaced(text[start]) for start in words[:, 0]], bool)
    follows = np.concatenate([[False], words[1:, 0] == words[:-1, 1]])[: len(words)]
    return follows & is_unspaced
