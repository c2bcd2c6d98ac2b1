"""What a stored teacher's folder holds, and where each number lies in it. Nothing here imports TensorFlow.

A store is a folder a stage: `manifest.json`, `lengths.npy` (int32 `[N]`, tokens of each example), the teacher's
`vocab.txt` and shards. A shard is the records of consecutive examples, end to end; a record is the example's targets,
end to end, each in row-major order and cut to the example's own length, so that one example is one contiguous read.
Nothing is padded and nothing aligned: every offset follows from the lengths. The manifest names the targets, what the
store was made from, and the size and SHA-256 of every file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import BottleneckConfig, EncoderConfig, TaskConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.errors import UserError
from pocketbert.files import write_text

FORMAT = "pocketbert feature store"
VERSION = 1
MANIFEST_NAME = "manifest.json"
LENGTHS_NAME = "lengths.npy"
VOCABULARY_NAME = "vocab.txt"
TOKENS = "tokens"
# Both are little-endian in the file.
DTYPES: dict[str, np.dtype] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
ENCODINGS = ("plain",)


@dataclass(frozen=True, kw_only=True)
class TargetSpec:
    """One target as it lies in an example's record.

    Attributes:
      name: as `Method.targets` names it.
      shape: of one example's value; None for an axis with an entry a token.
      dtype: of the stored numbers, one of `DTYPES`.
      encoding: how they lie in the record, one of `ENCODINGS`. `plain`: in row-major order.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    encoding: str = "plain"

    @property
    def token_axes(self) -> int:
        """How often the example's length enters its size: 0, 1 (tokens) or 2 (pairs of tokens)."""
        return self.shape.count(None)

    @property
    def unit_bytes(self) -> int:
        """Bytes an example, a token or a pair of tokens, as `token_axes` is 0, 1 or 2."""
        fixed = [size for size in self.shape if size is not None]
        return int(np.prod(fixed, dtype=np.int64)) * DTYPES[self.dtype].itemsize

    def bytes_of(self, lengths: np.ndarray) -> np.ndarray:
        """int64, bytes of examples of these lengths."""
        return self.unit_bytes * np.asarray(lengths, np.int64) ** self.token_axes

    def shape_of(self, length: int) -> tuple[int, ...]:
        """The shape of the value of one example."""
        return tuple(length if size is None else size for size in self.shape)


@dataclass(frozen=True, kw_only=True)
class StoreIdentity:
    """What a store was made from. SHA-256 digests are hexadecimal.

    Attributes:
      teacher: digest of the teacher's weights and configuration; None where a reader does not have the teacher and so
        takes the store's.
      tokenizer: digest of the vocabulary and the lower-casing; None as above.
      dataset: `dataset_digest` of the encoded examples.
      method: the method's name.
      stage: the stage's name.
      features: what the stage asks of the teacher, name → layers.
      options: what else decides the targets, the method's options first of all, by name. A store has those that its
        targets were seen to read; what is asked for may have more, which are not compared.
    """

    teacher: str | None
    tokenizer: str | None
    dataset: str
    method: str
    stage: str
    features: Mapping[str, tuple[int, ...]]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def differences(self, received: StoreIdentity) -> list[str]:
        """A part of a sentence for each thing in which a store of this identity is not what `received` asks for."""
        mine, asked = _plain(self), _plain(received)
        found = []
        for name in ("teacher", "tokenizer", "dataset"):
            if asked[name] is not None and mine[name] != asked[name]:
                found.append(f"another {name} (SHA-256 {str(mine[name])[:12]}… in the store, {asked[name][:12]}… here)")
        for name in ("method", "stage"):
            if mine[name] != asked[name]:
                found.append(f"another {name} ({mine[name]} in the store, {asked[name]} here)")
        if mine["features"] != asked["features"]:
            found.append(f"other features of the teacher ({mine['features']} in the store, {asked['features']} here)")
        for name in sorted(mine["options"]):
            values = mine["options"][name], asked["options"].get(name)
            if values[0] != values[1]:
                found.append(f"another value of {name} ({values[0]!r} in the store, {values[1]!r} here)")
        return found


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a store: its name, size and SHA-256 (None until it is written)."""

    name: str
    size_bytes: int
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class Shard(StoredFile):
    """A file with the records of the examples from `first` to `first + examples`."""

    first: int
    examples: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A store's `manifest.json`.

    Attributes:
      identity: what it was made from.
      teacher_config: the teacher's architecture, for readers that do not have the teacher.
      teacher_task: what its head was trained for, likewise; None for a bare encoder.
      lowercase: whether its tokenizer lower-cases.
      targets: in the order of the record.
      lengths: the file of the examples' lengths.
      vocabulary: the file of the teacher's vocabulary.
      shards: all that the store will have; those written have a digest.
    """

    identity: StoreIdentity
    teacher_config: EncoderConfig
    teacher_task: TaskConfig | None
    lowercase: bool
    targets: tuple[TargetSpec, ...]
    lengths: StoredFile
    vocabulary: StoredFile
    shards: tuple[Shard, ...]

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All but the manifest itself."""
        return (self.lengths, self.vocabulary, *self.shards)

    @property
    def finished(self) -> bool:
        """Whether every shard is written."""
        return all(shard.sha256 for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """Of all files of the finished store, this one too; digests are all of one length."""
        done = tuple(dataclasses.replace(shard, sha256="0" * 64) for shard in self.shards)
        manifest = len(_text(dataclasses.replace(self, shards=done)).encode())
        return manifest + sum(file.size_bytes for file in self.files)

    def write(self, folder: Path) -> None:
        """Writes it aside and renames it."""
        write_text(folder / MANIFEST_NAME, _text(self))


def dataset_digest(encoded: EncodedExamples) -> str:
    """SHA-256 of the examples' ids, segments and offsets; labels and padding are no part of it."""
    digest = hashlib.sha256()
    for part, dtype in ((encoded.word_ids, "<i4"), (encoded.type_ids, "<i4"), (encoded.offsets, "<i8")):
        digest.update(f"{len(part)} ".encode())
        digest.update(np.ascontiguousarray(part, dtype=dtype).data)
    return digest.hexdigest()


