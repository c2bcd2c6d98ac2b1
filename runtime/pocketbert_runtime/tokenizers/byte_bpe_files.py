"""Reads byte-level BPE files: vocab.json and merges.txt."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert_runtime.errors import raise_if_any
from pocketbert_runtime.json_reading import parse_json, read_json
from pocketbert_runtime.tokenizers.special_tokens import ROBERTA_SPECIAL_TOKENS

_MAX_LISTED = 5
_MAX_FILE_BYTES = 1 << 26
_HEADER = "#version"


@dataclass(frozen=True)
class ByteBPEFiles:
    """The content of both files.

    Attributes:
      tokens: the tokens by id; each byte is one character in GPT-2's alphabet.
      merges: token pairs in merge order.
    """

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]]


def read_byte_bpe(
    vocab_path: str | os.PathLike[str],
    merges_path: str | os.PathLike[str],
    contents: tuple[bytes, bytes] | None = None,
    special_tokens: Sequence[str] = ROBERTA_SPECIAL_TOKENS,
) -> ByteBPEFiles:
    """Reads and checks a vocabulary and its merges.

    Args:
      vocab_path: a vocab.json: token → id.
      merges_path: a merges.txt: one token pair per line, after an optional line `#version`.
      contents: the bytes of both files, if they are in memory.
      special_tokens: special tokens that the vocabulary must have.
    Raises:
      UserError: a file cannot be read, or the two contradict each other. One error lists all problems.
    """
    problems: list[str] = []
    vocabulary, merges_content = contents or (None, None)
    ids = read_json(Path(vocab_path)) if vocabulary is None else parse_json(vocabulary, vocab_path)
    tokens = ordered_tokens(ids, problems)
    merges = _read_merges(Path(merges_path), merges_content, problems)
    if not problems:
        problems = byte_bpe_problems(tokens, merges, special_tokens)
    raise_if_any(problems, f"{vocab_path} and {Path(merges_path).name}")
    return ByteBPEFiles(tokens, merges)


def ordered_tokens(content: Any, problems: list[str]) -> list[str]:
    """Sorts the tokens in a mapping token → id by id; empty with the reason in `problems`."""
    ids = list(content.values()) if isinstance(content, Mapping) else []
    if not ids or any(type(token_id) is not int for token_id in ids) or sorted(ids) != list(range(len(ids))):
        problems.append("a vocabulary must map tokens to the ids 0, 1, 2…, each used once; received other ids")
        return []
    return sorted(content, key=content.__getitem__)


def byte_bpe_problems(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    special_tokens: Sequence[str] = ROBERTA_SPECIAL_TOKENS,
) -> list[str]:
    """Lists problems with a vocabulary and its merges."""
    token_set = set(tokens)
    problems = []
    if missing := [token for token in special_tokens if token not in token_set]:
        problems.append(
            f"a vocabulary must have {' '.join(special_tokens)}; received {len(tokens)} tokens without "
            f"{' '.join(missing)}"
        )
    if absent := [character for character in byte_characters() if character not in token_set]:
        problems.append(
            f"a byte-level vocabulary must have a token for each of the 256 bytes; received one without "
            f"{len(absent)}: {_some(absent)}"
        )
    contradicting = [
        f"merge {number} ({left!r}, {right!r}) without {token!r}"
        for number, (left, right) in enumerate(merges, start=1)
        for token in (left, right, left + right)
        if token not in token_set
    ]
    if contradicting:
        problems.append(
            "the vocabulary must have both parts and the result of each merge; received "
            f"{_some(contradicting)}; take both files from one model"
        )
    if len(set(merges)) != len(merges):
        problems.append(f"merges must be unique; received {len(merges) - len(set(merges))} repetitions")
    return problems


@functools.cache
def byte_characters() -> tuple[str, ...]:
    """GPT-2's 256 characters for bytes 0 to 255: printable Latin-1 unchanged, others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


def _read_merges(path: Path, content: bytes | None, problems: list[str]) -> list[tuple[str, str]]:
    try:
        if content is None:
            with path.open("rb") as stream:
                content = stream.read(_MAX_FILE_BYTES + 1)
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"byte 0x{error.object[error.start]:02x}"
        problems.append(f"{path.name} must be a UTF-8 text with one merge per line; received: {reason}; check the path")
        return []
    if len(content) > _MAX_FILE_BYTES:
        problems.append(f"{path.name} must have at most {_MAX_FILE_BYTES:,} bytes; check the path")
        return []
    merges, wrong = [], []
    # Not `splitlines`: only line feeds end a line here.
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        parts = line.split(" ")
        if len(parts) == 2 and all(parts) and not line.startswith(_HEADER):
            merges.append((parts[0], parts[1]))
        elif line and not line.startswith(_HEADER):
            wrong.append(f"{line[:40]!r} in line {number}")
    if wrong:
        problems.append(f"a line in {path.name} must have two tokens; received {_some(wrong)}")
    return merges


def _some(items: Sequence[str]) -> str:
    shown = ", ".join(items[:_MAX_LISTED])
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
