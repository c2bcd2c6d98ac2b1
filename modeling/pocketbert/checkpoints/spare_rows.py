"""Word embedding rows without a token, left from padding to a round size."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig, head_names
from pocketbert.errors import UserError
from pocketbert.progress import log_info
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# Tables are padded to multiples of at most this (transformers' `pad_to_multiple_of`). A vocabulary that lacks more
# tokens belongs to another model: BERT's cased vocabulary has 1,526 fewer than the uncased one.
MOST_SPARE_ROWS = 1024


def without_spare_rows(
    config: EncoderConfig, tasks: Sequence[TaskConfig], tensors: Mapping[str, np.ndarray], vocabulary: Vocabulary
) -> tuple[EncoderConfig, dict[str, np.ndarray]]:
    """Removes rows after the last token from weights by path, if any. No text has these ids: outputs do not change."""
    try:
        count = len(vocabulary.tokens())
    except UserError:
        # The tokenizer reports it.
        return config, dict(tensors)
    spare = config.vocab_size - count
    if not 0 < spare < MOST_SPARE_ROWS or config.pad_token_id >= count:
        return config, dict(tensors)
    _log_once(
        f"{vocabulary.path.name} has {count:,} tokens for {config.vocab_size:,} rows of word embeddings; the last "
        f"{spare:,} rows are not used"
    )
    per_token = per_token_weights(tasks)
    shorter = {path: array[:count] if path in per_token else array for path, array in tensors.items()}
    return config.replace(vocab_size=count), shorter


def per_token_weights(tasks: Sequence[TaskConfig]) -> set[str]:
    """Paths of weights with one row per token: the table, and the masked-LM head's (MobileBERT's has two)."""
    paths = {"encoder.embeddings.word.table"}
    for name, task in zip(head_names(tasks), tasks, strict=True):
        if task.rules.head == "masked_lm":
            paths |= {f"heads.{name}.bias", f"heads.{name}.extra_table"}
    return paths


@functools.cache
def _log_once(message: str) -> None:
    """A command reads a directory more than once."""
    log_info(message)
