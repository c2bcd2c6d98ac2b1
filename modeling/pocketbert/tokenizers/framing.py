"""Model inputs from token ids as tensors; `pocketbert_runtime.tokenizers.framing` does the same in NumPy."""

from __future__ import annotations

import functools

import tensorflow as tf

from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.truncation import HEAD, ONLY_SECOND, TAIL, head_tokens


def packed(
    frame: Frame,
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    max_length: tf.Tensor,
    pad_to: tf.Tensor,
    truncation: str = HEAD,
) -> dict[str, tf.Tensor]:
    """Makes model inputs, int32 `[batch, length]`: `input_word_ids`, `input_mask`, `input_type_ids`.

    Args:
      frame: the special tokens.
      first: `[batch, tokens]` int32.
      second: `[batch, tokens]` int32, or None.
      max_length: scalar int32, maximum sequence length, including special tokens; longer inputs are truncated.
      pad_to: scalar int32, length of the result; 0 for the longest row's length.
      truncation: see `pocketbert_runtime.tokenizers.truncation`.
    """
    special = frame.num_special_tokens(pairs=second is not None)
    first_length = tf.cast(first.row_lengths(), tf.int32)
    if second is None:
        first_length = tf.minimum(first_length, max_length - special)
        total = first_length + special
    else:
        shortened = only_second_lengths if truncation == ONLY_SECOND else truncated_lengths
        first_length, second_length = shortened(
            first_length, tf.cast(second.row_lengths(), tf.int32), max_length - special
        )
        total = first_length + second_length + special
    length = tf.where(pad_to > 0, pad_to, tf.reduce_max(tf.concat([total, [0]], 0)))
    position = tf.range(length)[tf.newaxis, :]
    first_end = first_length[:, tf.newaxis]
    second_start = first_end + 1 + frame.separators
    end = total[:, tf.newaxis]

    # Number of kept tokens before the cut; None if nothing is kept after it.
    kept_head = 0 if truncation == TAIL else head_tokens(truncation) if second is None else None

    def tokens(ragged: tf.RaggedTensor, offset: tf.Tensor, kept: tf.Tensor, is_inside: tf.Tensor) -> tf.Tensor:
        index = tf.cast(ragged.row_starts(), tf.int32)[:, tf.newaxis] + position - offset
        if kept_head is not None:
            cut = tf.cast(ragged.row_lengths(), tf.int32) - kept
            index += tf.where(position - offset >= kept_head, cut[:, tf.newaxis], 0)
        # One more value, so that there is something to gather outside the text.
        return tf.gather(tf.pad(ragged.values, [[0, 1]]), tf.where(is_inside, index, 0))

    is_first = (position >= 1) & (position <= first_end)
    ids = tf.where(is_first, tokens(first, tf.constant(1), first_length, is_first), frame.pad)
    ids = tf.where(position == 0, frame.first, ids)
    is_last = position == end - 1
    segments = tf.zeros_like(ids)
    if second is not None:
        is_second = (position >= second_start) & ~is_last & (position < end)
        ids = tf.where(is_second, tokens(second, second_start, second_length, is_second), ids)
        is_last |= (position > first_end) & (position < second_start)
        segments = tf.where((position >= second_start) & (position < end), frame.second_segment, 0)
    return {
        "input_word_ids": tf.where(is_last, frame.last, ids),
        "input_mask": tf.cast(position < end, tf.int32),
        "input_type_ids": segments,
    }


@functools.lru_cache(maxsize=8)
def packing(frame: Frame, *, pairs: bool, truncation: str = HEAD) -> tf.types.experimental.PolymorphicFunction:
    """`packed` as a function, traced once per process, without `second` unless there are pairs."""
    ids = tf.RaggedTensorSpec([None, None], tf.int32)
    number = tf.TensorSpec([], tf.int32)
    if pairs:
        return tf.function(
            lambda first, second, max_length, pad_to: packed(frame, first, second, max_length, pad_to, truncation),
            input_signature=[ids, ids, number, number],
            autograph=False,
        )
    return tf.function(
        lambda first, max_length, pad_to: packed(frame, first, None, max_length, pad_to, truncation),
        input_signature=[ids, number, number],
        autograph=False,
    )


def truncated_lengths(first: tf.Tensor, second: tf.Tensor, available: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Shortens two texts' lengths, `[batch]` int32, to `available` tokens in total, as transformers' `longest_first`.

    If both are too long, each keeps half, and the longer one (the second, for equal lengths) the odd token.

    Args:
      first: `[batch]` int32, numbers of tokens.
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


def only_second_lengths(first: tf.Tensor, second: tf.Tensor, available: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """As `truncated_lengths`, but shortens the second text, and the first only if it does not fit."""
    first_kept = tf.minimum(first, available)
    return first_kept, tf.minimum(second, available - first_kept)
