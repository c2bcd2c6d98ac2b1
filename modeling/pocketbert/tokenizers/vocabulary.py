"""Reading a WordPiece vocabulary file, and everything that can be wrong with one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pocketbert.errors import UserError, raise_if_any

PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# tensorflow-text keeps a piece's length in eight bits.
_MAX_PIECE_BYTES = 255
_MAX_LISTED = 5


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """The pieces of a vocabulary file, one a line; the id of a piece is its line, counted from 0.

    Lines end as transformers reads them: with LF, CR LF or CR, and with no other Unicode line separator.

    Raises:
      UserError: the file cannot be read or is not UTF-8, or pieces are missing, repeated, empty or too long; one
        error lists everything.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: a vocabulary is a text file of one piece a line; received: {error.strerror or error}; "
            "pass the path of a vocab.txt"
        ) from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}: a vocabulary is UTF-8; received the byte 0x{content[error.start]:02x} in line {line}; "
            "convert the file to UTF-8"
        ) from error
    pieces = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not pieces[-1]:
        pieces.pop()
    raise_if_any(_problems(pieces), str(path))
    return pieces


def _problems(pieces: Sequence[str]) -> list[str]:
    found = []
    lines: dict[str, list[int]] = {}
    for line, piece in enumerate(pieces, start=1):
        lines.setdefault(piece, []).append(line)
    missing = [token for token in SPECIAL_TOKENS if token not in lines]
    if missing:
        found.append(
            f"a vocabulary holds {' '.join(SPECIAL_TOKENS)}; received {len(pieces)} pieces without "
            f"{' '.join(missing)}; add a line for each"
        )
    repeated = {piece: where for piece, where in lines.items() if piece and len(where) > 1}
    if repeated:
        found.append(
            "a piece stands once; received "
            + _some([f"{piece!r} in lines {', '.join(map(str, where))}" for piece, where in repeated.items()])
            + "; remove the repetitions"
        )
    if "" in lines:
        found.append(f"a piece has at least one character; received empty lines {_some(lines[''])}; remove them")
    long = [line for line, piece in enumerate(pieces, start=1) if len(piece.encode("utf-8")) > _MAX_PIECE_BYTES]
    if long:
        found.append(f"a piece has at most {_MAX_PIECE_BYTES} bytes; received longer ones in lines {_some(long)}")
    return found


def _some(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:_MAX_LISTED]))
    return shown if len(items) <= _MAX_LISTED else f"{shown} and {len(items) - _MAX_LISTED} more"
