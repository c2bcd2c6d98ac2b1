"""File layout of a teacher cache. This module does not import TensorFlow.

A cache has one folder per stage: `manifest.json`, `lengths.npy` (int32 `[N]`, number of tokens in each example), the
teacher's tokenizer files, such as `vocab.txt`, and shards. A shard has records for consecutive examples. A record has
one example's targets in row-major order, without padding or alignment, so an example is one contiguous read and the
lengths determine all offsets. Targets with a row per kept token store only rows for tokens that the example has. Such a
cache also has `candidates.npy` (int32 `[N]`, number of tokens that each example may keep). The manifest has the
targets, the provenance, and each file's size and SHA-256.
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

from pocketbert.configs import EncoderConfig, TaskConfig, TokenizerConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.manifests import MANIFEST_NAME, StoredFile, read_signed
from pocketbert.data.readers.rows import shown
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.errors import UserError
from pocketbert.files import write_text
from pocketbert_runtime.json_reading import from_json
from pocketbert_runtime.tokenizer_config import UNNAMED_KIND
from pocketbert_runtime.tokenizers.kinds.registry import TOKENIZER_RULES
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary, vocabulary_kind

FORMAT = "pocketbert teacher cache"
VERSION = 1
LENGTHS_NAME = "lengths.npy"
CANDIDATES_NAME = "candidates.npy"
_ABSENT = (
    f"a teacher cache must be a folder with a {MANIFEST_NAME}; received {{folder}} without one; make it with "
    "pocketbert cache-teacher"
)
_REMEDY = "copy the cache again, or make it again with pocketbert cache-teacher"


@dataclass(frozen=True, kw_only=True)
class TeacherCacheIdentity:
    """Cache provenance. SHA-256 digests are hexadecimal.

    Attributes:
      teacher: weights and configuration digest; None for a reader without the teacher.
      tokenizer: vocabulary and lower-casing digest; None for a reader without the teacher.
      dataset: `dataset_digest` for the encoded examples.
      method: method name.
      stage: stage name.
      features: requested teacher features, name → layers.
      options: other options that affect the targets, such as the method's. A cache has only the options that its
        targets depend on; further requested options are not compared.
    """

    teacher: str | None
    tokenizer: str | None
    dataset: str
    method: str
    stage: str
    features: Mapping[str, tuple[int, ...]]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def differences(self, received: TeacherCacheIdentity) -> list[str]:
        """Lists differences between this cache's identity and the requested one, `received`."""
        mine, requested = _plain(self), _plain(received)
        differences = []
        for name in ("teacher", "tokenizer", "dataset"):
            if requested[name] is not None and mine[name] != requested[name]:
                differences.append(
                    f"another {name} (SHA-256 {str(mine[name])[:12]}… in the cache, {requested[name][:12]}… here)"
                )
        for name in ("method", "stage"):
            if mine[name] != requested[name]:
                differences.append(f"another {name} ({mine[name]} in the cache, {requested[name]} here)")
        if mine["features"] != requested["features"]:
            differences.append(
                f"other features of the teacher ({mine['features']} in the cache, {requested['features']} here)"
            )
        for name in sorted(mine["options"]):
            values = mine["options"][name], requested["options"].get(name)
            if values[0] != values[1]:
                differences.append(f"another value of {name} ({values[0]!r} in the cache, {values[1]!r} here)")
        return differences


@dataclass(frozen=True, kw_only=True)
class Shard(StoredFile):
    """A file with records for examples `first` to `first + examples`, exclusive."""

    first: int
    examples: int


