"""Contents of a folder with pretraining examples.

`manifest.json`, the `vocab.txt` that the ids are of, and shards. A shard is a TFRecord file and, beside it, the sizes
of its records, so that any example is one read: an int32 array `[2, examples]` of tokens and bytes. A dev split is
such a folder too, `dev` in the other one. The manifest has the size and SHA-256 of every file, and its own; none of it
depends on when, where or by how many processes it was written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert.data.pretraining_options import PretrainingOptions
from pocketbert.data.teacher_cache import digest_problems, size_problems
from pocketbert.data.teacher_cache_layout import MANIFEST_NAME, StoredFile, read_signed
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import sha256, write_text
from pocketbert.json_reading import from_json
from pocketbert.progress import bar

FORMAT = "pocketbert pretraining data"
VERSION = 1
DEV_FOLDER = "dev"
_ABSENT = (
    f"pretraining data must be a folder with a {MANIFEST_NAME}, which is written last; received {{folder}}, which has "
    "none; make it, or finish it, with pocketbert pretrain-data"
)
REMEDY = "copy the folder again, or make it again with pocketbert pretrain-data"


@dataclass(frozen=True, kw_only=True)
class VocabularyFacts:
    """A tokenizer as its ids tell of it.

    Attributes:
      lowercase: whether it lower-cases.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.
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
        """The facts of a `WordPieceTokenizer`."""
        return cls(**{field.name: getattr(tokenizer, field.name) for field in dataclasses.fields(cls)})


@dataclass(frozen=True, kw_only=True)
class StoredVocabulary(VocabularyFacts):
    """`VocabularyFacts` with the file, as `MaskingVocabulary.of` takes it."""

    vocab_path: Path


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of a shard or a data set.

    Attributes:
      documents: with at least one token.
      sentences: of those, with at least one token.
      tokens: of those, each once, special ones not counted.
      examples: records.
      random_next: examples whose second segment is another document's.
      example_tokens: of all examples, special ones counted.
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
        """The counts, and what they say of the examples if all were padded to `max_length`."""
        return {
            **dataclasses.asdict(self),
            "random_next_share": round(self.random_next / self.examples, 4),
            "mean_length": round(self.example_tokens / self.examples, 2),
            "padding_share": round(1 - self.example_tokens / (self.examples * max_length), 4),
        }


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """A shard's two files and what is in them."""

    records: StoredFile
    sizes: StoredFile
    counts: Counts


@dataclass(frozen=True, kw_only=True)
class PretrainingManifest:
    """A folder's `manifest.json`.

    Attributes:
      options: how the text became examples.
      tokenizer: whose ids they are.
      text: what was read, by name: `files`, the `sha256` of them all, and what was left out.
      vocabulary: the file of the vocabulary.
      shards: in the order of the examples' numbers.
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
        """SHA-256 of all that the manifest says, and so of every file."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(f"{FORMAT} {VERSION} {content}".encode()).hexdigest()

    def write(self, folder: Path) -> None:
        """Writes it aside and renames it."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "identity": self.identity,
            "report": self.counts.report(self.options.max_length),
            **dataclasses.asdict(self),
        }
        write_text(folder / MANIFEST_NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    def check_files(self, folder: Path, *, digests: bool) -> None:
        """Compares the folder's files with the manifest.

        Args:
          folder: where they are.
          digests: compare SHA-256 too, not the sizes alone.
        Raises:
          UserError: files are missing or damaged; names them all.
        """
        files = [self.vocabulary, *(file for shard in self.shards for file in (shard.records, shard.sizes))]
        raise_if_any((each for file in files for each in size_problems(folder, file, REMEDY)), str(folder))
        if digests:
            with bar(sum(file.size_bytes for file in files), "checking pretraining data", "B") as progress:
                found = (each for file in files for each in digest_problems(folder, file, progress, REMEDY))
                raise_if_any(found, str(folder))


def read_manifest(folder: Path) -> PretrainingManifest:
    """Reads and checks a manifest, not the files that it names.

    Raises:
      UserError: there is none, it is damaged, or it is of a format that is not known here.
    """
    path = folder / MANIFEST_NAME
    content = read_signed(path, FORMAT, VERSION, absent=_ABSENT, remedy=REMEDY)
    identity = content.get("identity")
    fields = {name: value for name, value in content.items() if name not in ("format", "version", "identity", "report")}
    manifest = from_json(PretrainingManifest, fields, f"{path}: the manifest is damaged")
    if identity != manifest.identity:
        raise UserError(f"{path}: the manifest is damaged (its SHA-256 differs); {REMEDY}")
    return manifest


def shard_entry(content: Any) -> ShardEntry:
    """An entry from its JSON values."""
    return from_json(ShardEntry, content, "shard")


def stored_file(path: Path) -> StoredFile:
    """The entry of a file that is there."""
    return StoredFile(name=path.name, size_bytes=path.stat().st_size, sha256=sha256(path))
