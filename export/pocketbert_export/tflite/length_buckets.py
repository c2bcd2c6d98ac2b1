"""Texts in a bundle's lengths, assigned as by `pocketbert_runtime.bundles.length_buckets`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pocketbert.encoder import INPUT_NAMES
from pocketbert.tokenizers.base import Tokenizer
from pocketbert_runtime.bundles.length_buckets import LengthBucket, bucket_by_length


def first_rows(buckets: Sequence[LengthBucket], most: int) -> list[LengthBucket]:
    """Selects up to `most` texts, evenly from all lengths."""
    most_each = max(1, most // len(buckets))
    return [
        LengthBucket(
            bucket.length, bucket.indices[:most_each], {name: rows[:most_each] for name, rows in bucket.inputs.items()}
        )
        for bucket in buckets
    ]


def bucket_texts(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, lengths: Sequence[int]
) -> list[LengthBucket]:
    """Tokenizes texts and sorts them into a bundle's lengths; longer ones are truncated to the longest."""
    encoded = tokenizer(list(texts), None if pairs is None else list(pairs), max_length=max(lengths))
    return bucket_by_length({name: np.asarray(encoded[name]) for name in INPUT_NAMES}, lengths, tokenizer.pad_token_id)
