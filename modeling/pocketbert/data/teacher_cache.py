"""Reading a teacher cache: targets from memory-mapped files, in any order, beside the batches they belong to.

The format is `pocketbert.data.teacher_cache_layout`'s, the writer `pocketbert.data.teacher_cache_writer`. Nothing here
knows a model: a run from a store neither loads nor imports the teacher.
"""

from __future__ import annotations

import functools
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.arrays import read_int32
from pocketbert.data.batches import EncodedExamples, dataset
from pocketbert.data.teacher_cache_layout import (
    DTYPES,
    StoredFile,
    TargetSpec,
    TeacherCacheIdentity,
    TeacherCacheManifest,
    read_manifest,
    record_bytes,
)
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256
from pocketbert.progress import bar

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["TeacherCache", "TeacherCacheIdentity", "TargetSpec"]

# The shards that a store has mapped at a time, those read last. Each holds a descriptor, of which a process may often
# have no more than 1,024, and a run opens a store for each of its stages.
MAPPED_SHARDS = 256
_REMEDY = "copy the store again, or run the same cache-teacher command, which writes what is damaged anew"


class TeacherCache:
    """A finished store of one stage, open for reading. Make one with `open`.

    Attributes:
      path: the stage's folder.
      identity: what the store was made from.
      targets: what it holds of each example.
      teacher_config: the teacher's architecture, for what has to be known of it without its folder.
      teacher_task: what the teacher's head was trained for; None for a bare encoder.
      lengths: int32 `[N]`, tokens of each example.
    """

    def __init__(self, path: Path, manifest: TeacherCacheManifest, lengths: np.ndarray) -> None:
        self.path = path
        self.identity = manifest.identity
        self.targets = manifest.targets
        self.teacher_config, self.teacher_task = manifest.teacher_config, manifest.teacher_task
        self.lengths = lengths
        self._manifest = manifest
        self._firsts = np.array([shard.first for shard in manifest.shards], np.int64)
        sizes = record_bytes(self.targets, lengths)
        starts = np.cumsum(sizes) - sizes
        self._starts = starts - np.repeat(starts[self._firsts], [shard.examples for shard in manifest.shards])
        names = [shard.name for shard in manifest.shards]
        # An array that is a view of a shard keeps it mapped for as long as the array lives.
        self._shard = functools.lru_cache(MAPPED_SHARDS)(lambda number: _mapped(path / names[number]))

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], expect: TeacherCacheIdentity | None = None, *, verify: bool = True
    ) -> TeacherCache:
        """Opens a stage's folder.

        Args:
          path: the stage's folder inside the store.
          expect: what the run would have its live teacher compute from; parts that are None are not compared.
          verify: compare every file's SHA-256 with the manifest's, under a progress bar. It reads the whole store
            once; sizes are always compared.

        Raises:
          UserError: there is no store, it is unfinished or damaged, or it was made from something else; the message
            names every difference.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        if expect is not None and (different := manifest.identity.differences(expect)):
            raise UserError(
                f"{folder}: this store cannot stand for the teacher here: {'; '.join(different)}; repeat what "
                "cache-teacher was given, the file of development examples too: without one a part of the training "
                "examples is in the dev split"
            )
        if not manifest.finished:
            written = sum(shard.sha256 is not None for shard in manifest.shards)
            raise UserError(
                f"{folder}: the store must be finished; received {written} of {len(manifest.shards)} shards; run the "
                "same cache-teacher command again, which resumes"
            )
        files = manifest.files
        raise_if_any((problem for file in files for problem in size_problems(folder, file)), str(folder))
        if verify:
            with bar(sum(file.size_bytes for file in files), "checking the store", "B") as progress:
                raise_if_any(
                    (problem for file in files for problem in digest_problems(folder, file, progress)), str(folder)
                )
        examples = sum(shard.examples for shard in manifest.shards)
        lengths = read_int32(folder / manifest.lengths.name, (examples,), _REMEDY)
        ends = np.cumsum([shard.examples for shard in manifest.shards])
        # In floating point, which a foreign manifest cannot make overflow.
        needed = sum(target.unit_bytes * lengths.astype(np.float64) ** target.token_axes for target in manifest.targets)
        sizes = [float(part.sum()) for part in np.split(needed, ends[:-1])]
        if lengths.min() < 1 or sizes != [shard.size_bytes for shard in manifest.shards]:
            raise UserError(f"{folder}: the lengths must fit the shards; received others; {_REMEDY}")
        return cls(folder, manifest, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def vocabulary(self) -> tuple[Path, bool]:
        """The teacher's vocab.txt, in the store, and whether its tokenizer lower-cases."""
        return self.path / self._manifest.vocabulary.name, self._manifest.lowercase

    def example(self, index: int) -> dict[str, np.ndarray]:
        """The targets of one example as they are stored: read-only views of the mapped file, without padding."""
        length = int(self.lengths[index])
        shard, place = self._record(index)
        found = {}
        for target in self.targets:
            shape = target.shape_of(length)
            count = int(np.prod(shape, dtype=np.int64))
            values = np.frombuffer(shard, DTYPES[target.dtype], count, place)
            found[target.name] = values.reshape(shape)
            place += values.nbytes
        return found

    def read(self, indices: np.ndarray, width: int) -> list[np.ndarray]:
        """The targets of a batch in the order of `targets`, as they are stored, zeros behind each example's end.

        Args:
          indices: `[B]`.
          width: what token axes are filled up to.

        Returns:
          An array a target, `[B, …]`.
        """
        batch = [np.zeros((len(indices), *target.shape_of(width)), DTYPES[target.dtype]) for target in self.targets]
        # Off a disk, the batch's records are fetched side by side and not one after the other.
        for index, size in zip(indices, record_bytes(self.targets, self.lengths[indices]), strict=True):
            shard, place = self._record(int(index))
            page = place % mmap.PAGESIZE
            shard.madvise(mmap.MADV_WILLNEED, place - page, int(size) + page)
        for row, index in enumerate(indices):
            for array, values in zip(batch, self.example(int(index)).values(), strict=True):
                own: tuple[Any, ...] = (row, *map(slice, values.shape))
                array[own] = values
        return batch

    def _record(self, index: int) -> tuple[mmap.mmap, int]:
        """The mapped file of an example's record, and where in it the record begins."""
        return self._shard(int(np.searchsorted(self._firsts, index, side="right")) - 1), int(self._starts[index])

    def dataset(self, encoded: EncodedExamples, plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
        """The batches of `plan` from step `start` on, each with the teacher's targets.

        Args:
          encoded: the examples that the store was made from.
          plan: from `plan_batches`.
          start: the first step; those before it cost nothing.

        Returns:
          `(batch, targets)` in the plan's order. `batch` is what `batches.dataset` gives, with `labels` among the
          inputs if there are any; `targets` maps names to float32 tensors, padded with zeros to the batch's width. All
          have one signature.

        Raises:
          UserError: the examples are not the store's.
        """
        import tensorflow as tf

        if not np.array_equal(encoded.lengths, self.lengths):
            raise UserError(
                f"{self.path}: the examples must be those the store was made from; received {len(encoded)} examples of "
                f"other lengths than the store's {len(self)}"
            )
        rest = list(plan[start:])
        flat = np.concatenate(rest) if rest else np.zeros([0], np.int64)
        rows = tf.RaggedTensor.from_row_lengths(flat, [len(indices) for indices in rest], validate=False)
        types = [tf.as_dtype(DTYPES[target.dtype]) for target in self.targets]

        def join(inputs: Any, indices: tf.Tensor) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
            batch = dict(inputs) if encoded.labels is None else {**inputs[0], "labels": inputs[1]}
            width = tf.shape(batch["input_mask"])[1]
            arrays = tf.numpy_function(self.read, [indices, width], types, stateful=False)
            targets = {
                target.name: tf.ensure_shape(tf.cast(array, tf.float32), [None, *target.shape])
                for target, array in zip(self.targets, arrays, strict=True)
            }
            return batch, targets

        pairs = tf.data.Dataset.zip((dataset(encoded, plan, start), tf.data.Dataset.from_tensor_slices(rows)))
        # Batches with targets are large, and two are enough to hide the reading behind the step.
        return pairs.map(join, num_parallel_calls=2, deterministic=True).prefetch(2)


def size_problems(folder: Path, file: StoredFile, remedy: str = _REMEDY) -> list[str]:
    """Problem of a file by its size alone, with the remedy."""
    try:
        received = (folder / file.name).stat().st_size
    except FileNotFoundError:
        return [f"{file.name} is missing; {remedy}"]
    if received != file.size_bytes:
        return [f"{file.name} must have {file.size_bytes} bytes; received {received}; {remedy}"]
    return []


def digest_problems(folder: Path, file: StoredFile, progress: Any, remedy: str = _REMEDY) -> list[str]:
    """Problem of a file with the right size by its bytes, with the remedy."""
    same = sha256(folder / file.name) == file.sha256
    progress.update(file.size_bytes)
    return [] if same else [f"{file.name} is damaged (its SHA-256 differs from the manifest's); {remedy}"]


def _mapped(path: Path) -> mmap.mmap:
    with open(path, "rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
