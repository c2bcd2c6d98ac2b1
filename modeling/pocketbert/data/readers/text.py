"""Streams documents from plain text: WikiExtractor folders, text files or JSONL, compressed or not.

wikiextractor  `<doc id=… url=… title=…>`, a line with the title, one paragraph per line, `</doc>`.
plain          one paragraph per line; an empty line ends a document (BERT's pretraining format).
jsonl          one JSON object per line with `text` (one paragraph per line) and optionally `title`.

Only one document at a time is in memory.
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

from pocketbert.data.readers.rows import PROBLEMS_SHOWN, RowProblems, json_object, shown
from pocketbert.errors import UserError

TextFormat = Literal["wikiextractor", "plain", "jsonl"]

# Approximate compression ratio for English text: xz 3.7, bzip2 3.6, gzip 2.8.
COMPRESSION = 4

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A compressed file's first bytes → function that opens it.
_COMPRESSIONS: dict[bytes, Callable[[Path], BinaryIO]] = {
    b"\x1f\x8b": lambda path: cast(BinaryIO, gzip.open(path)),
    b"\xfd7zXZ\x00": lambda path: cast(BinaryIO, lzma.open(path)),
    b"BZh": lambda path: cast(BinaryIO, bz2.open(path)),
}
_DOC_BEGINS = re.compile(r"<doc(?:\s[^>]*?)?(?:\stitle=\"(?P<title>.*)\")[^\">]*>")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
# WikiExtractor leaves remains of templates, tables, tags and switches, each as its own paragraph.
_WIKI_MARKUP = re.compile(r"[<{|}]|__|#\w+:")
# WikiExtractor's JSON also has `<`, `>` and `&` as entities; these keys identify its rows.
_WIKIEXTRACTOR_KEYS = {"id", "url", "title", "text"}


@dataclass(frozen=True)
class Document:
    """A text with its paragraphs.

    Attributes:
      title: the title, not a paragraph; empty if there is none.
      paragraphs: at least one paragraph; none is empty.
    """

    title: str
    paragraphs: tuple[str, ...]


@dataclass
class TextCounts:
    """Counters for a stream.

    Attributes:
      files: files opened.
      documents: documents read.
      paragraphs: paragraphs in these documents.
      empty_documents: skipped documents, without paragraphs.
      dropped_paragraphs: skipped paragraphs, without letters and digits or with wiki markup.
    """

    files: int = 0
    documents: int = 0
    paragraphs: int = 0
    empty_documents: int = 0
    dropped_paragraphs: int = 0

    def __str__(self) -> str:
        return (
            f"{self.documents} documents with {self.paragraphs} paragraphs in {self.files} files; skipped: "
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
    """Reads documents with text, one by one.

    Args:
      path: a file, or a folder, read in path order without hidden files. gzip, xz and bzip2 are detected.
      format: format for all files; None detects it from each file's first line.
      counts: counters to update.
    Raises:
      UserError: a missing file, no text, broken compression, text that is not UTF-8, or a row or block in another
        format. The error lists the first problems in a file with their lines; earlier documents were yielded already.
    """
    if format is not None and format not in get_args(TextFormat):
        raise UserError(f"the text format must be one of {', '.join(get_args(TextFormat))}; received {format!r}")
    path = Path(path)
    return _documents(path, text_files(path), format, TextCounts() if counts is None else counts)


def _documents(root: Path, files: list[Path], format: TextFormat | None, counts: TextCounts) -> Iterator[Document]:
    for path in files:
        yield from file_documents(path, format=format, counts=counts)
    if not counts.documents:
        raise UserError(f"{root}: the text must have at least one paragraph with words; received {counts}")


def file_documents(
    path: Path, *, format: TextFormat | None, counts: TextCounts, part: tuple[int, int] = (0, 1)
) -> Iterator[Document]:
    """Reads the documents in one file, or in a part. There may be none.

    Args:
      path: see `read_documents`.
      format: see `read_documents`.
      counts: counters to update, for the part only.
      part: (i, n) for the documents with number % n == i, counted from 0.
    Raises:
      UserError: see `read_documents`; also for problems outside the part.
    """
    index, parts = part
    counts.files += 1
    for number, (title, lines, is_wiki) in enumerate(_file_documents(path, format)):
        if number % parts != index:
            continue
        paragraphs = [line.strip() for line in lines]
        filled = [line for line in paragraphs if line]
        whole = tuple(
            line for line in filled if _LETTER_OR_DIGIT.search(line) and not (is_wiki and _WIKI_MARKUP.match(line))
        )
        counts.dropped_paragraphs += len(filled) - len(whole)
        if not whole:
            counts.empty_documents += 1
            continue
        counts.documents += 1
        counts.paragraphs += len(whole)
        yield Document(title.strip(), whole)


def estimated_text_bytes(path: Path) -> int:
    """Estimates a file's text size: the file size, times `COMPRESSION` if it is compressed."""
    try:
        return path.stat().st_size * (1 if _opener(path) is None else COMPRESSION)
    except OSError as error:
        raise _unreadable(path, error) from error


