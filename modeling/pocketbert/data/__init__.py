"""Data to learn from: one call for each kind; see the functions.

`pb.PretrainingData.open` reads the examples of `pocketbert pretrain-data`.
"""

from __future__ import annotations

# Some functions have the name of a module; imported here, first, the functions keep the names.
from pocketbert.data.constructors import from_pairs, glue, questions, table, text, xnli

__all__ = ["from_pairs", "glue", "questions", "table", "text", "xnli"]
