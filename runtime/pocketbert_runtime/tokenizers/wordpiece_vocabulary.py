"""Reads WordPiece vocabulary files."""

from __future__ import annotations

import os
import re
import string
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from pocketbert_runtime.errors import UserError, raise_if_any
from pocketbert_runtime.tokenizers.bert_characters import IDEOGRAPHS

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# A longer word is one unknown token.
MAX_CHARACTERS_PER_WORD = 100

# tensorflow-text stores a token's length in eight bits.
_MAX_TOKEN_BYTES = 255
_MAX_LISTED = 5
# Unicode's category Cc.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAX_FILE_BYTES = 1 << 26


def read_vocabulary(path: str | os.PathLike[str], content: bytes | None = None) -> list[str]:
    """Reads a vocabulary file with BERT's special tokens. A token's id is its line number from 0.

    Args:
      path: the file.
      content: its bytes, if they are in memory.
    Raises:
      UserError: the file cannot be read or is not UTF-8, or tokens are missing, repeated, empty, too long or have
        control characters. One error lists all problems.
    """
    tokens = read_tokens(path, content)
    missing = [token for token in SPECIAL_TOKENS if token not in set(tokens)]
    problems = token_problems(tokens)
    if missing:
        problems.insert(
            0,
            f"a vocabulary must have {' '.join(SPECIAL_TOKENS)}; received {len(tokens)} tokens without "
            f"{' '.join(missing)}; add a line for each",
        )
    raise_if_any(problems, str(path))
    return tokens


def read_tokens(path: str | os.PathLike[str], content: bytes | None = None) -> list[str]:
    """Reads a vocabulary file's lines, without checks; for the arguments see `read_vocabulary`.

    Lines end with LF, CR LF or CR, as in transformers, but not with other Unicode line separators.

    Raises:
      UserError: the file cannot be read, is too large or is not UTF-8.
    """
    try:
        if content is None:
            with Path(path).open("rb") as stream:
                content = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(
            f"{path}: a vocabulary must be a text file with one token per line; received: {error.strerror or error}; "
            "pass the path of a vocab.txt"
        ) from error
    if len(content) > _MAX_FILE_BYTES:
        raise UserError(f"{path}: a vocabulary must have at most {_MAX_FILE_BYTES:,} bytes; check the path")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}: a vocabulary must be UTF-8; received byte 0x{content[error.start]:02x} in line {line}; "
            "convert the file to UTF-8"
        ) from error
    tokens = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not tokens[-1]:
        tokens.pop()
    return tokens


def token_problems(tokens: Sequence[str]) -> list[str]:
    """Lists problems with a vocabulary: repeated, empty or too long tokens, control characters, and no words."""
    problems = []
    lines: dict[str, list[int]] = {}
    for line, token in enumerate(tokens, start=1):
        lines.setdefault(token, []).append(line)
    repeated = {token: where for token, where in lines.items() if token and len(where) > 1}
    if repeated:
        problems.append(
            "tokens must be unique; received "
            + _some([f"{token!r} in lines {_some(where)}" for token, where in repeated.items()])
            + "; remove the repetitions"
        )
    if tokens and not any(map(_is_word, tokens)):
        problems.append(
            "a vocabulary must have a word without punctuation; received none; add the tokens of your texts"
        )
    if "" in lines:
        problems.append(f"tokens must not be empty; received empty lines {_some(lines[''])}; remove them")
    controls = {character: line for line, token in enumerate(tokens, start=1) for character in _CONTROLS.findall(token)}
    if controls:
        shown = _some([f"U+{ord(character):04X} in line {line}" for character, line in controls.items()])
        problems.append(
            f"tokens must not have control characters; received {shown}; check that the file is a vocabulary"
        )
    long = [line for line, token in enumerate(tokens, start=1) if len(token.encode("utf-8")) > _MAX_TOKEN_BYTES]
    if long:
        problems.append(
            f"tokens must have at most {_MAX_TOKEN_BYTES} bytes; received longer ones in lines {_some(long)}"
        )
    return problems


def _is_word(token: str) -> bool:
    """Whether tensorflow-text can find a token in a text; it drops tokens that it would split."""
    word = token.removeprefix("##")
    splits = any(
        character in string.punctuation
        or unicodedata.category(character).startswith("P")
        or any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
        for character in word
    )
    return bool(word) and (not splits or len(token) == 1)


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MAX_LISTED]))
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
