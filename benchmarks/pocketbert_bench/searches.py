"""Searches with sentence embeddings, for report pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Search:
    """A query with its nearest texts.

    Attributes:
      query: the text.
      hits: nearest texts with their cosines, nearest first.
    """

    query: str
    hits: tuple[tuple[str, float], ...]