def text_files(path: Path) -> list[Path]:
    """Lists the files for `read_documents`, in order. Raises `UserError` if there are none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"{path}: there is no such file or folder; check the path")
    files = sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise UserError(f"{path}: the folder must have text files; received none")
    return files


def _file_documents(path: Path, format: TextFormat | None) -> Iterator[_Raw]:
    file_format = format or _find_format(path)
    readers = {"wikiextractor": _wikiextractor, "plain": _plain, "jsonl": _jsonl}
    problems = _TextProblems(path)
    yield from readers[file_format](_lines(path), problems)
    problems.raise_if_any()


class _TextProblems(RowProblems):
    """Raises as soon as there are enough problems for a message."""

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
    """Yields lines with their numbers from 1; only a newline ends a line."""
    try:
        opener = _opener(path)
        with opener(path) if opener else open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                yield number, _decoded(line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line, path, number)
    except (lzma.LZMAError, zlib.error, EOFError, OSError) as error:
        raise _unreadable(path, error) from error


def _opener(path: Path) -> Callable[[Path], BinaryIO] | None:
    """Returns the function that opens a compressed file; None if it is not compressed."""
    with open(path, "rb") as plain:
        first_bytes = plain.read(max(map(len, _COMPRESSIONS)))
    return next((opener for magic, opener in _COMPRESSIONS.items() if first_bytes.startswith(magic)), None)


def _unreadable(path: Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"{path}: the file cannot be read ({reason}); check the path, or write the file again")


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
                problems.add(number, f"a <doc> must follow </doc>; the one in line {begun} is still open")
            title, begun, body = html.unescape(match["title"]), number, []
        elif re.match(r"<doc[\s>]", line):
            problems.add(number, f'<doc …> must have its title on one line, as title="…"; received {line[:80]!r}')
            title, begun, body = "", number, []
        elif line.rstrip() == "</doc>":
            if title is None:
                problems.add(number, "</doc> must follow a <doc …>; received one without")
            else:
                yield _Raw(title, _without_title(title, body), True)
            title = None
        elif title is not None:
            body.append(html.unescape(line))
        elif line.strip():
            problems.add(number, f"text must be between <doc …> and </doc>; received {line[:40]!r}")
    if title is not None:
        problems.add(number, f"the <doc> in line {begun} must end with </doc>; received the end of the file")


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
            received = type(text).__name__ if "text" in row else ", ".join(map(shown, row))[:200] or "none"
            problems.add(number, f"the object must have a string 'text'; received {received}")
        elif not isinstance(title, str | None):
            problems.add(number, f"'title' must be a string; received {type(title).__name__}")
        else:
            is_wiki = row.keys() >= _WIKIEXTRACTOR_KEYS
            body = (html.unescape(text) if is_wiki else text).split("\n")
            title = html.unescape(title or "") if is_wiki else title or ""
            yield _Raw(title, _without_title(title, body) if is_wiki else body, is_wiki)
