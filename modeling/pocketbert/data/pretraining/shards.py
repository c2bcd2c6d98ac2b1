"""Makes one shard of pretraining data from its part of the text."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from pocketbert.data.packing import GrowingArray, sentence_batches
from pocketbert.data.pretraining.manifest import (
    DEV_FOLDER,
    Counts,
    PretrainingOptions,
    ShardEntry,
    VocabularyFacts,
    shard_entry,
    stored_file,
)
from pocketbert.data.pretraining.masking import MaskingVocabulary
from pocketbert.data.pretraining.next_sentence import IS_RANDOM, SentencePair, TokenizedText, next_sentence_pairs
from pocketbert.data.pretraining.records import Masker, plain_records
from pocketbert.data.readers.text import Document, TextCounts, TextFormat, estimated_text_bytes, file_documents
from pocketbert.errors import UserError
from pocketbert.files import new_file, sha256, stamp, write_json
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import parse_json

if TYPE_CHECKING:
    from pocketbert.tokenizers.wordpiece import WordPieceTokenizer

DATA_FOLDER, FINISHED_FOLDER = "data", "finished"


@dataclass(frozen=True)
class TextPart:
    """The documents in a file with number % `parts` equal to `index`; `stamp` detects changes since the run's start."""

    file: Path
    index: int
    parts: int
    stamp: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class ShardJob:
    """A process's input to make a shard. It can be pickled.

    Attributes:
      folder: the unfinished run's folder. All processes must see it and the text.
      shards: each shard's text parts.
      format: text format; None detects it for each file.
      tokenizer: the tokenizer.
      options: example options.
    """

    folder: Path
    shards: tuple[tuple[TextPart, ...], ...]
    format: TextFormat | None
    tokenizer: WordPieceTokenizer
    options: PretrainingOptions

    def finished_file(self, shard: int) -> Path:
        """Returns the file that marks a shard as complete."""
        return self.folder / FINISHED_FOLDER / f"{shard:05d}.json"

    def shard_file(self, shard: int, folder: str) -> Path:
        """Returns a shard's record file; `folder` is `DEV_FOLDER` or empty."""
        return self.folder / DATA_FOLDER / folder / f"shard-{shard:05d}-of-{len(self.shards):05d}.tfrecord"


@dataclass(frozen=True, kw_only=True)
class FinishedShard:
    """Record of a complete shard.

    Attributes:
      train: manifest entry.
      dev: entry in the dev split's manifest, or None.
      left_out_documents: skipped documents, without text or tokens.
      left_out_paragraphs: skipped paragraphs, without words.
    """

    train: ShardEntry
    dev: ShardEntry | None
    left_out_documents: int
    left_out_paragraphs: int

    @classmethod
    def read(cls, path: Path) -> FinishedShard:
        """Reads a record by `write_shard`. Raises `UserError` if it is damaged."""
        try:
            stored = parse_json(path.read_bytes(), path)
            content = stored["shard"]
            if stored["sha256"] != _digest(content):
                raise ValueError("its SHA-256 differs")
            entries = {name: content[name] and shard_entry(content[name]) for name in ("train", "dev")}
            return cls(**{**content, **entries})
        except (ValueError, KeyError, TypeError) as error:
            again = f"pass {argument('overwrite', True)} to make it again"
            raise UserError(f"{path}: the file is damaged ({error}); {again}") from error


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_finished(job: ShardJob, shard: int) -> bool:
    """Returns whether a shard is complete and its files are unchanged."""
    try:
        finished = FinishedShard.read(job.finished_file(shard))
    except (FileNotFoundError, UserError):
        return False
    entries = {"": finished.train} | ({DEV_FOLDER: finished.dev} if finished.dev is not None else {})
    return all(
        (path := job.shard_file(shard, folder).with_name(file.name)).is_file()
        and path.stat().st_size == file.size_bytes
        and sha256(path) == file.sha256
        for folder, entry in entries.items()
        for file in (entry.records, entry.sizes)
    )


