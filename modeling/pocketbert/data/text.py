"""Plain text as a stream of documents: WikiExtractor's folders, plain text files, JSONL; compressed or not.

wikiextractor  `<doc id=… url=… title=…>`, the title's line, a paragraph a line, `</doc>`.
plain          a paragraph a line; an empty line ends a document (BERT's own pretraining format).
jsonl          a JSON object a line with `text` (a paragraph a line) and, if it has one, `title`.

One document is in memory at a time.
"""

from __future__ import annotations

import bz2
import gzip
import html
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast, get_args

from pocketbert.data.reading import PROBLEMS_SHOWN, RowProblems, json_object, shown
from pocketbert.errors import UserError

TextFormat = Literal["wikiextractor", "plain", "jsonl"]

# Bytes of English text in a byte of it compressed, about: xz 3.7, bzip2 3.6, gzip 2.8.
COMPRESSION = 4

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# First bytes of a compressed file → what opens it.
_COMPRESSIONS: dict[bytes, Callable[[Path], BinaryIO]] = {
    b"\x1f\x8b": lambda path: cast(BinaryIO, gzip.open(path)),
    b"\xfd7zXZ\x00": lambda path: cast(BinaryIO, lzma.open(path)),
    b"BZh": lambda path: cast(BinaryIO, bz2.open(path)),
}
_DOC_BEGINS = re.compile(r"<doc(?:\s[^>]*?)?(?:\stitle=\"(?P<title>.*)\")[^\">]*>")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# What WikiExtractor leaves of templates, tables, tags and switches is a paragraph of its own.
_WIKI_MARKUP = re.compile(r"[<{|}]|__|#\w+:")
# WikiExtractor writes `<`, `>` and `&` as entities in its JSON too; these names tell its rows.
_WIKIEXTRACTOR_KEYS = {"id", "url", "title", "text"}


@dataclass(frozen=True)
class Document:
    """One text from beginning to end.

    Attributes:
      title: empty if it has none; not among the paragraphs.
      paragraphs: at least one, none empty, in order.
    """

    title: str
    paragraphs: tuple[str, ...]


@dataclass
class TextCounts:
    """Counters of a stream.

    Attributes:
      files: opened.
      documents: given.
      paragraphs: in those.
      empty_documents: left out, since no paragraph was left in them.
      dropped_paragraphs: left out: without a letter or a digit, or wiki markup that WikiExtractor left over.
    """

    files: int = 0
    documents: int = 0
    paragraphs: int = 0
    empty_documents: int = 0
    dropped_paragraphs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.documents} documents with {self.paragraphs} paragraphs in {self.files} files; left out: "
            f"{self.empty_documents} documents without text, {self.dropped_paragraphs} paragraphs without words"
        )


class _Raw(NamedTuple):
    title: str
    lines: list[str]
    is_wiki: bool


_Lines = Iterator[tuple[int, str]]


def read_documents(
    path: str | os.PathLike[str], *, format: TextFormat | None = None, counts: TextCounts | None = None
) -> Iterator[Document]:
    """Reads documents one after another.

    Args:
      path: a file, or a folder whose files are read in the order of their paths, hidden ones left out. Each may be
        compressed with gzip, xz or bzip2, which its first bytes tell.
      format: the form of all files; None finds each file's from its first line.
      counts: is kept up to date while the stream is read.
    Yields:
      Documents that have text.
    Raises:
      UserError: no such file, no text in any file, broken compression, text that is not UTF-8, a row or block that is
        not of the format: with file and line, the first few of a file together. Documents before it have been
        given by then.
    """
    if format is not None and format not in get_args(TextFormat):
        raise UserError(f"the text's format is one of {', '.join(get_args(TextFormat))}; received {format!r}")
    path = Path(path)
    return _documents(path, text_files(path), format, TextCounts() if counts is None else counts)


def _documents(root: Path, files: list[Path], format: TextFormat | None, counts: TextCounts) -> Iterator[Document]:
    for path in files:
        yield from file_documents(path, format=format, counts=counts)
    if not counts.documents:
        raise UserError(f"{root}: the text must hold at least one paragraph with words; received {counts}")


def file_documents(
    path: Path, *, format: TextFormat | None, counts: TextCounts, part: tuple[int, int] = (0, 1)
) -> Iterator[Document]:
    """The documents of one file, or of a part of it; there may be none.

    Args:
      path: as in `read_documents`.
      format: as there.
      counts: as there; of the part alone.
      part: (i, n): only the documents whose number in the file, from 0, leaves the remainder i divided by n.
    Raises:
      UserError: as there, wherever in the file the reason is.
    """
    index, parts = part
    counts.files += 1
    for number, (title, lines, is_wiki) in enumerate(_file_documents(path, format)):
        if number % parts != index:
            continue
        paragraphs = [line.strip() for line in lines]
        filled = [line for line in paragraphs if line]
        kept = tuple(
            line for line in filled if _LETTER_OR_DIGIT.search(line) and not (is_wiki and _WIKI_MARKUP.match(line))
        )
        counts.dropped_paragraphs += len(filled) - len(kept)
        if not kept:
            counts.empty_documents += 1
            continue
        counts.documents += 1
        counts.paragraphs += len(kept)
        yield Document(title.strip(), kept)


