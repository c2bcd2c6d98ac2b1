"""Text pairs that an encoder reads one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.notation import argument
from pocketbert_runtime.rows import TokenRows, token_rows

# Rows per pair in a batch.
ROWS = 2


def separate_rows(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: Any,
    max_length: int,
    *,
    source: str = "the texts",
    show_progress: bool = False,
) -> TokenRows:
    """Tokenizes a row for each text in a pair; for the other arguments see `token_rows`.

    Args:
      texts: the first texts.
      pairs: the second texts.
      tokenizer: the network's tokenizer.
      max_length: maximum tokens per text.
      source: name for the texts in messages.
      show_progress: whether to show a progress bar on stderr.
    Raises:
      UserError: there are no second texts.
    """
    if pairs is None:
        raise without_pairs(source)
    single_texts = [text for pair in zip(texts, pairs, strict=True) for text in pair]
    rows = token_rows(single_texts, None, tokenizer, max_length, show_progress=show_progress)
    return dataclasses.replace(rows, rows_per_example=ROWS)


def without_pairs(source: str) -> UserError:
    """Returns the error for single texts from `source`."""
    return UserError(
        f"a network for separate pairs reads pairs of texts; received single texts from {source}; give the "
        f"second texts ({argument('pair_column', 'COLUMN', python='pairs')})"
    )