@dataclass(frozen=True, kw_only=True)
class TeacherCacheManifest:
    """The `manifest.json` of a cache.

    Attributes:
      identity: cache provenance.
      teacher_config: teacher architecture.
      teacher_task: the teacher head's task; None for an encoder without a head.
      lowercase: whether the teacher's tokenizer lower-cases.
      targets: targets in record order.
      lengths: file with the example lengths.
      vocabulary: file with the teacher's vocabulary, named as in a model directory.
      tokenizer_layout: see `Vocabulary.layout`.
      shards: all shards; those not written yet have no digest.
      merges: merges.txt for a teacher with byte-level BPE, else None.
      candidates: file with the number of tokens that each example may keep; None without kept tokens.
      truncation: how the teacher's tokenizer cuts longer texts.
    """

    identity: TeacherCacheIdentity
    teacher_config: EncoderConfig
    teacher_task: TaskConfig | None
    lowercase: bool
    targets: tuple[TargetSpec, ...]
    lengths: StoredFile
    vocabulary: StoredFile
    shards: tuple[Shard, ...]
    merges: StoredFile | None = None
    candidates: StoredFile | None = None
    truncation: str = HEAD
    tokenizer_layout: str = XLM_R

    def __post_init__(self) -> None:
        firsts = np.cumsum([0, *(min(shard.examples, 1 << 40) for shard in self.shards)]).tolist()
        consecutive = [shard.first for shard in self.shards] == firsts[:-1]
        if not self.shards or not consecutive or min(shard.examples for shard in self.shards) < 1:
            raise UserError("the shards must have consecutive examples, at least one each; received others")
        kind = vocabulary_kind(self.vocabulary.name) or UNNAMED_KIND
        if (self.merges is not None) != (len(TOKENIZER_RULES[kind].files) > 1):
            raise UserError(
                "a tokenizer with vocab.json, and no other, must have merges; received "
                f"{shown(self.vocabulary.name)} {'with' if self.merges else 'without'} merges"
            )
        names = [target.name for target in self.targets]
        if not names or len(set(names)) < len(names):
            raise UserError(f"the targets must have unique names; received {shown(', '.join(names))}")
        if (self.candidates is not None) != any(target.kept for target in self.targets):
            raise UserError(
                "a cache must have candidates for targets with kept tokens, and for no others; received them "
                f"{'with' if self.candidates else 'without'} candidates"
            )

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files except the manifest."""
        optional = [file for file in (self.candidates, self.merges) if file]
        return (self.lengths, self.vocabulary, *optional, *self.shards)

    def tokenizer_files(self, folder: Path) -> Vocabulary:
        """Returns the teacher's vocabulary in the cache folder."""
        kind = vocabulary_kind(self.vocabulary.name) or UNNAMED_KIND
        return Vocabulary(
            path=folder / self.vocabulary.name,
            merges=folder / self.merges.name if self.merges else None,
            kind=kind,
            layout=self.tokenizer_layout,
            config=TokenizerConfig(lowercase=self.lowercase) if TOKENIZER_RULES[kind].has_options else None,
            truncation=self.truncation,
        )

    @property
    def finished(self) -> bool:
        """Whether all shards are written."""
        return all(shard.sha256 for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """Finished cache size in bytes, with the manifest; all digests have the same length."""
        done = tuple(dataclasses.replace(shard, sha256="0" * 64) for shard in self.shards)
        manifest = len(_text(dataclasses.replace(self, shards=done)).encode())
        return manifest + sum(file.size_bytes for file in self.files)

    def write(self, folder: Path) -> None:
        """Writes `manifest.json` atomically."""
        write_text(folder / MANIFEST_NAME, _text(self))


def dataset_digest(encoded: EncodedExamples) -> str:
    """Returns the SHA-256 over ids, segments and offsets, without labels and padding; also over the teacher's rows."""
    digest = hashlib.sha256()
    parts = [(encoded.word_ids, "<i4"), (encoded.type_ids, "<i4"), (encoded.offsets, "<i8")]
    if (rows := encoded.teacher_rows) is not None:
        parts += [(rows.word_ids, "<i4"), (rows.type_ids, "<i4"), (rows.offsets, "<i8")]
        parts += [(partners, "<i4") for _, partners in sorted(rows.partners.items())]
    for part, dtype in parts:
        digest.update(f"{len(part)} ".encode())
        digest.update(np.ascontiguousarray(part, dtype=dtype).data)
    return digest.hexdigest()


def plan_shards(
    targets: Sequence[TargetSpec], lengths: np.ndarray, shard_bytes: int, candidates: np.ndarray | None = None
) -> tuple[Shard, ...]:
    """Divides the examples, in order, into shards with about `shard_bytes`; records stay whole."""
    sizes = record_bytes(targets, lengths, candidates)
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


def read_manifest(folder: Path) -> TeacherCacheManifest:
    """Reads a manifest, not its files. Raises `UserError` if it is missing, damaged or in another format."""
    content = read_signed(folder / MANIFEST_NAME, FORMAT, VERSION, absent=_ABSENT, remedy=_REMEDY)
    claimed = content.pop("manifest_sha256", None)
    if claimed != _digest(content):
        raise UserError(f"{folder / MANIFEST_NAME}: the manifest is damaged (its SHA-256 differs); {_REMEDY}")
    del content["format"], content["version"]
    if "candidates" not in content and isinstance(content.get("targets"), list):
        plain = [{"kept": False, **target} if isinstance(target, dict) else target for target in content["targets"]]
        content |= {"candidates": None, "targets": plain}
    content.setdefault("truncation", HEAD)
    content.setdefault("tokenizer_layout", XLM_R)
    return from_json(TeacherCacheManifest, content, f"{folder / MANIFEST_NAME}: the manifest is damaged")


def _document(manifest: TeacherCacheManifest) -> dict[str, Any]:
    content: dict[str, Any] = {"format": FORMAT, "version": VERSION, **_plain(manifest)}
    # Without kept tokens, the fields for them are absent.
    if manifest.candidates is None:
        del content["candidates"]
        for target in content["targets"]:
            del target["kept"]
    if manifest.truncation == HEAD:
        del content["truncation"]
    if manifest.tokenizer_layout == XLM_R:
        del content["tokenizer_layout"]
    return {**content, "manifest_sha256": _digest(content)}


def _text(manifest: TeacherCacheManifest) -> str:
    return json.dumps(_document(manifest), indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> dict[str, Any]:
    """Converts a dataclass to JSON values; a round trip turns tuples into lists."""
    return json.loads(json.dumps(dataclasses.asdict(value)))


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
