"""Pretraining examples, read as training asks for them: any example by its number, in any order.

The shards stay on disk and an example is one small read from a file that the system maps into memory: what fits there
is read from the disk once, and a text that does not fit is read as fast as the disk finds places, so keep it on a local
one. In memory are 16 bytes an example.
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
from pocketbert.data.masking import MaskingVocabulary, mask_batch
from pocketbert.data.pretraining_manifest import (
    REMEDY,
    PretrainingManifest,
    ShardEntry,
    StoredVocabulary,
    read_manifest,
)
from pocketbert.data.pretraining_options import MaskingOptions
from pocketbert.data.teacher_cache_layout import VOCABULARY_NAME
from pocketbert.errors import UserError

if TYPE_CHECKING:
    import tensorflow as tf

# A TFRecord: the record's length and a checksum, the record, and its checksum.
_HEAD_BYTES, _TAIL_BYTES = 12, 4
# Fewer than the files that a process may have open by default.
_MOST_MAPPED = 256


class PretrainingData:
    """Examples of the masked-words and next-sentence tasks, made by `pocketbert pretrain-data`. `open` gives one.

    Attributes:
      folder: where it is.
      max_length: the most tokens of an example.
      pad_token_id: what fills a row up.
      vocab_path: the folder's own `vocab.txt`.
      lowercase: whether the tokenizer lower-cases.
      identity: SHA-256 that stands for the content.
      masked: whether masks are baked in.
      lengths: int32 `[N]`, tokens of each example.
      manifest: all that the folder says of itself.
      dev: development examples of the same kind, to evaluate on; None evaluates nothing.
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
        # Where each record ends in its shard, checksum and all.
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
        """Opens a folder, and that of its development examples.

        Args:
          folder: what `pocketbert pretrain-data` wrote, or the `dev` in it.
          dev: a folder of development examples, or None.
          verify: compare every file's SHA-256 with the manifest.
        Raises:
          UserError: it is missing, unfinished, damaged (all damaged files are named) or of another version.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        manifest.check_files(folder, digests=verify)
        return cls(folder, manifest, None if dev is None else cls.open(dev, verify=verify))

    def __len__(self) -> int:
        return len(self.lengths)

    def plan(self, *, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
        """Which examples make up each step of an epoch, those of about the same length together.

        Args:
          batch_size: examples a step; what an epoch has left over, fewer than these, is left out, others each time.
          seed: chooses the order, together with `epoch`; neither is negative.
          epoch: from 0.
        Returns:
          int64 arrays of `batch_size` numbers, as `pocketbert.data.batches.plan_batches` makes them.
        Raises:
          UserError: there are not as many examples.
        """
        if len(self) < batch_size:
            raise UserError(
                f"{self.folder}: a step takes {batch_size} examples; the data has {len(self)}; make the batch smaller, "
                "or make data of more text or with more --duplicates"
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
        """The batches of `plan` from step `start` on. A batch follows from its row, the seed and the epoch alone.

        Args:
          plan: rows of examples' numbers: those of `self.plan`, or parts of them.
          seed: of the masks; int32, not negative.
          epoch: of the masks; from 0.
          start: the first step; those before it cost nothing.
          masking: how much is masked; None for BERT's 15 % at any length. Baked-in masks stay what they are.
        Returns:
          Dicts of int32: `input_word_ids`, `input_mask`, `input_type_ids` `[B, S]`; `masked_lm_positions`,
          `masked_lm_labels` `[B, P]`, filled up with 0 and -1; `next_sentence_labels` `[B]`, 0: the second segment
          follows the first, 1: it is from elsewhere. S is a multiple of 8 or `max_length`; P is
          `masking.max_predictions`.
        """
        import tensorflow as tf

        from pocketbert.data.pretraining_records import PretrainingBatch, masked_decoder, plain_decoder

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
            # One rank and signature for rows of any size.
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
        """Decodes each shard's first record: a foreign file may have sums of its own that are right."""
        import tensorflow as tf

        examples = self._firsts[:-1][np.diff(self._firsts) > 0]
        try:
            decoded = decode(tf.constant(self.records(examples).tolist()))
            lengths = decoded["input_mask"].numpy().sum(axis=1)
            largest = int(decoded["input_word_ids"].numpy().max())
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            # TensorFlow quotes a record that is no text.
            raise UserError(f"{self.folder}: the records must be examples; received something else; {REMEDY}") from None
        if not np.array_equal(lengths, self.lengths[examples]) or largest >= self.manifest.tokenizer.vocab_size:
            raise UserError(f"{self.folder}: the records must fit their sizes and the vocabulary; {REMEDY}")

    def records(self, examples: np.ndarray) -> np.ndarray:
        """The serialized examples of these numbers, `[B]` bytes objects."""
        found = np.empty(len(examples), object)
        shards = np.searchsorted(self._firsts, examples, side="right") - 1
        for row, (example, shard) in enumerate(zip(examples, shards, strict=True)):
            end = self._ends[example] - _TAIL_BYTES
            found[row] = self._mapped(int(shard))[end - self._sizes[example] : end].tobytes()
        return found

    def _map(self, shard: int) -> np.ndarray:
        return np.memmap(self.folder / self.manifest.shards[shard].records.name, np.uint8, mode="r")


def _sizes(folder: Path, shard: ShardEntry, max_length: int) -> np.ndarray:
    """int32 `[2, examples]`: each example's tokens, and the bytes of its record."""
    found = read_int32(folder / shard.sizes.name, (2, shard.counts.examples), REMEDY)
    tokens, sizes = found
    total = int(sizes.sum(dtype=np.int64)) + (_HEAD_BYTES + _TAIL_BYTES) * len(sizes)
    if (len(sizes) and (tokens.min() < 1 or tokens.max() > max_length or sizes.min() < 0)) or (
        total != shard.records.size_bytes
    ):
        raise UserError(f"{folder / shard.sizes.name}: the sizes must fit the records; received others; {REMEDY}")
    return found
