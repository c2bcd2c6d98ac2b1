"""Writing a stored teacher, so that a run that is killed goes on and ends with the same bytes.

A shard is made in memory, written aside and renamed; only then does the manifest get its digest. What the manifest has
no digest of is made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.feature_layout import (
    DTYPES,
    LENGTHS_NAME,
    MANIFEST_NAME,
    VOCABULARY_NAME,
    Manifest,
    Shard,
    StoredFile,
    StoreIdentity,
    TargetSpec,
    plan_shards,
    read_manifest,
    record_bytes,
)
from pocketbert.data.feature_store import digest_problems, size_problems
from pocketbert.errors import UserError
from pocketbert.files import LOCK_NAME, locked_directory, write_bytes
from pocketbert.progress import bar, say

# What a kill costs is at most one shard's work, and a shard lies in memory while it is made.
SHARD_BYTES = 128 * 2**20
_UNITS = ("an example", "a token", "a pair of tokens")
# What a killed attempt may leave.
_ASIDE = (f".{MANIFEST_NAME}.*", f".{LENGTHS_NAME}.*", f".{VOCABULARY_NAME}.*", ".shard-*.partial")


class StoreWriter:
    """A store of one stage that is being written. Make one with `open_writer`.

    Attributes:
      path: the stage's folder.
      manifest: with the digests of the shards that are written.
    """

    def __init__(self, path: Path, manifest: Manifest, lengths: np.ndarray) -> None:
        self.path = path
        self.manifest = manifest
        self._lengths = lengths

    @property
    def pending(self) -> tuple[Shard, ...]:
        """The shards that are not written yet, in order."""
        return tuple(shard for shard in self.manifest.shards if shard.sha256 is None)

    def blank(self, shard: Shard) -> ShardContent:
        """Memory for the records of a shard."""
        examples = slice(shard.first, shard.first + shard.examples)
        return ShardContent(shard, self.manifest.targets, self._lengths[examples])

    def write(self, content: ShardContent) -> None:
        """Writes a shard that has every example's targets, and then its digest.

        Raises:
          ValueError: an example's targets were not put.
        """
        shard = content.shard
        if not content.filled.all():
            raise ValueError(f"{shard.name}: {int((~content.filled).sum())} examples have no targets")
        write_aside(self.path / shard.name, content.memory)
        done = dataclasses.replace(shard, sha256=hashlib.sha256(content.memory).hexdigest())
        shards = tuple(done if each.name == done.name else each for each in self.manifest.shards)
        self.manifest = dataclasses.replace(self.manifest, shards=shards)
        self.manifest.write(self.path)


class ShardContent:
    """A shard in memory.

    Attributes:
      shard: which.
      filled: bool, which of its examples have their targets.
      memory: the shard's bytes.
    """

    def __init__(self, shard: Shard, targets: Sequence[TargetSpec], lengths: np.ndarray) -> None:
        self.shard = shard
        self.filled = np.zeros(shard.examples, bool)
        self.memory = memoryview(bytearray(shard.size_bytes))
        self._targets = targets
        self._lengths = lengths
        sizes = record_bytes(targets, lengths)
        self._starts = np.cumsum(sizes) - sizes

    def put(self, examples: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Takes a batch's targets.

        Args:
          examples: `[B]`, the rows' places in the shard.
          values: target → floating-point `[B, …]`; what lies behind an example's own length is not looked at.

        Raises:
          UserError: a value is not finite, or too large for the stored type.
        """
        for row, example in enumerate(examples):
            length, place = int(self._lengths[example]), int(self._starts[example])
            for target in self._targets:
                shape = target.shape_of(length)
                cut: tuple[Any, ...] = (row, *map(slice, shape))
                own = values[target.name][cut]
                stored = np.ndarray(shape, DTYPES[target.dtype], self.memory, place)
                check_range(target, own)
                stored[...] = own
                place += stored.nbytes
            self.filled[example] = True


def check_range(target: TargetSpec, values: np.ndarray) -> None:
    """Refuses what the stored type would turn into an infinity, or what is none of its numbers already.

    Raises:
      UserError: names the target and the remedy.
    """
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest <= float(np.finfo(DTYPES[target.dtype]).max):
        return
    if np.isfinite(largest):
        raise UserError(
            f"the target {target.name} must fit {target.dtype}, at most "
            f"{np.finfo(DTYPES[target.dtype]).max:.0f}; received {largest:.6g}; store it with --dtype=float32"
        )
    raise UserError(f"the target {target.name} must be finite; received {largest}; the teacher itself is broken")


def sizes_text(targets: Sequence[TargetSpec], lengths: np.ndarray) -> list[str]:
    """How a store's size comes about: a line for each kind of target."""
    lengths = np.asarray(lengths, np.int64)
    lines = []
    for axes in (1, 2, 0):
        kind = [target for target in targets if target.token_axes == axes]
        if kind:
            unit = sum(target.unit_bytes for target in kind)
            count = int((lengths**axes).sum())
            names = ", ".join(target.name for target in kind)
            lines.append(f"{unit:,} bytes {_UNITS[axes]} ({names}) x {count:,} = {unit * count:,} bytes")
    return lines


