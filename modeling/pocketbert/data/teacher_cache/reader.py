"""Reads a teacher cache: targets from memory-mapped files, joined with batches.

See `pocketbert.data.teacher_cache.layout` for the format. A run from a cache neither loads nor imports the teacher.
"""

from __future__ import annotations

import dataclasses
import functools
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.arrays import read_int32
from pocketbert.data.batches import EncodedExamples, dataset, index_rows
from pocketbert.data.manifests import digest_problems, size_problems
from pocketbert.data.teacher_cache.encodings import DTYPES
from pocketbert.data.teacher_cache.layout import TeacherCacheIdentity, TeacherCacheManifest, read_manifest
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.errors import UserError, raise_if_any
from pocketbert.notation import argument
from pocketbert.progress import bar
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["TeacherCache", "TeacherCacheIdentity", "TargetSpec"]

# Maximum number of mapped shards per cache, one cache per stage. A process often has at most 1,024 file descriptors.
MAPPED_SHARDS = 256
_REMEDY = "copy the cache again, or run the same cache-teacher command, which repairs it"


class TeacherCache:
    """A finished cache for one stage. Open it with `open`.

    Attributes:
      path: stage folder.
      identity: cache provenance.
      targets: targets cached for each example.
      teacher_config: teacher architecture.
      teacher_task: the teacher head's task; None for an encoder without a head.
      lengths: int32 `[N]`, number of tokens in each example.
      candidates: int32 `[N]`, number of tokens that each example may keep; None without kept tokens.
    """

    def __init__(
        self, path: Path, manifest: TeacherCacheManifest, lengths: np.ndarray, candidates: np.ndarray | None = None
    ) -> None:
        self.path = path
        self.identity = manifest.identity
        self.targets = manifest.targets
        self.teacher_config, self.teacher_task = manifest.teacher_config, manifest.teacher_task
        self.lengths, self.candidates = lengths, candidates
        self._manifest = manifest
        self._firsts = np.array([shard.first for shard in manifest.shards], np.int64)
        sizes = record_bytes(self.targets, lengths, candidates)
        starts = np.cumsum(sizes) - sizes
        self._starts = starts - np.repeat(starts[self._firsts], [shard.examples for shard in manifest.shards])
        names = [shard.name for shard in manifest.shards]
        # An array that views a shard keeps it mapped.
        self._shard = functools.lru_cache(MAPPED_SHARDS)(lambda number: _mapped(path / names[number]))

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], expect: TeacherCacheIdentity | None = None, *, verify: bool = True
    ) -> TeacherCache:
        """Opens a stage folder.

        Args:
          path: stage folder in the cache.
          expect: required provenance; parts that are None are not compared.
          verify: compare each file's SHA-256 with the manifest, which reads the whole cache. Sizes are always compared.
        Raises:
          UserError: the cache is missing, unfinished or damaged, or has another provenance; lists all differences.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        if expect is not None and (different := manifest.identity.differences(expect)):
            raise UserError(
                f"{folder}: the cache must match this run; received {'; '.join(different)}; pass the options of "
                f"cache-teacher again, including {argument('dev')}: without it, the dev split is a part of the "
                "training examples"
            )
        if not manifest.finished:
            written = sum(shard.sha256 is not None for shard in manifest.shards)
            raise UserError(
                f"{folder}: the cache must be finished; received {written} of {len(manifest.shards)} shards; run the "
                "same cache-teacher command again to resume"
            )
        files = manifest.files
        raise_if_any((problem for file in files for problem in size_problems(folder, file, _REMEDY)), str(folder))
        if verify:
            with bar(sum(file.size_bytes for file in files), "checking the cache", "B") as progress:
                raise_if_any(
                    (problem for file in files for problem in digest_problems(folder, file, progress, _REMEDY)),
                    str(folder),
                )
        examples = sum(shard.examples for shard in manifest.shards)
        lengths = read_int32(folder / manifest.lengths.name, (examples,), _REMEDY)
        candidates = None
        if manifest.candidates is not None:
            candidates = read_int32(folder / manifest.candidates.name, (examples,), _REMEDY)
            if candidates.min() < 1 or (candidates > lengths).any():
                raise UserError(
                    f"{folder}: an example must have at least 1 candidate, and at most one for each token; received "
                    f"others; {_REMEDY}"
                )
        ends = np.cumsum([shard.examples for shard in manifest.shards])
        # Floating point, so that a foreign manifest cannot cause an overflow.
        counts = lengths.astype(np.float64)
        needed = sum(target.unit_bytes * target.units_of(counts, candidates) for target in manifest.targets)
        sizes = [float(part.sum()) for part in np.split(needed, ends[:-1])]
        if lengths.min() < 1 or sizes != [shard.size_bytes for shard in manifest.shards]:
            raise UserError(f"{folder}: the lengths must match the shards; received others; {_REMEDY}")
        return cls(folder, manifest, lengths, candidates)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def vocabulary(self) -> Vocabulary:
        """The teacher's vocabulary in the cache."""
        return self._manifest.tokenizer_files(self.path)

    def example(self, index: int) -> dict[str, np.ndarray]:
        """Returns one example's targets, without padding: read-only views of the file, or decoded values."""
        (contents,) = self._contents(np.array([index]))
        candidates = None if self.candidates is None else int(self.candidates[index])
        return {
            target.name: _decoded(target, content, target.shape_of(int(self.lengths[index]), candidates))
            for target, content in zip(self.targets, contents, strict=True)
        }

    def _contents(self, indices: np.ndarray) -> Iterator[list[np.ndarray]]:
        """Yields each example's target bytes: uint8 views of the mapped files."""
        candidates = None if self.candidates is None else self.candidates[indices]
        sizes = np.stack([target.bytes_of(self.lengths[indices], candidates) for target in self.targets], axis=1)
        # Lets the system read all records in parallel.
        for index, size in zip(indices, sizes.sum(1), strict=True):
            shard, place = self._record(int(index))
            page = place % mmap.PAGESIZE
            shard.madvise(mmap.MADV_WILLNEED, place - page, int(size) + page)
        for index, record_sizes in zip(indices, sizes.tolist(), strict=True):
            shard, place = self._record(int(index))
            contents = []
            for size in record_sizes:
                contents.append(np.frombuffer(shard, np.uint8, size, place))
                place += size
            yield contents

    def read(self, indices: np.ndarray, width: int) -> list[np.ndarray]:
        """Reads targets for a batch: arrays `[B, …]`, padded with zeros, in the stored type or decoded.

        Args:
          indices: `[B]`, example indices.
          width: padded size of token axes.
        """
        batch = [np.zeros((len(indices), *target.shape_of(width)), target.decoded_dtype) for target in self.targets]
        # Vectors in rows are decoded together, much faster than one by one.
        together = [t.encoding != "plain" and len(t.shape) > 1 and None not in t.shape[1:] for t in self.targets]
        encoded: list[list[tuple[int, np.ndarray]]] = [[] for _ in batch]
        for row, contents in enumerate(self._contents(indices)):
            length = int(self.lengths[indices[row]])
            candidates = None if self.candidates is None else int(self.candidates[indices[row]])
            for number, (target, content) in enumerate(zip(self.targets, contents, strict=True)):
                shape = target.shape_of(length, candidates)
                if together[number]:
                    encoded[number].append((shape[0], content))
                else:
                    own: tuple[Any, ...] = (row, *map(slice, shape))
                    batch[number][own] = _decoded(target, content, shape)
        for target, parts, values in zip(self.targets, encoded, batch, strict=True):
            if parts:
                rows = np.array([count for count, _ in parts])
                vectors = target.decode(
                    np.concatenate([content for _, content in parts]), (int(rows.sum()), *values.shape[2:])
                )
                values[np.arange(values.shape[1]) < rows[:, np.newaxis]] = vectors
        return batch

    def _record(self, index: int) -> tuple[mmap.mmap, int]:
        """Returns the mapped file with an example's record, and the record's offset."""
        return self._shard(int(np.searchsorted(self._firsts, index, side="right")) - 1), int(self._starts[index])

    def dataset(self, encoded: EncodedExamples, plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
        """Makes batches with the teacher's targets, from step `start` on. All have the same signature.

        Returns:
          `(batch, targets)` in plan order: inputs from `batches.dataset`, with `labels` if there are any; and name →
          float32 or int32 tensor, padded with zeros to the batch width.
        Raises:
          UserError: the cache has other examples.
        """
        import tensorflow as tf

        if not np.array_equal(encoded.read_by_teacher.lengths, self.lengths):
            raise UserError(
                f"{self.path}: the examples must be those in the cache; received {len(encoded)} examples with other "
                f"lengths than the {len(self)} in the cache; pass the same data"
            )
        types = [tf.as_dtype(target.decoded_dtype) for target in self.targets]
        casts = [tf.int32 if target.holds_indices else tf.float32 for target in self.targets]

        def join(inputs: Any, indices: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
            batch = dict(inputs) if encoded.labels is None else {**inputs[0], "labels": inputs[1]}
            width = tf.shape(batch["input_mask"])[1]
            arrays = tf.numpy_function(self.read, [indices, width], types, stateful=False)
            targets = {
                target.name: tf.ensure_shape(tf.cast(array, cast), [None, *target.shape])
                for target, array, cast in zip(self.targets, arrays, casts, strict=True)
            }
            return batch, targets

        students = dataclasses.replace(encoded, teacher_rows=None)
        pairs = tf.data.Dataset.zip((dataset(students, plan, start), index_rows(plan, start)))
        # Batches with targets are large; two are enough to read ahead of the step.
        return pairs.map(join, num_parallel_calls=2, deterministic=True).prefetch(2)


def _decoded(target: TargetSpec, content: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a view of plain numbers, which may be unaligned, or decoded values."""
    if target.encoding == "plain":
        return content.view(DTYPES[target.dtype]).reshape(shape)
    return target.decode(content, shape)


def _mapped(path: Path) -> mmap.mmap:
    with open(path, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
