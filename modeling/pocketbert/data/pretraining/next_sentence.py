"""Segment pairs for BERT's next-sentence prediction (NSP).

Source: Devlin et al. 2019, section 3.1, task 2 and appendix A.2 (https://arxiv.org/abs/1810.04805), and
google-research/bert `create_instances_from_document`. A chunk takes sentences up to its document's target length: the
maximum or, for some documents, a random length. It is divided at random between two sentences. In half the cases the
second segment is the rest of the chunk; otherwise it comes from a random place in another document, and the rest is
used again. Pairs that are too long lose tokens at both ends.

Departure: the other document always differs. BERT's code gives up after ten attempts, which matters for few documents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import numpy as np

IS_NEXT, IS_RANDOM = 0, 1
# [CLS] first [SEP] second [SEP].
SPECIAL_TOKENS = 3


@dataclass(frozen=True)
class TokenizedText:
    """Documents as concatenated ids. No sentence or document is empty.

    Attributes:
      word_ids: int32 `[tokens]`.
      sentences: int64 `[sentences + 1]`, each sentence's start, and the end.
      documents: int64 `[documents + 1]`, each document's first sentence, and the end.
    """

    word_ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


class SentencePair(NamedTuple):
    """An example without special tokens: two slices of `TokenizedText.word_ids`.

    Attributes:
      document: the first segment's document number.
      first_begin: the first segment's start.
      first_end: the first segment's end, exclusive.
      second_begin: the second segment's start.
      second_end: the second segment's end, exclusive.
      label: `IS_NEXT` or `IS_RANDOM`.
    """

    document: int
    first_begin: int
    first_end: int
    second_begin: int
    second_end: int
    label: int


def next_sentence_pairs(
    text: TokenizedText, *, max_length: int, short_sequence_probability: float, key: Sequence[int]
) -> Iterator[SentencePair]:
    """Makes examples from all documents, in order.

    Args:
      text: at least two documents.
      max_length: maximum sequence length, including special tokens; at least 5.
      short_sequence_probability: share of documents split into chunks with a random length from 2 tokens up.
      key: random seed (Python's Mersenne Twister), together with the document's number.
    Yields:
      Pairs with up to `max_length - 3` tokens, and at least one token in each segment.
    Raises:
      ValueError: there is only one document.
    """
    # For single numbers, Python's generator is several times faster than NumPy's.
    cuts, bounds = text.sentences.tolist(), text.documents.tolist()
    if len(bounds) < 3:
        raise ValueError(f"there must be at least two documents; received {len(bounds) - 1}")
    room = max_length - SPECIAL_TOKENS
    for document in range(len(bounds) - 1):
        random = Random("/".join(map(str, (*key, document))))
        target = _integer(random, 2, room) if random.random() < short_sequence_probability else room
        yield from _document_pairs(cuts, bounds, document, room, target, random)


def _document_pairs(
    cuts: list[int], bounds: list[int], document: int, room: int, target: int, random: Random
) -> Iterator[SentencePair]:
    begin, end = bounds[document], bounds[document + 1]
    while begin < end:
        stop = _reached(cuts, begin, end, target)
        alone = stop - begin == 1
        middle = stop if alone else _integer(random, begin + 1, stop - 1)
        first = cuts[begin], cuts[middle]
        if alone or random.random() < 0.5:
            label = IS_RANDOM
            other = _integer(random, 0, len(bounds) - 3)
            other += other >= document
            start = _integer(random, bounds[other], bounds[other + 1] - 1)
            until = _reached(cuts, start, bounds[other + 1], target - (first[1] - first[0]))
            second = cuts[start], cuts[until]
            begin = middle
        else:
            label = IS_NEXT
            second = cuts[middle], cuts[stop]
            begin = stop
        first, second = _truncated(first, second, room, random)
        yield SentencePair(document, *first, *second, label)


def _reached(cuts: list[int], begin: int, end: int, target: int) -> int:
    """Returns the end of a chunk with at least `target` tokens, or with the rest; at least one sentence."""
    return bisect_left(cuts, cuts[begin] + target, begin + 1, end)


def _truncated(
    first: tuple[int, int], second: tuple[int, int], room: int, random: Random
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Truncates a pair as BERT: token by token from the longer segment (the second for ties), at a random end."""
    lengths = first[1] - first[0], second[1] - second[0]
    if sum(lengths) <= room:
        return first, second
    half = room // 2
    if min(lengths) > half:
        lengths_left = room - half, half
    elif lengths[0] < lengths[1]:
        lengths_left = lengths[0], room - lengths[0]
    else:
        lengths_left = room - lengths[1], lengths[1]
    return _shortened(first, lengths_left[0], random), _shortened(second, lengths_left[1], random)


def _shortened(segment: tuple[int, int], length_left: int, random: Random) -> tuple[int, int]:
    begin, end = segment
    surplus = end - begin - length_left
    # The number of heads in `surplus` coin tosses.
    begin += random.getrandbits(surplus).bit_count()
    return begin, begin + length_left


def _integer(random: Random, low: int, high: int) -> int:
    """Draws a uniform integer, both ends included; `randint` may differ between Python versions."""
    return low + int(random.random() * (high - low + 1))
