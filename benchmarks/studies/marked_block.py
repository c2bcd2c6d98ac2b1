"""The part of a page that a tool writes: between two marks, of which the first says where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class MarkedBlock:
    """A part of a page.

    Attributes:
      path: the page.
      name: in the marks.
      origin: the tool and what it reads, for whoever would edit the block.
    """

    path: Path
    name: str
    origin: str

    def read(self) -> str:
        """Text between the marks."""
        return self._parts()[1]

    def write(self, text: str) -> None:
        """Puts `text` between the marks."""
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
