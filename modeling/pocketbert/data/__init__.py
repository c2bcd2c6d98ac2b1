"""Training data: one function for each kind of source.

For examples made by `pocketbert pretrain-data`, use `pb.PretrainingData.open`.
"""

from __future__ import annotations

# Some functions are named like modules. Import them first, so that the names stay those of the functions.
from pocketbert.data.constructors import from_pairs, glue, pairs, questions, table, tagged, text, xnli
from pocketbert.data.head_tables import heads
from pocketbert.data.unlabelled import with_unlabelled

__all__ = ["from_pairs", "glue", "heads", "pairs", "questions", "table", "tagged", "text", "with_unlabelled", "xnli"]
