"""Documents as full inputs: sentences packed to `max_length` tokens, as for BERT's pretraining, without labels.

Source: google-research/bert `create_pretraining_data.py` (the BERT paper, appendix A.2, gives the lengths alone).
Departures, since nothing here has to predict the next sentence: every token of the text is in exactly one example
(a sentence that does not fit begins the next example, where BERT's code cuts the surplus off; one that is longer than
an example is split), and the second segment is always the text that follows the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.sentences import split_sentences
from pocketbert.data.text import Document
from pocketbert.errors import UserError, raise_if_any
from pocketbert.progress import bar

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

_SENTENCES_A_CALL = 16384


def pack(
    documents: Iterable[Document],
    tokenizer: WordPieceTokenizer,
    max_length: int = 128,
    *,
    segments: Literal[1, 2] = 1,
    short_sequence_probability: float = 0.1,
    seed: int = 0,
) -> EncodedExamples:
    """Packs the sentences of documents into examples of at most `max_length` tokens; none crosses a document.

    An example takes whole sentences until the next one does not fit, or until it has as many tokens as its document's
    target. The target is the full length or, with `short_sequence_probability`, a length drawn once for the document
    from 2 to the full one, as BERT's code does, so that a model also sees short inputs.

    The result is a function of the arguments alone; the random numbers are NumPy's PCG64, seeded with (seed, number of
    the document). Text is held a few thousand sentences at a time; only the ids of all tokens stay in memory, 5 bytes
    a token.

    Args:
      documents: from `read_documents`; may be a stream.
      tokenizer: text to ids; its [CLS] and [SEP] frame the segments.
      max_length: the most tokens of an example, special tokens included.
      segments: 1: `[CLS] text [SEP]`. 2: `[CLS] text [SEP] text that follows [SEP]`, divided at random between two
        sentences; an example of a single sentence has one segment all the same.
      short_sequence_probability: of a document, to be cut into shorter examples.
      seed: of the targets and the divisions.
    Returns:
      Examples without labels, in the order of the text.
    Raises:
      UserError: an impossible option, or no token in any document.
    """
    _check(max_length, segments, short_sequence_probability, seed)
    room = max_length - 1 - segments
    chooser = _Chooser(room, segments, short_sequence_probability, seed)
    # Two segments fit into a byte, and a large text is mostly this array and the words'.
    words, types, lengths = GrowingArray(), GrowingArray(np.int8), GrowingArray()
    with bar(None, "pack", "token") as progress:
        for number, batch in sentence_batches(documents):
            ids = tokenizer.tokenize([sentence for document in batch for sentence in document])
            splits, values = np.asarray(ids.row_splits), np.asarray(ids.values)
            packed = _pack_batch(values, splits, [len(document) for document in batch], number, chooser, tokenizer)
            words.add(packed.word_ids)
            types.add(packed.type_ids)
            lengths.add(packed.lengths)
            progress.update(len(values))
    if not lengths.size:
        raise UserError("the text must hold at least one token; received documents without any; check the text's path")
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
        problems.append(f"segments is 1 or 2; received {segments!r}")
    elif max_length < segments + 3:
        problems.append(f"max_length has room for special tokens and two others; received {max_length}")
    if not 0 <= probability <= 1:
        problems.append(f"short_sequence_probability lies in [0, 1]; received {probability}")
    if seed < 0:
        problems.append(f"seed must not be negative; received {seed}")
    raise_if_any(problems, "packing")


def sentence_batches(documents: Iterable[Document]) -> Iterator[tuple[int, list[list[str]]]]:
    """(number of the first document, sentences of each document), of some thousand sentences in all."""
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
    """Where the examples of one document begin, and where they are divided."""

    def __init__(self, room: int, segments: int, probability: float, seed: int) -> None:
        self.room, self.segments, self.probability, self.seed = room, segments, probability, seed

    def examples(self, lengths: list[int], document: int) -> Iterator[tuple[int, int]]:
        """Cuts a document.

        Args:
          lengths: tokens of each sentence.
          document: its number.
        Yields:
          (tokens of the example, tokens of its first segment), without special tokens.
        """
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
        """Sentences, those that are longer than an example in parts."""
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
    """The examples of some documents. Since they lack no token of the text, special tokens are all that is put in.

    Args:
      values: ids of all sentences, end to end.
      splits: sentence i has the ids from `splits[i]` to `splits[i + 1]`.
      sentences: how many each document has.
      number: of the first document.
      chooser: where to cut.
      tokenizer: for its special tokens.
    """
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
    # In this order where places are equal: the end of one example stands before the beginning of the next.
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
    """An array that grows in place: a list of parts, joined at the end, would need its memory twice.

    Args:
      dtype: of the numbers.

    Attributes:
      size: numbers in it.
    """

    def __init__(self, dtype: type[np.integer] = np.int32) -> None:
        self.size = 0
        self._buffer = np.empty(1 << 16, dtype)

    def add(self, values: np.ndarray) -> None:
        """Puts `values` behind what is there."""
        end = self.size + len(values)
        if end > len(self._buffer):
            self._buffer.resize(max(end, len(self._buffer) * 3 // 2), refcheck=False)
        self._buffer[self.size : end] = values
        self.size = end

    def array(self) -> np.ndarray:
        """All of it; nothing may be added after."""
        self._buffer.resize(self.size, refcheck=False)
        return self._buffer
