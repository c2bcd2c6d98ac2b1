"""Writes a teacher cache. A killed run resumes and writes the same bytes.

A shard is filled in memory and written atomically; then the manifest gets its digest. Other shards are made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.manifests import MANIFEST_NAME, StoredFile, digest_problems, size_problems
from pocketbert.data.readers.rows import shown
from pocketbert.data.teacher_cache.encodings import DTYPES
from pocketbert.data.teacher_cache.layout import (
    CANDIDATES_NAME,
    LENGTHS_NAME,
    Shard,
    TeacherCacheIdentity,
    TeacherCacheManifest,
    plan_shards,
    read_manifest,
)
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.errors import UserError
from pocketbert.files import write_bytes
from pocketbert.notation import argument
from pocketbert.output_folders import check_held, held_directory
from pocketbert.progress import bar, log_info
from pocketbert_runtime.tokenizers.kinds.registry import ALL_RULES
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# A killed run loses at most one shard, and a shard is in memory while it is made.
SHARD_BYTES = 128 * 2**20
_UNITS = ("per example", "per token", "per pair of tokens")
_KIND = "teacher cache"
_TOKENIZER_FILES = tuple(dict.fromkeys(name for _, rules in ALL_RULES for name in rules.files))
# A killed run's temporary files.
_ASIDE = (
    *(f".{name}.*" for name in (MANIFEST_NAME, LENGTHS_NAME, CANDIDATES_NAME, *_TOKENIZER_FILES)),
    ".shard-*.partial",
)


@dataclass(frozen=True, kw_only=True)
class TeacherCachePlan:
    """Plan for one stage's cache.

    Attributes:
      path: stage folder.
      identity: cache provenance.
      teacher_config: teacher architecture.
      teacher_task: the teacher head's task, or None.
      vocabulary: the teacher's tokenizer files, to copy.
      targets: targets in record order.
      lengths: number of tokens in each example.
      shard_bytes: approximate shard size.
      candidates: number of tokens that each example may keep, at least 1; None without kept tokens.
    """

    path: Path
    identity: TeacherCacheIdentity
    teacher_config: EncoderConfig
    teacher_task: TaskConfig | None
    vocabulary: Vocabulary
    targets: Sequence[TargetSpec]
    lengths: np.ndarray
    shard_bytes: int = SHARD_BYTES
    candidates: np.ndarray | None = None

    def small_files(self) -> dict[str, bytes]:
        """Returns all files except manifest and shards: name → content."""
        arrays = {LENGTHS_NAME: self.lengths, CANDIDATES_NAME: self.candidates}
        small: dict[str, bytes] = {}
        for name, array in arrays.items():
            if array is not None:
                stream = io.BytesIO()
                np.save(stream, np.asarray(array).astype("<i4"), allow_pickle=False)
                small[name] = stream.getvalue()
        return {**small, **self.vocabulary.contents()}

    def manifest(self) -> TeacherCacheManifest:
        """Makes the manifest before the first shard. Raises `UserError` without targets, examples or candidates."""
        names = self.vocabulary.rules.files
        small = {
            name: StoredFile(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in self.small_files().items()
        }
        shards = plan_shards(self.targets, self.lengths, self.shard_bytes, self.candidates)
        if not shards:
            raise UserError(f"{self.path}: a cache must have targets and examples; received none")
        if self.candidates is not None and min(self.candidates) < 1:
            raise UserError(
                f"{self.path}: every example must have a token to keep; received example {np.argmin(self.candidates)} "
                "without one; check separator_id"
            )
        return TeacherCacheManifest(
            identity=self.identity,
            teacher_config=self.teacher_config,
            teacher_task=self.teacher_task,
            targets=tuple(self.targets),
            lowercase=self.vocabulary.lowercase,
            lengths=small[LENGTHS_NAME],
            vocabulary=small[names[0]],
            merges=small[names[1]] if len(names) > 1 else None,
            shards=shards,
            candidates=small.get(CANDIDATES_NAME),
            truncation=self.vocabulary.truncation,
            tokenizer_layout=self.vocabulary.layout,
        )


class TeacherCacheWriter:
    """Writes one stage's cache. Open writers with `open_writers`.

    Attributes:
      path: stage folder.
      manifest: manifest with the written shards' digests.
      lengths: number of tokens in each example.
      candidates: number of tokens that each example may keep, or None.
    """

    def __init__(
        self, path: Path, manifest: TeacherCacheManifest, lengths: np.ndarray, candidates: np.ndarray | None = None
    ) -> None:
        self.path = path
        self.manifest = manifest
        self.lengths = lengths
        self.candidates = candidates

    @property
    def pending(self) -> tuple[Shard, ...]:
        """Shards to write, in order."""
        return tuple(shard for shard in self.manifest.shards if shard.sha256 is None)

    def blank(self, shard: Shard) -> ShardContent:
        """Returns empty memory for a shard's records."""
        examples = slice(shard.first, shard.first + shard.examples)
        candidates = None if self.candidates is None else self.candidates[examples]
        return ShardContent(shard, self.manifest.targets, self.lengths[examples], candidates)

    def write(self, content: ShardContent) -> None:
        """Writes a complete shard, and then its digest. Raises `ValueError` if an example has no targets."""
        shard = content.shard
        if not content.filled.all():
            raise ValueError(f"{shard.name}: {int((~content.filled).sum())} examples have no targets")
        write_aside(self.path / shard.name, content.memory)
        done = dataclasses.replace(shard, sha256=hashlib.sha256(content.memory).hexdigest())
        shards = tuple(done if shard.name == done.name else shard for shard in self.manifest.shards)
        self.manifest = dataclasses.replace(self.manifest, shards=shards)
        self.manifest.write(self.path)


