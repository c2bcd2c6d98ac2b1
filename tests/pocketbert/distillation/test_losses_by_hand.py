"""Losses on cases calculated by hand, and their errors.

Softmax gives two distributions here: logits (0, ln 3) give (1/4, 3/4), and (0, 0) give (1/2, 1/2). Their divergences:

    KL((1/4, 3/4) ‖ (1/2, 1/2)) = 1/4 ln 1/2 + 3/4 ln 3/2 = 0.1308120
    KL((1/2, 1/2) ‖ (1/4, 3/4)) = 1/2 ln 2 + 1/2 ln 2/3   = 0.1438410
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from pocketbert.distillation import losses
from pocketbert.errors import UserError

LN3 = 1.0986123
# Padding holds this where it must not count.
JUNK = 50.0


def close(expected: float) -> Any:
    """The literals have seven decimals, and so has float32 at this size."""
    return pytest.approx(expected, abs=2e-6)


def constant(*values: Any) -> tf.Tensor:
    return tf.constant(values, tf.float32)


def ints(*values: Any) -> tf.Tensor:
    return tf.constant(values, tf.int32)


@pytest.mark.parametrize("loss", [losses.feature_map_transfer, losses.tinybert_hidden])
def test_squared_error_of_hidden_states(loss: Any) -> None:
    # ((1 − 0)² + (2 − 4)²) / 2
    assert float(loss(constant([[1, 2], [JUNK, 0]]), constant([[0, 4], [0, 0]]), ints([1, 0]))) == 2.5
    # Texts of one and two tokens: (3² + 0² + 6²) / 3, and not (9 + 18) / 2.
    teacher, student = constant([[1], [JUNK]], [[2], [4]]), constant([[4], [0]], [[2], [-2]])
    assert float(loss(teacher, student, ints([1, 0], [1, 1]))) == 15.0


def test_feature_statistics_transfer() -> None:
    # Means 2 and 4, variances 1 and 4, and (−1, 1) normalized on both sides; then means 4 and 4, variances 1 and 4,
    # and (1, −1) against (−1, 1).
    teacher = constant([[1, 3], [5, 3], [JUNK, 0]])
    student = constant([[2, 6], [2, 6], [0, 1]])
    terms = losses.feature_statistics_transfer(teacher, student, ints([1, 1, 0]))
    assert list(terms) == ["normalized", "mean", "variance"]
    # (0 + 0 + 4 + 4) / 4, (4 + 0) / 2, (3 + 3) / 2
    assert [float(term) for term in terms.values()] == [close(2.0), close(2.0), close(3.0)]


def test_small_features_are_normalized_too() -> None:
    # The variance is 1e-6: with Keras' epsilon of 1e-3 these would be normalized to about (−0.03, 0.03).
    terms = losses.feature_statistics_transfer(constant([[0, 2e-3]]), constant([[2e-3, 0]]), ints([1]))
    assert float(terms["normalized"]) == pytest.approx(4.0, abs=1e-4)


def test_attention_transfer() -> None:
    head = [[0, LN3, JUNK], [0, 0, JUNK], [JUNK, 0, 0]]
    other = [[0, 0, -JUNK], [0, LN3, 0], [0, JUNK, 0]]
    mask = ints([1, 1, 0])
    # (0.1308120 + 0.1438410) / 2
    assert float(losses.attention_transfer(constant([head]), constant([other]), mask)) == close(0.1373265)
    # A second head that agrees.
    assert float(losses.attention_transfer(constant([head, head]), constant([other, head]), mask)) == close(0.0686633)


def test_tinybert_attention() -> None:
    teacher = constant([[[1, 2, JUNK], [3, 4, 0], [JUNK, 0, 0]], [[1, 1, 0], [1, 1, 0], [0, 0, 0]]])
    student = constant([[[0, 0, 0], [3, 3, 0], [0, 0, 0]], [[1, 1, 0], [-2, 2, 0], [0, 0, JUNK]]])
    # Head 1: (1 + 4 + 0 + 1) / 4; head 2: (0 + 0 + 9 + 1) / 4; their mean.
    assert float(losses.tinybert_attention(teacher, student, ints([1, 1, 0]))) == 2.0


def test_soft_cross_entropy() -> None:
    # ln 2
    assert float(losses.soft_cross_entropy(constant([0, LN3]), constant([0, 0]))) == close(0.6931472)
    # At temperature 2: −(1/4 ln 3/4 + 3/4 ln 1/4) = 1.1116412 and ln 2; their mean, without a factor 4.
    teacher, student = constant([0, 2 * LN3], [0, 2 * LN3]), constant([2 * LN3, 0], [0, 0])
    assert float(losses.soft_cross_entropy(teacher, student, 2.0)) == close(0.9023942)


def test_relation_transfer() -> None:
    # Two relation heads of size 1. The first has products (0, 0), (0, ln 3) against zeros, the second agrees:
    # 0.1308120 / (2 heads × 2 tokens).
    root = LN3**0.5
    teacher = constant([[0, 1], [root, 2], [JUNK, JUNK]])
    student = constant([[0, 1], [0, 2], [-JUNK, JUNK]])
    mask = ints([1, 1, 0])
    assert float(losses.relation_transfer(teacher, student, mask, 2)) == close(0.0327030)
    # One head of size 4 against one of size 2: 4 x² / √4 = ln 3.
    x = (LN3 / 2) ** 0.5
    teacher = constant([[0, 0, 0, 0], [x, x, x, x], [JUNK, 0, 0, 0]])
    student = constant([[0, 0], [0, 0], [JUNK, 0]])
    assert float(losses.relation_transfer(teacher, student, mask, 1)) == close(0.0654060)


def test_relation_transfer_of_two_kinds() -> None:
    # Token 1's query with the keys of tokens 1 and 2: (0, ln 3). Token 2's query is 0. The student's are all 0.
    zeros = constant([[0], [0], [0]])
    queries, keys = constant([[1], [0], [JUNK]]), constant([[0], [LN3], [JUNK]])
    loss = losses.relation_transfer(queries, zeros, ints([1, 1, 0]), 1, keys, zeros)
    assert float(loss) == close(0.0654060)


def test_masked_hidden() -> None:
    # The second width is eliminated, so its target is 0 and it counts: (1² + 3²) / 2. The second token is not there.
    teacher, student = constant([[2, 4], [JUNK, JUNK]]), constant([[1, 3], [0, 0]])
    assert float(losses.masked_hidden(teacher, student, ints(1, 0), ints([1, 0]))) == 5.0
    # Each token its own widths: (1² + 3² + 50² + 0²) / 4.
    width_keep = ints([[1, 0], [1, 0]])
    assert float(losses.masked_hidden(teacher, student, width_keep, ints([1, 1]))) == 627.5


def test_pretraining_distillation() -> None:
    labels, nsp_labels = ints([1, -1]), ints(0)
    teacher, student = constant([[0, LN3], [JUNK, 0]]), constant([[LN3, 0], [0, JUNK]])
    # 1/4 · ln 4 + 3/4 · 1.1116412 + ln 2
    terms = losses.pretraining_distillation(labels, teacher, student, nsp_labels, constant([0, 0]), 0.25)
    assert float(terms) == close(1.8734517)


WIDE, NARROW, MASK = np.zeros((2, 3, 6)), np.zeros((2, 3, 4)), np.ones((2, 3), np.int32)
ONE_FEATURE = np.zeros((2, 3, 1))
LABELS = np.zeros((2, 3), np.int32)


@pytest.mark.parametrize(
    ("loss", "arguments", "message"),
    [
        (losses.feature_map_transfer, (WIDE, NARROW, MASK), r"\(2, 3, 6\) and \(2, 3, 4\); .* with an adapter"),
        # Would broadcast, and train towards nonsense.
        (losses.tinybert_hidden, (WIDE, ONE_FEATURE, MASK), r"\(2, 3, 6\) and \(2, 3, 1\); .* with an adapter"),
        (losses.feature_statistics_transfer, (WIDE, NARROW, MASK), "with an adapter"),
        (losses.masked_hidden, (WIDE, NARROW, np.ones(6), MASK), "with an adapter"),
        (losses.attention_transfer, (np.zeros((2, 5, 3, 3)), np.zeros((2, 4, 3, 3)), MASK), "number of heads"),
        (losses.tinybert_attention, (np.zeros((2, 5, 3, 3)), np.zeros((2, 1, 3, 3)), MASK), "number of heads"),
        (losses.soft_cross_entropy, (np.zeros((2, 3)), np.zeros((2, 4))), "the teacher's labels"),
        (losses.soft_cross_entropy, (np.zeros((2, 3)), np.zeros((2, 3)), 0.0), "temperature .* received 0.0"),
        (losses.relation_transfer, (WIDE, NARROW, MASK, 3), "must divide the student's width 4; received 3"),
        (losses.relation_transfer, (WIDE, NARROW, MASK, 4), "must divide the teacher's width 6; received 4"),
        (losses.relation_transfer, (WIDE, NARROW, MASK, 0), "received 0"),
        (losses.relation_transfer, (WIDE, NARROW, MASK, 2, WIDE), "student_others is missing"),
        (losses.relation_transfer, (WIDE, NARROW, MASK, 2, None, NARROW), "teacher_others is missing"),
        (losses.pretraining_distillation, (LABELS, WIDE, NARROW, LABELS[:, 0], np.zeros((2, 2)), 0.5), "vocabulary"),
        (losses.pretraining_distillation, (LABELS, WIDE, WIDE, LABELS[:, 0], np.zeros((2, 2)), 1.5), "received 1.5"),
    ],
)
def test_incompatible_inputs_are_refused(loss: Any, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        loss(*arguments)
