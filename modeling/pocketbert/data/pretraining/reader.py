"""Reads pretraining examples with random access.

Shards stay on disk and are mapped into memory, so each example is one small read. Keep data larger than your memory on
a local disk. The reader itself needs 16 bytes per example.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pocketbert.data.arrays import read_int32
from pocketbert.data.batches import index_rows, plan_batches
from pocketbert.data.manifests import VOCABULARY_NAME
from pocketbert.data.pretraining.manifest import (
    REMEDY,
    PretrainingManifest,
    ShardEntry,
    StoredVocabulary,
    read_manifest,
)
from pocketbert.data.pretraining.masking import MaskingVocabulary, mask_batch
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert.errors import UserError
from pocketbert.notation import argument

if TYPE_CHECKING:
    import tensorflow as tf

# A TFRecord has the length with a checksum, the record, and its checksum.
_HEAD_BYTES, _TAIL_BYTES = 12, 4
# Below the default limit on open files.
_MOST_MAPPED = 256


class PretrainingData:
    """MLM and NSP examples from `pocketbert pretrain-data`. Open a folder with `open`.

    Attributes:
      folder: folder with the examples.
      max_length: maximum sequence length.
      pad_token_id: padding id.
      vocab_path: path to `vocab.txt` in the folder.
      lowercase: whether the tokenizer lower-cases.
      identity: content SHA-256.
      masked: whether masks are static.
      lengths: int32 `[N]`, number of tokens in each example.
      manifest: the folder's manifest.
      dev: dev split for evaluation, or None.
    """

    def __init__(self, folder: Path, manifest: PretrainingManifest, dev: PretrainingData | None = None) -> None:
        self.folder, self.dev = folder, dev
        self.manifest = manifest
        self.max_length = manifest.options.max_length
        self.pad_token_id = manifest.tokenizer.pad_token_id
        self.vocab_path = folder / VOCABULARY_NAME
        self.lowercase = manifest.tokenizer.lowercase
        self.identity = manifest.identity
        self.masked = manifest.options.masking is not None
        sizes = [_sizes(folder, shard, self.max_length) for shard in manifest.shards]
        self.lengths: np.ndarray = np.concatenate([tokens for tokens, _ in sizes])
        # Each record's end in its shard, with the checksum.
        self._ends = np.concatenate(
            [np.cumsum(count + (_HEAD_BYTES + _TAIL_BYTES), dtype=np.int64) for _, count in sizes]
        )
        self._sizes = np.concatenate([count for _, count in sizes])
        self._firsts = np.cumsum([0, *(len(count) for _, count in sizes)])
        self._mapped = functools.lru_cache(_MOST_MAPPED)(self._map)

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], dev: str | os.PathLike[str] | None = None, *, verify: bool = True
    ) -> PretrainingData:
        """Opens a folder and a dev split.

        Args:
          folder: `pocketbert pretrain-data` output, or its `dev`.
          dev: folder with the dev split, or None.
          verify: compare each file's SHA-256 with the manifest.
        Raises:
          UserError: the folder is missing, unfinished, damaged (all damaged files are listed) or has another version.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        manifest.check_files(folder, digests=verify)
        return cls(folder, manifest, None if dev is None else cls.open(dev, verify=verify))

    def __len__(self) -> int:
        return len(self.lengths)

    def plan(self, *, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
        """Plans one epoch's steps: int64 `[batch_size]` indices with similar lengths; see `plan_batches`.

        Args:
          batch_size: examples per step. Left-over examples are dropped, different ones in each epoch.
          seed: random seed, not negative.
          epoch: epoch number, from 0.
        Raises:
          UserError: there are fewer than `batch_size` examples.
        """
        if len(self) < batch_size:
            raise UserError(
                f"{self.folder}: a step needs {batch_size} examples; received {len(self)}; choose a smaller batch, or "
                f"make data from more text or with more {argument('duplicates', of='pretrain-data')}"
            )
        rows = plan_batches(self.lengths, batch_size=batch_size, seed=seed, epoch=epoch)
        return [row for row in rows if len(row) == batch_size]

    def dataset(
        self,
        plan: Sequence[np.ndarray],
        *,
        seed: int,
        epoch: int,
        start: int = 0,
        masking: MaskingOptions | None = None,
    ) -> tf.data.Dataset:
        """Makes batches. A batch depends only on its row in the plan, the seed and the epoch.

        Args:
          plan: rows from `self.plan`, or parts of them.
          seed: random seed for the masks; int32, not negative.
          epoch: epoch number, from 0.
          start: first step; skipping steps costs nothing.
          masking: masking rates; None for BERT's 15 % at any length. They do not affect static masks.
        Returns:
          Dicts with int32 tensors: `input_word_ids`, `input_mask`, `input_type_ids` `[B, S]`; `masked_lm_positions` and
          `masked_lm_labels` `[B, P]`, padded with 0 and -1; `next_sentence_labels` `[B]`, 0 if the second segment
          follows the first, else 1. S is a multiple of 8 or `max_length`; P is `masking.max_predictions`.
        """
        import tensorflow as tf

        from pocketbert.data.pretraining.records import PretrainingBatch, masked_decoder, plain_decoder

        options = self.manifest.options
        if options.masking is not None:
            decode = masked_decoder(self.max_length, options.masking)
        else:
            decode = plain_decoder(self.max_length, self.pad_token_id)
        self._check_records(decode)
        masking = masking or MaskingOptions.of_length(self.max_length)
        vocabulary = MaskingVocabulary.of(StoredVocabulary(**vars(self.manifest.tokenizer), vocab_path=self.vocab_path))

        def batch(examples: tf.Tensor) -> PretrainingBatch:
            records = tf.numpy_function(self.records, [examples], tf.string, stateful=False)
            # All batches have the same signature.
            inputs = decode(tf.ensure_shape(records, [None]))
            if not self.masked:
                masked = mask_batch(
                    inputs["input_word_ids"],
                    inputs["input_mask"],
                    vocabulary.special(inputs["input_word_ids"]),
                    examples,
                    seed=seed,
                    epoch=epoch,
                    max_length=self.max_length,
                    vocabulary=vocabulary,
                    options=masking,
                )
                inputs["input_word_ids"] = masked.word_ids
                inputs |= {"masked_lm_positions": masked.positions, "masked_lm_labels": masked.labels}
            return inputs

        return index_rows(plan, start).map(batch, num_parallel_calls=2, deterministic=True).prefetch(4)

    def _check_records(self, decode: Callable[[tf.Tensor], dict[str, tf.Tensor]]) -> None:
        """Decodes each shard's first record: a foreign file may have correct checksums of its own."""
        import tensorflow as tf

        examples = self._firsts[:-1][np.diff(self._firsts) > 0]
        try:
            decoded = decode(tf.constant(self.records(examples).tolist()))
            lengths = decoded["input_mask"].numpy().sum(axis=1)
            largest = int(decoded["input_word_ids"].numpy().max())
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            # TensorFlow quotes the record, which may not be text.
            raise UserError(f"{self.folder}: the records must be examples; received other content; {REMEDY}") from None
        if not np.array_equal(lengths, self.lengths[examples]) or largest >= self.manifest.tokenizer.vocab_size:
            raise UserError(f"{self.folder}: the records must match sizes and vocabulary; received others; {REMEDY}")

    def records(self, examples: np.ndarray) -> np.ndarray:
        """Reads serialized examples by index, as an array `[B]` of bytes objects."""
        records = np.empty(len(examples), object)
        shards = np.searchsorted(self._firsts, examples, side="right") - 1
        for row, (example, shard) in enumerate(zip(examples, shards, strict=True)):
            end = self._ends[example] - _TAIL_BYTES
            records[row] = self._mapped(int(shard))[end - self._sizes[example] : end].tobytes()
        return records

    def _map(self, shard: int) -> np.ndarray:
        return np.memmap(self.folder / self.manifest.shards[shard].records.name, np.uint8, mode="r")


def _sizes(folder: Path, shard: ShardEntry, max_length: int) -> np.ndarray:
    """Reads each example's number of tokens and record size in bytes, int32 `[2, examples]`."""
    counts = read_int32(folder / shard.sizes.name, (2, shard.counts.examples), REMEDY)
    tokens, sizes = counts
    total = int(sizes.sum(dtype=np.int64)) + (_HEAD_BYTES + _TAIL_BYTES) * len(sizes)
    if (len(sizes) and (tokens.min() < 1 or tokens.max() > max_length or sizes.min() < 0)) or (
        total != shard.records.size_bytes
    ):
        raise UserError(f"{folder / shard.sizes.name}: the sizes must match the records; received others; {REMEDY}")
    return counts
