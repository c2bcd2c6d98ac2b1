"""A tiny IB-BERT teacher, a tiny MobileBERT student, and a batch of pretraining examples for them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
import tiny

from pocketbert.configs import TaskConfig

# Equal are depth, feature maps, heads and embedding, as the method needs them.
TEACHER, STUDENT = tiny.IB_BERT, tiny.MOBILEBERT_RAW
HEADS = (TaskConfig(kind="masked_lm"), TaskConfig(kind="next_sentence"))

# Rows of 7, 4 and 6 tokens; 0 fills up.
POSITIONS = np.array([[1, 3, 5, 6], [2, 0, 0, 0], [1, 4, 0, 0]], np.int32)
SIDES = np.array([0, 1, 1], np.int32)


def batch(length: int = 9, seed: int = 3) -> dict[str, tf.Tensor]:
    """Inputs [3, length] with masked positions [3, 4], labels -1 where there is none, and next-sentence labels."""
    words = np.random.default_rng(seed).integers(2, TEACHER.vocab_size, POSITIONS.shape)
    arrays = {
        "masked_lm_positions": POSITIONS,
        "masked_lm_labels": np.where(POSITIONS > 0, words, -1).astype(np.int32),
        "next_sentence_labels": SIDES,
    }
    return {
        **tiny.batch(TEACHER, length=length, seed=seed),
        **{name: tf.constant(array) for name, array in arrays.items()},
    }