def estimated_text_bytes(path: Path) -> int:
    """About how much text a file holds: its size, times `COMPRESSION` if it is compressed."""
    try:
        return path.stat().st_size * (1 if _opener(path) is None else COMPRESSION)
    except OSError as error:
        raise _unreadable(path, error) from error


def text_files(path: Path) -> list[Path]:
    """The files that `read_documents` reads, in their order.

    Raises:
      UserError: there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: there is no such file or folder; check the path")
    found = sorted(
        each
        for each in path.rglob("*")
        if each.is_file() and not any(part.startswith(".") for part in each.relative_to(path).parts)
    )
    if not found:
        raise UserError(f"{path}: the folder holds no file; it must hold text files")
    return found


def _file_documents(path: Path, format: TextFormat | None) -> Iterator[_Raw]:
    found = format or _find_format(path)
    readers = {"wikiextractor": _wikiextractor, "plain": _plain, "jsonl": _jsonl}
    problems = _TextProblems(path)
    yield from readers[found](_lines(path), problems)
    problems.raise_if_any()


class _TextProblems(RowProblems):
    """Ends the reading of a file as soon as there are as many as are shown."""

    def add(self, line: int, reason: str) -> None:
        super().add(line, reason)
        if len(self) == PROBLEMS_SHOWN:
            self.raise_if_any()


def _find_format(path: Path) -> TextFormat:
    for _, line in _lines(path):
        if line.strip():
            if re.match(r"<doc[\s>]", line):
                return "wikiextractor"
            return "jsonl" if re.match(r'\s*\{\s*["}]', line) else "plain"
    return "plain"


def _lines(path: Path) -> _Lines:
    """Lines with their numbers from 1; only a newline ends one."""
    try:
        opener = _opener(path)
        with opener(path) if opener else open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                yield number, _decoded(line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line, path, number)
    except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise _unreadable(path, error) from error


def _opener(path: Path) -> Callable[[Path], BinaryIO] | None:
    """Function that opens a compressed file; None if it is not compressed."""
    with open(path, "rb") as plain:
        first_bytes = plain.read(max(map(len, _COMPRESSIONS)))
    return next((each for magic, each in _COMPRESSIONS.items() if first_bytes.startswith(magic)), None)


def _unreadable(path: Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"{path}: the file cannot be read ({reason}); check the path, or make the file again")


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: line {number}: the text must be UTF-8; received byte 0x{line[error.start]:02x}; "
            "save the file as UTF-8"
        ) from error


def _wikiextractor(lines: _Lines, problems: _TextProblems) -> Iterator[_Raw]:
    title: str | None = None
    begun = 0
    body: list[str] = []
    number = 0
    for number, line in lines:
        if line.startswith("<doc") and (match := _DOC_BEGINS.fullmatch(line.rstrip())):
            if title is not None:
                problems.add(number, f"a <doc> must come after </doc>; the one of line {begun} is still open")
            title, begun, body = html.unescape(match["title"]), number, []
        elif re.match(r"<doc[\s>]", line):
            problems.add(number, f'<doc …> must have its title on one line, as title="…"; received {line[:80]!r}')
            title, begun, body = "", number, []
        elif line.rstrip() == "</doc>":
            if title is None:
                problems.add(number, "</doc> must come after its <doc …>; received one without")
            else:
                yield _Raw(title, _without_title(title, body), True)
            title = None
        elif title is not None:
            body.append(html.unescape(line))
        elif line.strip():
            problems.add(number, f"text must stand between <doc …> and </doc>; received {line[:40]!r}")
    if title is not None:
        problems.add(number, f"the <doc> of line {begun} must end with </doc>; the file ends before it")


def _without_title(title: str, body: list[str]) -> list[str]:
    first = next((index for index, line in enumerate(body) if line.strip()), None)
    return body if first is None or body[first].strip() != title.strip() else body[first + 1 :]


def _plain(lines: _Lines, problems: _TextProblems) -> Iterator[_Raw]:
    body: list[str] = []
    for _, line in lines:
        if line.strip():
            body.append(line)
        elif body:
            yield _Raw("", body, False)
            body = []
    if body:
        yield _Raw("", body, False)


def _jsonl(lines: _Lines, problems: _TextProblems) -> Iterator[_Raw]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json_object(line)
        except ValueError as error:
            problems.add(number, str(error))
            continue
        text, title = row.get("text"), row.get("title")
        if not isinstance(text, str):
            received = f"{type(text).__name__} in it" if "text" in row else ", ".join(map(shown, row))[:200] or "none"
            problems.add(number, f"the object must have its text as a string in 'text'; received {received}")
        elif not isinstance(title, str | None):
            problems.add(number, f"'title' must be a string; received {type(title).__name__}")
        else:
            is_wiki = row.keys() >= _WIKIEXTRACTOR_KEYS
            body = (html.unescape(text) if is_wiki else text).split("\n")
            title = html.unescape(title or "") if is_wiki else title or ""
            yield _Raw(title, _without_title(title, body) if is_wiki else body, is_wiki)
