"""Reading a WordPiece vocabulary file, and everything that can be wrong with one."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from pocketbert.errors import UserError, raise_if_any

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# tensorflow-text keeps a token's length in eight bits.
_MAX_TOKEN_BYTES = 255
_MAX_LISTED = 5
_MAX_FILE_BYTES = 1 << 26


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """The tokens of a vocabulary file with BERT's special tokens, one a line; a token's id is its line, from 0.

    Raises:
      UserError: the file cannot be read or is not UTF-8, or tokens are missing, repeated, empty, too long or have
        control characters; one error lists everything.
    """
    tokens = read_tokens(path)
    missing = [token for token in SPECIAL_TOKENS if token not in set(tokens)]
    problems = token_problems(tokens)
    if missing:
        problems.insert(
            0,
            f"a vocabulary holds {' '.join(SPECIAL_TOKENS)}; received {len(tokens)} tokens without "
            f"{' '.join(missing)}; add a line for each",
        )
    raise_if_any(problems, str(path))
    return tokens


def read_tokens(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a vocabulary file, unchecked.

    Lines end as transformers reads them: with LF, CR LF or CR, and with no other Unicode line separator.

    Raises:
      UserError: the file cannot be read, is too large or is not UTF-8.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{path}: a vocabulary is a text file of one token a line; received: {error.strerror or error}; "
            "pass the path of a vocab.txt"
        ) from error
    if len(content) > _MAX_FILE_BYTES:
        raise UserError(f"{path}: a vocabulary has at most {_MAX_FILE_BYTES:,} bytes; received more; check the path")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}: a vocabulary is UTF-8; received the byte 0x{content[error.start]:02x} in line {line}; "
            "convert the file to UTF-8"
        ) from error
    tokens = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not tokens[-1]:
        tokens.pop()
    return tokens


def token_problems(tokens: Sequence[str]) -> list[str]:
    """Lists problems of a vocabulary: repeated, empty or too long tokens, and control characters."""
    found = []
    lines: dict[str, list[int]] = {}
    for line, token in enumerate(tokens, start=1):
        lines.setdefault(token, []).append(line)
    repeated = {token: where for token, where in lines.items() if token and len(where) > 1}
    if repeated:
        found.append(
            "a token stands once; received "
            + _some([f"{token!r} in lines {_some(where)}" for token, where in repeated.items()])
            + "; remove the repetitions"
        )
    if "" in lines:
        found.append(f"a token has at least one character; received empty lines {_some(lines[''])}; remove them")
    controls = {
        character: line
        for line, token in enumerate(tokens, start=1)
        for character in token
        if unicodedata.category(character) == "Cc"
    }
    if controls:
        shown = _some([f"U+{ord(character):04X} in line {line}" for character, line in controls.items()])
        found.append(f"a token has no control characters; received {shown}; check that the file is a vocabulary")
    long = [line for line, token in enumerate(tokens, start=1) if len(token.encode("utf-8")) > _MAX_TOKEN_BYTES]
    if long:
        found.append(f"a token has at most {_MAX_TOKEN_BYTES} bytes; received longer ones in lines {_some(long)}")
    return found


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MAX_LISTED]))
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
