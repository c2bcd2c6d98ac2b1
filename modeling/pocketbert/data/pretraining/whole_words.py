"""Words that whole-word masking cannot mask, because they have more tokens than an example may mask."""

from __future__ import annotations

import numpy as np

from pocketbert.data.batches import EncodedExamples
from pocketbert.data.pretraining.masking import MaskingVocabulary
from pocketbert.data.pretraining.options import MaskingOptions


def never_masked_share(encoded: EncodedExamples, vocabulary: MaskingVocabulary, options: MaskingOptions) -> float:
    """Returns the token share of words with more tokens than `mask_batch` selects in their example, from 0 to 1.

    Text without spaces is one word for byte-level BPE and unigram, so this is most of it.
    """
    ids, lengths = encoded.word_ids, np.diff(encoded.offsets)
    selectable = ~np.isin(ids, vocabulary.special_ids)
    # Every example begins with [CLS], so a word never reaches into the next example.
    before = np.concatenate([[False], selectable[:-1]])
    begins = selectable & ~(vocabulary.continues[ids] & before)
    word = np.maximum(np.cumsum(begins) - 1, 0)
    sizes = np.bincount(word[selectable], minlength=int(word[-1]) + 1)
    wanted = np.clip(np.round(lengths * options.rate), 1, options.max_predictions)
    too_long = sizes[word] > np.repeat(wanted, lengths)
    return float(too_long[selectable].mean()) if selectable.any() else 0.0
