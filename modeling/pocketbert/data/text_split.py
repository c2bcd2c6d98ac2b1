"""A text in two parts, training documents and a dev part, without common documents or lines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from pocketbert.data.readers.text import Document, read_documents
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert.progress import log_info


class TextSplit:
    """Training and dev documents in a text.

    The dev part is another text or, without one, each `every`-th document. If the text has fewer documents, it is each
    `every`-th line instead, counted over all documents. Training leaves out the dev part's documents or lines, so that
    equal ones do not make the dev loss look better.

    Args:
      path: text to train on, for `read_documents`.
      dev_path: dev text, or None.
      every: see above; 0 for no dev part. Not used with `dev_path`.
    Attributes:
      dev: dev documents; empty without a dev part.
    Raises:
      UserError: an unreadable text, or one with fewer than `every` lines.
    """

    def __init__(self, path: Path, dev_path: Path | None, every: int) -> None:
        self._path, self._by_line = path, False
        self.dev: list[Document] = []
        if dev_path is not None:
            self.dev = list(read_documents(dev_path))
        elif every:
            self.dev = self._held_out(every)

    def training(self) -> Iterator[Document]:
        """Yields the documents without the dev part; logs their number. Raises `UserError` if none is left."""
        lines = {line for document in self.dev for line in document.paragraphs} if self._by_line else set()
        documents = {document.paragraphs for document in self.dev}
        kept = left_out = 0
        for document in read_documents(self._path):
            rest = document.paragraphs
            if self._by_line:
                rest = tuple(line for line in rest if line not in lines)
                left_out += len(document.paragraphs) - len(rest)
                kept += len(rest)
            elif rest in documents:
                rest = ()
                left_out += 1
            else:
                kept += 1
            if rest:
                yield dataclasses.replace(document, paragraphs=rest)
        unit = "lines" if self._by_line else "documents"
        if not kept:
            raise UserError(f"{self._path}: the dev part has every text; none is left for training; give more text")
        if self.dev:
            log_info(f"{self._path}: {kept:,} {unit} for training, {left_out:,} left out, which are in the dev part")

    def _held_out(self, every: int) -> list[Document]:
        documents, by_line = [], []
        count = lines = 0
        for document in read_documents(self._path):
            count += 1
            if count % every == 0:
                documents.append(document)
            chosen = document.paragraphs[(every - 1 - lines) % every :: every]
            lines += len(document.paragraphs)
            # With more documents, lines are not needed any longer.
            if chosen and count < every:
                by_line.append(dataclasses.replace(document, paragraphs=chosen))
        self._by_line = count < every
        if self._by_line and lines < every:
            raise UserError(
                f"{self._path}: a dev part of one in {every} lines needs at least {every} lines with words; received "
                f"{lines}; lower {argument('dev_every', python='PretrainConfig(dev_every=…)')}, or give "
                f"{argument('dev_text', python='pb.data.text(…, dev=…)')}"
            )
        return by_line if self._by_line else documents
