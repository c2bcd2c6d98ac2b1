"""Pairs of segments for BERT's next-sentence task: a text's sentences, cut and put together.

Devlin et al. 2019, section 3.1, task 2 and appendix A.2 (https://arxiv.org/abs/1810.04805), as google-research/bert's
`create_instances_from_document` does it: a chunk takes sentences until it has the document's target length, which is
all the room or, for some documents, a random length. The chunk is divided between two sentences at random. Half of the
time its second part is the second segment; otherwise sentences from a random place of another document are, and the
second part is used again. What is too long loses tokens at both ends.

Departure: the other document is never the same one; BERT's code gives up after ten tries. That matters to texts of a
few documents alone.
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
    """Ids of documents, end to end. No sentence and no document is empty.

    Attributes:
      word_ids: int32 `[tokens]`.
      sentences: int64 `[sentences + 1]`, where each sentence begins, and the end.
      documents: int64 `[documents + 1]`, the number of each one's first sentence, and the end.
    """

    word_ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


class SentencePair(NamedTuple):
    """An example, without its special tokens: two places in `TokenizedText.word_ids`.

    Attributes:
      document: number of the first segment's.
      first_begin: where that begins.
      first_end: behind its last token.
      second_begin: where the second segment begins.
      second_end: behind its last token.
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
    """The examples of all documents, in their order.

    Args:
      text: two documents at least.
      max_length: the most tokens of an example, with special ones; at least 5.
      short_sequence_probability: of a document, to be cut into chunks of a length drawn once, from 2 tokens to all the
        room.
      key: what the random numbers (Python's Mersenne Twister) follow from, with the document's number.
    Yields:
      Pairs of at most `max_length - 3` tokens, each segment with one at least.
    Raises:
      ValueError: there is no other document.
    """
    # Python's numbers are several times faster than NumPy's, one at a time.
    cuts, bounds = text.sentences.tolist(), text.documents.tolist()
    if len(bounds) < 3:
        raise ValueError(f"a random next sentence is another document's; received {len(bounds) - 1} documents")
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
    """Behind the first sentence with which there are `target` tokens, or the last one; one sentence at least."""
    return bisect_left(cuts, cuts[begin] + target, begin + 1, end)


def _truncated(
    first: tuple[int, int], second: tuple[int, int], room: int, random: Random
) -> tuple[tuple[int, int], tuple[int, int]]:
    """BERT takes one token after another from the longer segment, the second if they are equal, at a random end."""
    lengths = first[1] - first[0], second[1] - second[0]
    if sum(lengths) <= room:
        return first, second
    half = room // 2
    if min(lengths) > half:
        kept = room - half, half
    elif lengths[0] < lengths[1]:
        kept = lengths[0], room - lengths[0]
    else:
        kept = room - lengths[1], lengths[1]
    return _shortened(first, kept[0], random), _shortened(second, kept[1], random)


def _shortened(segment: tuple[int, int], kept: int, random: Random) -> tuple[int, int]:
    begin, end = segment
    surplus = end - begin - kept
    # Of as many fair coins, the heads.
    begin += random.getrandbits(surplus).bit_count()
    return begin, begin + kept


def _integer(random: Random, low: int, high: int) -> int:
    """Uniform, both ends included; `randint` draws otherwise in other versions of Python."""
    return low + int(random.random() * (high - low + 1))
