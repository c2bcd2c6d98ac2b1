"""Tokens to a model's inputs: special tokens, segments, truncation, padding."""

from __future__ import annotations

import tensorflow as tf


def truncated_lengths(first: tf.Tensor, second: tf.Tensor, available: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths of two texts that together fit into `available` places: the longer one loses its end first.

    As transformers' `longest_first`: if both must give, each gets half, and the longer one the odd place (the second
    one if they are equally long).

    Args:
      first: `[batch]` int32, tokens of the first text.
      second: `[batch]` int32.
      available: scalar int32.
    """
    fits = first + second <= available
    shorter_kept = tf.minimum(tf.minimum(first, second), available // 2)
    longer_kept = available - shorter_kept
    first_is_longer = first > second
    return (
        tf.where(fits, first, tf.where(first_is_longer, longer_kept, shorter_kept)),
        tf.where(fits, second, tf.where(first_is_longer, shorter_kept, longer_kept)),
    )


def pack(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_length: tf.Tensor,
    pad_to: tf.Tensor,
    *,
    cls_id: int,
    sep_id: int,
    pad_id: int,
) -> dict[str, tf.Tensor]:
    """`[CLS] first [SEP]`, or `[CLS] first [SEP] second [SEP]`, truncated and padded.

    Args:
      first: `[batch, tokens]` int32.
      second: the same for pairs.
      max_length: scalar int32, places for tokens and special tokens.
      pad_to: scalar int32, length of the result; 0: as long as the longest row.
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      pad_id: id of [PAD].

    Returns:
      int32 `[batch, length]`: `input_word_ids`, `input_mask` (1 = token), `input_type_ids` (1 = second text).
    """
    first_length = tf.cast(first.row_lengths(), tf.int32)
    if second is None:
        first_length = tf.minimum(first_length, max_length - 2)
        total = first_length + 2
    else:
        first_length, second_length = truncated_lengths(
            first_length, tf.cast(second.row_lengths(), tf.int32), max_length - 3
        )
        total = first_length + second_length + 3
    length = tf.where(pad_to > 0, pad_to, tf.reduce_max(tf.concat([total, [0]], 0)))
    position = tf.range(length)[tf.newaxis, :]
    first_end = first_length[:, tf.newaxis]
    end = total[:, tf.newaxis]

    def tokens(ragged: tf.RaggedTensor, offset: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        index = tf.cast(ragged.row_starts(), tf.int32)[:, tf.newaxis] + position - offset
        # One place more, so that there is something to gather where nothing is inside.
        return tf.gather(tf.pad(ragged.values, [[0, 1]]), tf.where(is_inside, index, 0))

    is_first = (position >= 1) & (position <= first_end)
    ids = tf.where(is_first, tokens(first, tf.constant(1), is_first), pad_id)
    ids = tf.where(position == 0, cls_id, ids)
    ids = tf.where((position == first_end + 1) | (position == end - 1), sep_id, ids)
    segments = tf.zeros_like(ids)
    if second is not None:
        is_second = (position > first_end + 1) & (position < end - 1)
        ids = tf.where(is_second, tokens(second, first_end + 2, is_second), ids)
        segments = tf.cast((position > first_end + 1) & (position < end), tf.int32)
    return {
        "input_word_ids": ids,
        "input_mask": tf.cast(position < end, tf.int32),
        "input_type_ids": segments,
    }
