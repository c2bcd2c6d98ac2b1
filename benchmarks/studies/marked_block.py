"""Generated part of a page, between two marks; the first mark names its source."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class MarkedBlock:
    """Generated part of a page.

    Attributes:
      path: the page.
      name: name in the marks.
      origin: tool and input, for readers who want to edit the block.
    """

    path: Path
    name: str
    origin: str

    def read(self) -> str:
        """Returns the text between the marks."""
        return self._parts()[1]

    def write(self, text: str) -> None:
        """Replaces the text between the marks."""
        before, _, after = self._parts()
        self.path.write_text(f"{before}{self._begin}{text}{self._end}{after}", encoding="utf-8")

    @property
    def _begin(self) -> str:
        return f"<!-- {self.name}: begin. Written by {self.origin}. -->\n"

    @property
    def _end(self) -> str:
        return f"<!-- {self.name}: end -->"

    def _parts(self) -> tuple[str, str, str]:
        before, rest = self.path.read_text(encoding="utf-8").split(self._begin)
        text, after = rest.split(self._end)
        return before, text, after
