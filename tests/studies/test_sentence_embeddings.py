"""Both definitions of recall, on vectors whose neighbours are known."""

from __future__ import annotations

import numpy as np
import pytest

from studies.sentence_embeddings import ascii_sentences, recall


def circle(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_recall_counts_neighbours_by_hand() -> None:
    right = circle(0, 10, 25, 60)
    # Nearest two, without itself: 0 → 1, 2; 1 → 0, 2; 2 → 1, 0; 3 → 2, 1.
    moved = circle(0, 10, 58, 60)
    # 0 → 1, 2; 1 → 0, 2; 2 → 3, 1; 3 → 2, 1.
    assert recall(right, moved, 1) == pytest.approx((3 / 4, 3 / 4))
    assert recall(right, moved, 2) == pytest.approx((1.0, (1 + 1 + 1 / 2 + 1) / 4))
    assert recall(right, right, 2) == (1.0, 1.0)


def test_sentences_are_different_and_ascii() -> None:
    assert ascii_sentences(["a", "ü", "b", "a", "c", "d"], 2) == ["a", "c"]