def divide(files: list[Path], shards: int) -> tuple[tuple[TextPart, ...], ...]:
    """Divides files among shards: each has parts in proportion to its size, at least one. Shards get parts in turn."""
    sizes = [max(1, estimated_text_bytes(file)) for file in files]
    total = sum(sizes)
    counts = [-(-shards * size // total) for size in sizes]
    parts = [
        TextPart(file, index, count, stamp(file))
        for file, count in zip(files, counts, strict=True)
        for index in range(count)
    ]
    return tuple(tuple(parts[first::shards]) for first in range(shards))


def write_shard(job: ShardJob, shard: int) -> None:
    """Makes a shard's files, the finished mark last. Raises `UserError` for unreadable or too few documents."""
    counts = TextCounts()
    train, dev, without_tokens = _tokenized(job, _documents(job, shard, counts))
    finished = FinishedShard(
        train=_write(job, shard, train, ""),
        dev=_write(job, shard, dev, DEV_FOLDER) if job.options.dev_every else None,
        left_out_documents=counts.empty_documents + without_tokens,
        left_out_paragraphs=counts.dropped_paragraphs,
    )
    content = dataclasses.asdict(finished)
    write_json(job.finished_file(shard), {"shard": content, "sha256": _digest(content)})


def _documents(job: ShardJob, shard: int, counts: TextCounts) -> Iterator[Document]:
    for part in job.shards[shard]:
        yield from file_documents(part.file, format=job.format, counts=counts, part=(part.index, part.parts))
        if stamp(part.file) != part.stamp:
            raise UserError(
                f"the text must not change during the run; received a changed {part.file}; run the command again, with "
                f"{argument('overwrite', True)} if the content has changed"
            )


class _GrowingText:
    def __init__(self) -> None:
        self.word_ids, self.sentence_lengths, self.sentence_counts = GrowingArray(), GrowingArray(), GrowingArray()

    def add(self, word_ids: np.ndarray, sentence_lengths: np.ndarray) -> None:
        self.word_ids.add(word_ids)
        self.sentence_lengths.add(sentence_lengths)
        self.sentence_counts.add(np.array([len(sentence_lengths)]))

    def text(self) -> TokenizedText:
        sentences, documents = (
            np.concatenate([[0], np.cumsum(numbers.array(), dtype=np.int64)])
            for numbers in (self.sentence_lengths, self.sentence_counts)
        )
        return TokenizedText(self.word_ids.array(), sentences, documents)


def _tokenized(job: ShardJob, documents: Iterable[Document]) -> tuple[TokenizedText, TokenizedText, int]:
    """Returns training documents, dev documents, and the number of documents without tokens."""
    train, dev = _GrowingText(), _GrowingText()
    every = job.options.dev_every
    with_tokens = without_tokens = 0
    for _, batch in sentence_batches(documents):
        ids = job.tokenizer.tokenize([sentence for document in batch for sentence in document])
        splits, values = np.asarray(ids.row_splits), np.asarray(ids.values)
        bounds = itertools.pairwise(np.cumsum([0, *map(len, batch)]).tolist())
        for begin, end in bounds:
            lengths = np.diff(splits[begin : end + 1])
            lengths = lengths[lengths > 0]
            if not len(lengths):
                without_tokens += 1
                continue
            with_tokens += 1
            is_dev = every and with_tokens % every == 0
            (dev if is_dev else train).add(values[splits[begin] : splits[end]], lengths)
    return train.text(), dev.text(), without_tokens


def _remedy(job: ShardJob, is_dev: bool) -> str:
    """Lists ways to give a shard more documents."""
    remedies = []
    if len(job.shards) > 1:
        remedies.append(f"pass fewer {argument('shards')}")
    if is_dev and job.options.dev_every > 2:
        remedies.append(f"pass a smaller {argument('dev_every')}")
    if not is_dev and job.options.dev_every:
        remedies.append(f"leave {argument('dev_every')} out")
    return " or ".join([*remedies, "add text with more documents; in text files, a blank line ends a document"])


def _write(job: ShardJob, shard: int, text: TokenizedText, folder: str) -> ShardEntry:
    options, path = job.options, job.shard_file(shard, folder)
    documents = len(text.documents) - 1
    if documents < 2:
        # Random next sentences come from another document.
        raise UserError(
            f"each shard must have at least two {'dev ' if folder else ''}documents with words; received {documents} "
            f"in shard {shard} of {len(job.shards)}; {_remedy(job, is_dev=bool(folder))}"
        )
    pairs = np.concatenate([_pairs(text, options, shard, duplicate, folder) for duplicate in range(options.duplicates)])
    facts = VocabularyFacts.of(job.tokenizer)
    if options.masking is None:
        records = plain_records(text.word_ids, _rows(pairs), facts)
    else:
        # Shuffle as tf-models-official does, for readers that read the file in order.
        pairs = np.random.default_rng([options.seed, shard]).permutation(pairs)
        masker = Masker(
            options.masking,
            max_length=options.max_length,
            seed=options.seed,
            tokenizer=facts,
            vocabulary=MaskingVocabulary.of(job.tokenizer),
        )
        records = masker.records(text.word_ids, _rows(pairs), shard)
    tokens = (pairs[:, 2] - pairs[:, 1]) + (pairs[:, 4] - pairs[:, 3]) + 3
    sizes = _write_records(path, records, len(pairs))
    with new_file(path.with_suffix(".npy")) as stream:
        np.save(stream, np.stack([tokens, sizes]).astype("<i4"), allow_pickle=False)
    return ShardEntry(
        records=stored_file(path),
        sizes=stored_file(path.with_suffix(".npy")),
        counts=Counts(
            documents=documents,
            sentences=len(text.sentences) - 1,
            tokens=len(text.word_ids),
            examples=len(pairs),
            random_next=int((pairs[:, 5] == IS_RANDOM).sum()),
            example_tokens=int(tokens.sum()),
        ),
    )


def _pairs(text: TokenizedText, options: PretrainingOptions, shard: int, duplicate: int, folder: str) -> np.ndarray:
    """Returns sentence pairs as int32 `[N, 6]`, a tenth of a list's memory."""
    chosen_pairs = next_sentence_pairs(
        text,
        max_length=options.max_length,
        short_sequence_probability=options.short_sequence_probability,
        key=(options.seed, shard, int(bool(folder)), duplicate),
    )
    return np.array(list(chosen_pairs), np.int32)


def _rows(pairs: np.ndarray) -> Iterator[SentencePair]:
    return (SentencePair(*row.tolist()) for row in pairs)


def _write_records(path: Path, records: Iterable[bytes], count: int) -> np.ndarray:
    """Writes a TFRecord file atomically; returns the record sizes in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    sizes = np.zeros(count, np.int64)
    with tf.io.TFRecordWriter(str(aside)) as writer:
        for number, record in enumerate(records):
            writer.write(record)
            sizes[number] = len(record)
    with open(aside, "rb") as stream:
        os.fsync(stream.fileno())
    os.replace(aside, path)
    return sizes