def record_bytes(targets: Sequence[TargetSpec], lengths: np.ndarray) -> np.ndarray:
    """int64 `[N]`, bytes of each example's record."""
    return sum((target.bytes_of(lengths) for target in targets), np.zeros(len(lengths), np.int64))


def plan_shards(targets: Sequence[TargetSpec], lengths: np.ndarray, shard_bytes: int) -> tuple[Shard, ...]:
    """Cuts the examples, in their order, into shards of about `shard_bytes`; a record is never cut."""
    sizes = record_bytes(targets, lengths)
    ends = np.cumsum(sizes)
    firsts = np.flatnonzero(np.diff((ends - sizes) // shard_bytes, prepend=-1))
    stops = [*firsts[1:], len(lengths)]
    return tuple(
        Shard(
            name=f"shard-{number:05d}.bin",
            size_bytes=int(ends[stop - 1] - ends[first] + sizes[first]),
            sha256=None,
            first=int(first),
            examples=int(stop - first),
        )
        for number, (first, stop) in enumerate(zip(firsts, stops, strict=True))
    )


def read_manifest(folder: Path) -> Manifest:
    """Reads and checks a manifest, not the files that it names.

    Raises:
      UserError: there is none, it is damaged, or it is of a format that is not known here.
    """
    path = folder / MANIFEST_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        claimed = content.pop("manifest_sha256")
        if content.get("format") != FORMAT:
            raise UserError(f"{path}: this is no feature store's manifest; received format {content.get('format')!r}")
        if content.get("version") != VERSION:
            raise UserError(
                f"{path}: the store must be of version {VERSION}; received {content.get('version')!r}; dump it again"
            )
    except FileNotFoundError:
        raise UserError(
            f"a stored teacher must be a folder with a {MANIFEST_NAME}; received {folder}, which has none; make it "
            "with pocketbert teacher-dump"
        ) from None
    except UserError:
        raise
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: the manifest is damaged ({error}); copy the store or dump it again") from error
    if claimed != _digest(content):
        raise UserError(f"{path}: the manifest is damaged (its SHA-256 differs); copy the store or dump it again")
    targets = tuple(
        TargetSpec(**{**entry, "shape": tuple(None if size == TOKENS else size for size in entry["shape"])})
        for entry in content["targets"]
    )
    for target in targets:
        for field, known in (("dtype", tuple(DTYPES)), ("encoding", ENCODINGS)):
            if getattr(target, field) not in known:
                raise UserError(
                    f"{path}: the {field} of {target.name} must be one of {', '.join(known)}; received "
                    f"{getattr(target, field)}; a newer PocketBERT made this store"
                )
    identity = content["identity"]
    identity["features"] = {name: tuple(layers) for name, layers in identity["features"].items()}
    return Manifest(
        identity=StoreIdentity(**identity),
        teacher_config=_encoder_config(content["teacher_config"]),
        teacher_task=_task_config(content["teacher_task"]),
        targets=targets,
        lowercase=content["lowercase"],
        lengths=StoredFile(**content["lengths"]),
        vocabulary=StoredFile(**content["vocabulary"]),
        shards=tuple(Shard(**entry) for entry in content["shards"]),
    )


def _encoder_config(values: Mapping[str, Any]) -> EncoderConfig:
    bottleneck = values["bottleneck"]
    return EncoderConfig(**{**values, "bottleneck": None if bottleneck is None else BottleneckConfig(**bottleneck)})


def _task_config(values: Mapping[str, Any] | None) -> TaskConfig | None:
    return None if values is None else TaskConfig(**{**values, "labels": tuple(values["labels"])})


def _document(manifest: Manifest) -> dict[str, Any]:
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **_plain(manifest)}
    for target in content["targets"]:
        target["shape"] = [TOKENS if size is None else size for size in target["shape"]]
    return {**content, "manifest_sha256": _digest(content)}


def _text(manifest: Manifest) -> str:
    return json.dumps(_document(manifest), indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON values: a round trip turns tuples into lists."""
    return json.loads(json.dumps(dataclasses.asdict(value)))


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