class ShardContent:
    """A shard in memory.

    Attributes:
      shard: the shard.
      filled: bool, whether each example has its targets.
      memory: file content.
    """

    def __init__(
        self,
        shard: Shard,
        targets: Sequence[TargetSpec],
        lengths: np.ndarray,
        candidates: np.ndarray | None = None,
    ) -> None:
        self.shard = shard
        self.filled = np.zeros(shard.examples, bool)
        self.memory = memoryview(bytearray(shard.size_bytes))
        self._targets = targets
        self._lengths, self._candidates = lengths, candidates
        sizes = record_bytes(targets, lengths, candidates)
        self._starts = np.cumsum(sizes) - sizes

    def put(self, examples: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Adds targets for a batch.

        Args:
          examples: `[B]`, example numbers in the shard.
          values: target → floating-point or integer `[B, …]`; padding is ignored, and rows beyond the candidates.
        Raises:
          UserError: a value is not finite, or too large for the stored type.
        """
        for row, example in enumerate(examples):
            length, place = int(self._lengths[example]), int(self._starts[example])
            candidates = None if self._candidates is None else int(self._candidates[example])
            for target in self._targets:
                shape = target.shape_of(length, candidates)
                cut: tuple[Any, ...] = (row, *map(slice, shape))
                own = values[target.name][cut]
                check_range(target, own)
                if target.encoding == "plain":
                    stored = np.ndarray(shape, DTYPES[target.dtype], self.memory, place)
                    stored[...] = own
                else:
                    content = target.encode(own)
                    stored = np.ndarray(content.shape, np.uint8, self.memory, place)
                    stored[...] = content
                place += stored.nbytes
            self.filled[example] = True


def check_range(target: TargetSpec, values: np.ndarray) -> None:
    """Raises `UserError` unless values are finite in the stored type, or integers in its range and below the limit."""
    if target.holds_indices:
        most = np.iinfo(DTYPES[target.dtype]).max if target.limit is None else target.limit - 1
        if values.size and not (0 <= values.min() and values.max() <= most):
            raise UserError(
                f"the target {target.name} must have indices from 0 to {most}; received {values.min()} to "
                f"{values.max()}; report this as a bug of the method"
            )
        return
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest <= _largest(target):
        return
    if np.isfinite(largest):
        raise UserError(
            f"the target {target.name} must fit into {target.dtype}, at most {_largest(target):.0f}; received "
            f"{largest:.6g}; use {argument('dtype', 'float32')}"
        )
    raise UserError(f"the target {target.name} must be finite; received {largest}; check the teacher's weights")


def _largest(target: TargetSpec) -> float:
    """Returns a floating-point target's largest value; int8 has a float16 scale for 127."""
    if target.encoding == "scaled":
        return 127 * float(np.finfo(np.float16).max)
    return float(np.finfo(DTYPES[target.dtype]).max)


def sizes_text(targets: Sequence[TargetSpec], lengths: np.ndarray, candidates: np.ndarray | None = None) -> list[str]:
    """Describes the cache size: one line per target kind."""
    kinds: dict[tuple[str, int | None], list[TargetSpec]] = {}
    for target in sorted(targets, key=lambda target: (target.kept, (target.token_axes - 1) % 3)):
        key = ("per kept token", target.shape[0]) if target.kept else (_UNITS[target.token_axes], None)
        kinds.setdefault(key, []).append(target)
    lines = []
    for (unit, _), kind in kinds.items():
        size = sum(target.unit_bytes for target in kind)
        count = int(kind[0].units_of(np.asarray(lengths, np.int64), candidates).sum())
        names = ", ".join(target.name for target in kind)
        lines.append(f"{size:,} bytes {unit} ({names}) x {count:,} = {size * count:,} bytes")
    return lines


@contextlib.contextmanager
def open_writers(plans: Sequence[TeacherCachePlan], *, overwrite: bool = False) -> Iterator[list[TeacherCacheWriter]]:
    """Opens writers for new folders, or for the same caches, interrupted or finished.

    Complete shards stay if their SHA-256 matches. Nothing is written unless all caches fit on the disk. `overwrite`
    deletes finished caches, and caches with another provenance.

    Raises:
      UserError: a folder has another cache or other content, another process writes to it, or the disk is too small.
    """
    for plan in plans:
        check_held(plan.path, _KIND)
    with contextlib.ExitStack() as stack:
        for plan in plans:
            stack.enter_context(held_directory(plan.path, _KIND))
        writers = [
            TeacherCacheWriter(plan.path, _resumed(plan, overwrite), np.asarray(plan.lengths), plan.candidates)
            for plan in plans
        ]
        _check_room(writers)
        for plan, writer in zip(plans, writers, strict=True):
            for file in _left_over(writer):
                file.unlink()
            # The manifest of a finished cache must not change: runs have recorded its digest.
            if writer.pending:
                writer.manifest.write(writer.path)
            for name, content in plan.small_files().items():
                write_bytes(writer.path / name, content)
        yield writers


def write_aside(path: Path, content: memoryview) -> None:
    """Writes to a temporary file, which the next attempt overwrites, and renames it."""
    aside = path.with_name(f".{path.name}.partial")
    with open(aside, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(aside, path)


def _resumed(plan: TeacherCachePlan, overwrite: bool) -> TeacherCacheManifest:
    """Returns the manifest with digests for the shards to keep."""
    folder, new = plan.path, plan.manifest()
    if not (folder / MANIFEST_NAME).exists():
        return new
    try:
        found = read_manifest(folder)
        problems = found.identity.differences(new.identity)
        if not problems:
            problems += _layout_differences(found.targets, new.targets)
        if not problems and tuple(dataclasses.replace(shard, sha256=None) for shard in found.shards) != new.shards:
            problems.append("another shard size")
    except UserError as error:
        if not overwrite:
            raise
        found, problems = new, [str(error)]
    if problems and not overwrite:
        raise UserError(
            f"{folder} has a cache with {'; '.join(problems)}; choose another output, or pass "
            f"{argument('overwrite', True)}"
        )
    if problems or (found.finished and overwrite):
        return new
    written = [shard for shard in found.shards if shard.sha256]
    broken: list[str] = []
    with bar(sum(shard.size_bytes for shard in written), "checking written shards", "B") as progress:
        for shard in written:
            wrong = size_problems(folder, shard, "") or digest_problems(folder, shard, progress, "")
            broken += [shard.name] if wrong else []
    if broken:
        log_info(f"{folder}: making damaged shards again: {', '.join(broken)}")
    if written:
        log_info(f"{folder}: {len(written) - len(broken)} of {len(new.shards)} shards are already complete")
    kept = (fresh if old.name in broken else old for old, fresh in zip(found.shards, new.shards, strict=True))
    return dataclasses.replace(new, shards=tuple(kept))


def _layout_differences(found: Sequence[TargetSpec], new: Sequence[TargetSpec]) -> list[str]:
    """Lists targets with another shape, type or encoding."""
    cached, asked = ({target.name: str(target) for target in targets} for targets in (found, new))
    return [
        f"another layout of {shown(name)} ({cached.get(name, 'absent')} in the cache, {asked.get(name, 'absent')} here)"
        for name in sorted({**cached, **asked})
        if cached.get(name) != asked.get(name)
    ]


def _left_over(writer: TeacherCacheWriter) -> list[Path]:
    """Lists files to remove: shards to make again, and a killed run's temporary files."""
    kept = {shard.name for shard in writer.manifest.shards if shard.sha256}
    shards = [file for file in writer.path.glob("shard-*.bin") if file.name not in kept]
    return shards + [file for pattern in _ASIDE for file in writer.path.glob(pattern)]


def _check_room(writers: Sequence[TeacherCacheWriter]) -> None:
    missing = 0
    for writer in writers:
        manifest = writer.manifest
        for line in sizes_text(manifest.targets, writer.lengths, writer.candidates):
            log_info(line)
        own = manifest.size_bytes - sum(shard.size_bytes for shard in manifest.shards if shard.sha256)
        missing += own
        log_info(
            f"{writer.path}: {manifest.size_bytes:,} bytes in {len(manifest.files) + 1} files, {own:,} bytes to write"
        )
    left_over = sum(file.stat().st_size for writer in writers for file in _left_over(writer))
    free = min(shutil.disk_usage(writer.path).free for writer in writers) + left_over
    log_info(f"{missing:,} bytes to write; {free:,} bytes are free")
    if missing > free:
        raise UserError(
            f"{', '.join(str(writer.path) for writer in writers)}: the disk must have {missing:,} free bytes; "
            f"received {free:,}; free some space, or choose an output on another disk"
        )