@contextlib.contextmanager
def open_writer(
    path: str | os.PathLike[str],
    *,
    identity: StoreIdentity,
    teacher_config: EncoderConfig,
    teacher_task: TaskConfig | None,
    vocabulary: str | os.PathLike[str],
    lowercase: bool,
    targets: Sequence[TargetSpec],
    lengths: np.ndarray,
    overwrite: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> Iterator[StoreWriter]:
    """Takes a stage's folder for writing: a new one, or one in which the same dump stopped or finished.

    What is finished in it is compared with its SHA-256 and kept; a shard that differs is made again.

    Args:
      path: the stage's folder.
      identity: what the store is made from.
      teacher_config: the teacher's architecture.
      teacher_task: what its head was trained for, if it has one.
      vocabulary: its vocab.txt; the store gets a copy.
      lowercase: whether its tokenizer lower-cases.
      targets: in the order of the record.
      lengths: tokens of each example.
      overwrite: throw away a finished store in `path`, or one made from something else.
      shard_bytes: a shard ends with the record that goes beyond this.

    Raises:
      UserError: the folder holds another store or something else, another process writes it, or the disk has too
        little room for all of it.
    """
    folder = Path(path)
    lengths = np.asarray(lengths, np.int32)
    small = {LENGTHS_NAME: _npy(lengths), VOCABULARY_NAME: Path(vocabulary).read_bytes()}
    described = {
        name: StoredFile(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in small.items()
    }
    manifest = Manifest(
        identity=identity,
        teacher_config=dataclasses.asdict(teacher_config),
        teacher_task=None if teacher_task is None else dataclasses.asdict(teacher_task),
        targets=tuple(targets),
        lowercase=lowercase,
        lengths=described[LENGTHS_NAME],
        vocabulary=described[VOCABULARY_NAME],
        shards=plan_shards(targets, lengths, shard_bytes),
    )
    if not manifest.shards:
        raise UserError(f"{folder}: there must be targets and examples to store; received none")
    _check_is_store(folder)
    with locked_directory(folder):
        if (folder / MANIFEST_NAME).exists():
            manifest = _resumed(folder, manifest, overwrite)
        for line in sizes_text(targets, lengths):
            say(line)
        _check_room(folder, manifest)
        for pattern in _ASIDE:
            for file in folder.glob(pattern):
                file.unlink()
        manifest.write(folder)
        for name, content in small.items():
            write_bytes(folder / name, content)
        yield StoreWriter(folder, manifest, lengths)


def write_aside(path: Path, content: memoryview) -> None:
    """Writes beside `path` under one name, which the next attempt overwrites, and renames."""
    aside = path.with_name(f".{path.name}.partial")
    with open(aside, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)


def _npy(lengths: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, lengths.astype("<i4"), allow_pickle=False)
    return stream.getvalue()


def _resumed(folder: Path, new: Manifest, overwrite: bool) -> Manifest:
    """The new manifest with the digests of the shards that the folder already has."""
    try:
        found = read_manifest(folder)
        problems = found.identity.differences(new.identity)
        if not problems and found.targets != new.targets:
            problems.append("targets of other names, shapes or types")
        if not problems and tuple(dataclasses.replace(shard, sha256=None) for shard in found.shards) != new.shards:
            problems.append("shards of another size")
    except UserError as error:
        if not overwrite:
            raise
        found, problems = new, [str(error)]
    if problems and not overwrite:
        raise UserError(
            f"{folder} holds a store with {'; '.join(problems)}; choose another output, or pass --overwrite"
        )
    if problems or (found.finished and overwrite):
        for file in folder.glob("shard-*.bin"):
            file.unlink()
        return new
    written = [shard for shard in found.shards if shard.sha256]
    broken: list[str] = []
    with bar(sum(shard.size_bytes for shard in written), "checking what is written", "B") as progress:
        for shard in written:
            wrong = size_problems(folder, shard) or digest_problems(folder, shard, progress)
            broken += [shard.name] if wrong else []
    if broken:
        say(f"{folder}: damaged and made again: {', '.join(broken)}")
    if written:
        say(f"{folder}: {len(written) - len(broken)} of {len(new.shards)} shards are there already")
    kept = (fresh if old.name in broken else old for old, fresh in zip(found.shards, new.shards, strict=True))
    return dataclasses.replace(new, shards=tuple(kept))


def _check_room(folder: Path, manifest: Manifest) -> None:
    missing = manifest.size_bytes - sum(shard.size_bytes for shard in manifest.shards if shard.sha256)
    free = shutil.disk_usage(folder).free
    say(
        f"{folder}: {manifest.size_bytes:,} bytes in {len(manifest.files) + 1} files, {missing:,} of them to write; "
        f"{free:,} bytes are free"
    )
    if missing > free:
        raise UserError(
            f"{folder}: the disk must have room for {missing:,} more bytes; it has {free:,}; free some, or choose "
            "an output on another disk"
        )


def _check_is_store(folder: Path) -> None:
    others = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    strange = folder.exists() and not folder.is_dir()
    # A first attempt may have been killed before there was a manifest.
    left = {file.name for pattern in (LOCK_NAME, *_ASIDE) for file in folder.glob(pattern)}
    if strange or (MANIFEST_NAME not in others and others - left):
        raise UserError(
            f"the output must be a new folder or one that holds a store; received {folder}, which holds something "
            "else; choose another"
        )
