"""Packs sentences into unlabelled examples with up to `max_length` tokens, for general distillation.

Source: google-research/bert `create_pretraining_data.py` (the BERT paper, appendix A.2, has only the lengths).
Departures, since there is no next-sentence prediction: each text token is in exactly one example (a sentence that does
not fit starts the next example instead of being truncated; a longer one is split), and the second segment always
follows the first in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.readers.sentences import split_sentences
from pocketbert.data.readers.text import Document
from pocketbert.errors import UserError, raise_if_any
from pocketbert.progress import bar

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer

_SENTENCES_A_CALL = 16384


def pack(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    max_length: int = 128,
    *,
    segments: Literal[1, 2] = 1,
    short_sequence_probability: float = 0.1,
    seed: int = 0,
    keep_spaces: bool = False,
) -> EncodedExamples:
    """Packs sentences into unlabelled examples with up to `max_length` tokens, in order; none crosses a document.

    An example takes whole sentences until the next one does not fit, or until it reaches its document's target length.
    The target is the full length or, with `short_sequence_probability`, a random length from 2 tokens up: models also
    see short inputs, as in BERT's code. The result depends on the arguments only; random numbers come from NumPy's
    PCG64, seeded with (seed, document number). Memory holds a few thousand sentences, and 5 bytes per token.

    Args:
      documents: documents from `read_documents`, also as a stream.
      tokenizer: tokenizer; its [CLS] and [SEP] enclose the segments.
      max_length: maximum sequence length, including special tokens.
      segments: 1 for `[CLS] text [SEP]`; 2 for `[CLS] text [SEP] next text [SEP]`, divided at random between two
        sentences. An example with a single sentence has one segment.
      short_sequence_probability: share of documents split into shorter examples.
      seed: random seed.
      keep_spaces: put a space before each sentence but a document's first, for byte-level BPE, to mark its first word.
    Raises:
      UserError: an invalid option, or no token in any document.
    """
    _check(max_length, segments, short_sequence_probability, seed)
    room = max_length - 1 - segments
    chooser = _Chooser(room, segments, short_sequence_probability, seed)
    # Segments fit into a byte; for a large text this and the ids take most of the memory.
    words, types, lengths = GrowingArray(), GrowingArray(np.int8), GrowingArray()
    with bar(None, "pack", "token") as progress:
        for number, batch in sentence_batches(documents):
            space = " " if keep_spaces else ""
            ids = tokenizer.tokenize(
                [
                    space + sentence if place else sentence
                    for document in batch
                    for place, sentence in enumerate(document)
                ]
            )
            splits, values = np.asarray(ids.row_splits), np.asarray(ids.values)
            packed = _pack_batch(values, splits, [len(document) for document in batch], number, chooser, tokenizer)
            words.add(packed.word_ids)
            types.add(packed.type_ids)
            lengths.add(packed.lengths)
            progress.update(len(values))
    if not lengths.size:
        raise UserError("the text must have at least one token; received documents without tokens; check the path")
    return EncodedExamples(
        word_ids=words.array(),
        type_ids=types.array(),
        offsets=np.concatenate([[0], np.cumsum(lengths.array(), dtype=np.int64)]),
        labels=None,
        max_length=max_length,
        pad_token_id=tokenizer.pad_token_id,
    )


def _check(max_length: int, segments: int, probability: float, seed: int) -> None:
    problems = []
    if segments not in (1, 2):
        problems.append(f"segments must be 1 or 2; received {segments!r}")
    elif max_length < segments + 3:
        problems.append(f"max_length must have room for special tokens and two others; received {max_length}")
    if not 0 <= probability <= 1:
        problems.append(f"short_sequence_probability must be in [0, 1]; received {probability}")
    if seed < 0:
        problems.append(f"seed must not be negative; received {seed}")
    raise_if_any(problems, "packing")


def sentence_batches(documents: Iterable[Document]) -> Iterator[tuple[int, list[list[str]]]]:
    """Yields (first document's number, each document's sentences), some thousand sentences at a time."""
    batch: list[list[str]] = []
    number = waiting = 0
    for document in documents:
        batch.append([sentence for paragraph in document.paragraphs for sentence in split_sentences(paragraph)])
        waiting += len(batch[-1])
        if waiting >= _SENTENCES_A_CALL:
            yield number, batch
            number += len(batch)
            batch, waiting = [], 0
    if batch:
        yield number, batch


class _Chooser:
    """Cuts documents into examples and examples into segments."""

    def __init__(self, room: int, segments: int, probability: float, seed: int) -> None:
        self.room, self.segments, self.probability, self.seed = room, segments, probability, seed

    def examples(self, lengths: list[int], document: int) -> Iterator[tuple[int, int]]:
        """Yields (tokens in the example, tokens in its first segment) for one document, without special tokens."""
        random = np.random.default_rng([self.seed, document])
        target = self.room
        if random.random() < self.probability:
            target = int(random.integers(2, self.room, endpoint=True))
        taken: list[int] = []
        total = 0
        for length in self._parts(lengths):
            if total + length > self.room:
                yield total, self._division(taken, random)
                taken, total = [], 0
            taken.append(length)
            total += length
            if total >= target:
                yield total, self._division(taken, random)
                taken, total = [], 0
        if taken:
            yield total, self._division(taken, random)

    def _parts(self, lengths: list[int]) -> Iterator[int]:
        """Yields sentence lengths; splits those longer than an example."""
        for length in lengths:
            while length > self.room:
                yield self.room
                length -= self.room
            if length:
                yield length

    def _division(self, taken: list[int], random: np.random.Generator) -> int:
        if self.segments == 1 or len(taken) == 1:
            return sum(taken)
        return sum(taken[: int(random.integers(1, len(taken)))])


class _Packed(NamedTuple):
    word_ids: np.ndarray
    type_ids: np.ndarray
    lengths: np.ndarray


def _pack_batch(
    values: np.ndarray,
    splits: np.ndarray,
    sentences: list[int],
    number: int,
    chooser: _Chooser,
    tokenizer: Any,
) -> _Packed:
    """Makes examples from documents; only inserts special tokens. Sentence i has `values[splits[i]:splits[i + 1]]`."""
    lengths = np.diff(splits).tolist()
    cuts: list[tuple[int, int]] = []
    first = 0
    for index, count in enumerate(sentences):
        cuts += chooser.examples(lengths[first : first + count], number + index)
        first += count
    totals, firsts = np.array(cuts, np.int64).reshape(-1, 2).T
    seconds = totals - firsts
    ends = np.cumsum(totals)
    is_pair = seconds > 0
    # At equal places, an example ends before the next one begins.
    places = np.concatenate([ends, ends - totals, (ends - seconds)[is_pair]])
    order = np.argsort(places, kind="stable")
    special = np.repeat(
        np.array([tokenizer.sep_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id], values.dtype),
        [len(ends), len(ends), is_pair.sum()],
    )
    word_ids = np.insert(values, places[order], special[order])
    # Runs of zeros and ones: [CLS] first [SEP], then second [SEP].
    runs = np.stack([firsts + 2, np.where(is_pair, seconds + 1, 0)], axis=1).ravel()
    type_ids = np.repeat(np.tile(np.array([0, 1], np.int8), len(totals)), runs)
    return _Packed(word_ids.astype(np.int32), type_ids, totals + 2 + is_pair)


class GrowingArray:
    """An array that grows in place. Joining a list of arrays would need twice the memory.

    Attributes:
      size: number of values.
    """

    def __init__(self, dtype: type[np.integer] = np.int32) -> None:
        self.size = 0
        self._buffer = np.empty(1 << 16, dtype)

    def add(self, values: np.ndarray) -> None:
        """Appends `values`."""
        end = self.size + len(values)
        if end > len(self._buffer):
            self._buffer.resize(max(end, len(self._buffer) * 3 // 2), refcheck=False)
        self._buffer[self.size : end] = values
        self.size = end

    def array(self) -> np.ndarray:
        """Returns the values. Do not add more afterwards."""
        self._buffer.resize(self.size, refcheck=False)
        return self._buffer
