"""Manifest for a folder with pretraining examples.

A folder has `manifest.json`, `vocab.txt` and shards. A shard is a TFRecord file with an int32 array `[2, examples]` in
a second file: each record's tokens and bytes, for random access. The dev split is the same kind of folder, called
`dev`. The manifest has each file's size and SHA-256, and its own. Time, place and number of processes do not matter.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.data.manifests import MANIFEST_NAME, StoredFile, digest_problems, read_signed, size_problems
from pocketbert.data.pretraining.options import PretrainingOptions
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256, write_text
from pocketbert.progress import bar
from pocketbert_runtime.json_reading import from_json
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

FORMAT = "pocketbert pretraining data"
VERSION = 1
DEV_FOLDER = "dev"
_ABSENT = (
    f"pretraining data must be a folder with a {MANIFEST_NAME}, written last; received {{folder}} without one; "
    "make or finish it with pocketbert pretrain-data"
)
REMEDY = "copy the folder again, or make it again with pocketbert pretrain-data"


@dataclass(frozen=True, kw_only=True)
class VocabularyFacts:
    """Tokenizer properties that determine its ids.

    Attributes:
      lowercase: whether it lower-cases.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: special token ids.
    """

    lowercase: bool
    vocab_size: int
    pad_token_id: int
    unk_token_id: int
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int

    @classmethod
    def of(cls, tokenizer: Any) -> VocabularyFacts:
        """Reads a `WordPieceTokenizer`'s properties."""
        return cls(**{field.name: getattr(tokenizer, field.name) for field in dataclasses.fields(cls)})


@dataclass(frozen=True, kw_only=True)
class StoredVocabulary(VocabularyFacts):
    """`VocabularyFacts` with the file, for `MaskingVocabulary.of`."""

    vocab_path: Path

    @property
    def vocabulary(self) -> Vocabulary:
        """The file, with default options; masking does not read them."""
        return Vocabulary(path=self.vocab_path)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts for a shard or a data set.

    Attributes:
      documents: documents with at least one token.
      sentences: sentences with at least one token in these documents.
      tokens: tokens in these sentences, each once, without special tokens.
      examples: number of examples.
      random_next: examples with a second segment from another document.
      example_tokens: tokens in all examples, including special tokens.
    """

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    examples: int = 0
    random_next: int = 0
    example_tokens: int = 0

    def __post_init__(self) -> None:
        if negative := [name for name, value in dataclasses.asdict(self).items() if value < 0]:
            raise UserError(f"counts must not be negative; received {', '.join(negative)}")

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + getattr(other, name) for name, value in dataclasses.asdict(self).items()})

    def report(self, max_length: int) -> dict[str, float]:
        """Returns counts, shares and means; the padding share assumes examples padded to `max_length`."""
        return {
            **dataclasses.asdict(self),
            "random_next_share": round(self.random_next / self.examples, 4),
            "mean_length": round(self.example_tokens / self.examples, 2),
            "padding_share": round(1 - self.example_tokens / (self.examples * max_length), 4),
        }


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """A shard's two files, and its counts."""

    records: StoredFile
    sizes: StoredFile
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PretrainingManifest:
    """A folder's `manifest.json`.

    Attributes:
      options: example options.
      tokenizer: tokenizer for the ids.
      text: the text's `sha256`, and numbers of skipped documents and paragraphs.
      vocabulary: vocabulary file.
      shards: shards in example order.
    """

    options: PretrainingOptions
    tokenizer: VocabularyFacts
    text: Mapping[str, Any]
    vocabulary: StoredFile
    shards: tuple[ShardEntry, ...]

    def __post_init__(self) -> None:
        if not self.shards:
            raise UserError("there must be at least one shard; received none")

    @property
    def counts(self) -> Counts:
        """Totals over all shards."""
        return sum((shard.counts for shard in self.shards), Counts())

    @property
    def identity(self) -> str:
        """SHA-256 over the manifest's content, which includes each file's SHA-256."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(f"{FORMAT} {VERSION} {content}".encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Writes `manifest.json` atomically."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "identity": self.identity,
            "report": self.counts.report(self.options.max_length),
            **dataclasses.asdict(self),
        }
        write_text(folder / MANIFEST_NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def check_files(self, folder: Path, *, digests: bool) -> None:
        """Compares a folder's files with the manifest. Raises `UserError` with all missing or damaged files."""
        files = [self.vocabulary, *(file for shard in self.shards for file in (shard.records, shard.sizes))]
        raise_if_any((problem for file in files for problem in size_problems(folder, file, REMEDY)), str(folder))
        if digests:
            with bar(sum(file.size_bytes for file in files), "checking pretraining data", "B") as progress:
                problems = (problem for file in files for problem in digest_problems(folder, file, progress, REMEDY))
                raise_if_any(problems, str(folder))


def read_manifest(folder: Path) -> PretrainingManifest:
    """Reads a manifest, not its files. Raises `UserError` if it is missing, damaged or in another format."""
    path = folder / MANIFEST_NAME
    content = read_signed(path, FORMAT, VERSION, absent=_ABSENT, remedy=REMEDY)
    identity = content.get("identity")
    fields = {name: value for name, value in content.items() if name not in ("format", "version", "identity", "report")}
    manifest = from_json(PretrainingManifest, fields, f"{path}: the manifest is damaged")
    if identity != manifest.identity:
        raise UserError(f"{path}: the manifest is damaged (its SHA-256 differs); {REMEDY}")
    return manifest


def shard_entry(content: Any) -> ShardEntry:
    """Makes an entry from JSON values."""
    return from_json(ShardEntry, content, "shard")


def stored_file(path: Path) -> StoredFile:
    """Makes an existing file's entry."""
    return StoredFile(name=path.name, size_bytes=path.stat().st_size, sha256=sha256(path))
