"""Tokenized examples, and batches of examples with similar lengths.

A plan is a list of index arrays, one per step: a pure function of lengths, seed and epoch. Training can resume at any
step of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.progress import bar
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES

if TYPE_CHECKING:
    import tensorflow as tf

BUCKET_MULTIPLE = 8
WINDOW_BATCHES = 100
_TEXTS_A_CALL = 4096
SOFT_LABELS = "soft_labels"


@dataclass(frozen=True)
class EncodedExamples:
    """Token ids of examples with different lengths, concatenated.

    Attributes:
      word_ids: int32 `[tokens]`, including special tokens, without padding.
      type_ids: int32 `[tokens]` segments; int8 for packed text.
      offsets: int64 `[N + 1]`; example i has the tokens `offsets[i]:offsets[i + 1]`.
      labels: see `Examples.labels`; int32 `[N, 2]` for questions on paragraphs; int32 `[N, max_length]`, -1 without a
        label, for tags of tokens; or None.
      max_length: maximum sequence length, also of padded batches.
      pad_token_id: id of padding.
      groups: see `Examples.groups`.
      rows_per_example: rows that stay together in a batch: 2 for pairs of texts that an encoder reads one by one.
        Example i then has the rows 2·i and 2·i + 1; `offsets` and `labels` have an entry for each row.
      soft_labels: see `Examples.soft_labels`, an entry for each row; float32 `[N, max_length, labels]`, 0 without one,
        for tags of tokens; batches have them as the input `soft_labels`.
    """

    word_ids: np.ndarray
    type_ids: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray | None
    max_length: int
    pad_token_id: int
    groups: list[str] | None = None
    rows_per_example: int = 1
    soft_labels: np.ndarray | None = None

    def __len__(self) -> int:
        return (len(self.offsets) - 1) // self.rows_per_example

    def unlabelled(self) -> EncodedExamples:
        """A copy without labels."""
        return replace(self, labels=None)

    def with_labels(self, labels: np.ndarray) -> EncodedExamples:
        """A copy with these labels."""
        return replace(self, labels=labels)

    def with_soft_labels(self, soft_labels: np.ndarray) -> EncodedExamples:
        """A copy with these soft labels."""
        return replace(self, soft_labels=soft_labels)

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[N]`, number of tokens in the longest row of each example."""
        return np.diff(self.offsets).reshape(-1, self.rows_per_example).max(axis=1)

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Rows of the examples at `indices`, in this order."""
        if self.rows_per_example == 1:
            return indices
        return (indices[:, None] * self.rows_per_example + np.arange(self.rows_per_example)).ravel()

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Returns inputs, int32 `[B, L]`, and labels, `[B]`, of B rows; L is the length of their bucket."""
        indices = self.rows(indices)
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        width = int(bucketed(lengths.max(), self.max_length))
        inputs = {
            "input_word_ids": np.full((len(indices), width), self.pad_token_id, np.int32),
            "input_mask": np.zeros((len(indices), width), np.int32),
            "input_type_ids": np.zeros((len(indices), width), np.int32),
        }
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            inputs["input_word_ids"][row, :length] = self.word_ids[start : start + length]
            inputs["input_mask"][row, :length] = 1
            inputs["input_type_ids"][row, :length] = self.type_ids[start : start + length]
        return inputs, None if self.labels is None else self.labels[indices]


def bucketed(lengths: Any, max_length: int, bucket_multiple: int = BUCKET_MULTIPLE) -> Any:
    """Rounds lengths up to the widths of batches: multiples of `bucket_multiple`, at most `max_length`."""
    return np.minimum(-(-np.asarray(lengths) // bucket_multiple) * bucket_multiple, max_length)


def plan_batches(
    lengths: np.ndarray,
    *,
    batch_size: int,
    seed: int,
    epoch: int,
    bucket_multiple: int = BUCKET_MULTIPLE,
    shuffle: bool = True,
) -> list[np.ndarray]:
    """Plans the batches of one epoch.

    With `shuffle`, it permutes the examples, sorts each window of `WINDOW_BATCHES` batches by bucket (stably), cuts it
    into batches, and permutes the batches. Random left-over examples form a smaller last batch. Random numbers come
    from NumPy's PCG64, seeded with (seed, epoch).

    Without `shuffle`, for evaluation, it sorts by bucket, shortest first. `np.concatenate(plan)` maps rows of the
    results to examples.

    Args:
      lengths: int `[N]`, number of tokens in each example.
      batch_size: examples per batch; only the last batch may have fewer.
      seed: random seed, not negative.
      epoch: number of the epoch, from 0.
      bucket_multiple: width of the buckets in tokens.
      shuffle: whether to draw a random order.
    Returns:
      int64 index arrays, which together contain each of 0…N−1 once.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or not len(lengths):
        raise ValueError(f"lengths must be [N] with N > 0; received {lengths.shape}")
    if batch_size < 1 or bucket_multiple < 1:
        raise ValueError(f"batch_size and bucket_multiple must be positive; received {batch_size}, {bucket_multiple}")
    buckets = -(-lengths // bucket_multiple)
    if not shuffle:
        order = np.argsort(buckets, kind="stable")
        return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths))
    full_batches = len(order) // batch_size
    plan: list[np.ndarray] = []
    for first in range(0, full_batches, WINDOW_BATCHES):
        window = order[first * batch_size : min(first + WINDOW_BATCHES, full_batches) * batch_size]
        window = window[np.argsort(buckets[window], kind="stable")]
        plan += np.split(window, len(window) // batch_size)
    plan = [plan[position] for position in generator.permutation(len(plan))]
    left_over = order[full_batches * batch_size :]
    return [*plan, left_over] if len(left_over) else plan


def encode(
    examples: Examples, tokenizer: Callable[..., Any], max_length: int, *, show_progress: bool = True
) -> EncodedExamples:
    """Tokenizes examples in chunks.

    Args:
      examples: sentences or pairs.
      tokenizer: `tokenizer(texts, pairs, max_length=…)` returns model inputs, int32 `[B, L]`, padded on the right with
        `tokenizer.pad_token_id`.
      max_length: maximum sequence length; longer examples are truncated.
      show_progress: whether to show a progress bar on stderr.
    """
    word_ids, type_ids, lengths = [], [], []
    with bar(len(examples), "tokenize", "text") if show_progress else contextlib.nullcontext() as progress:
        for start in range(0, len(examples), _TEXTS_A_CALL):
            chunk = slice(start, start + _TEXTS_A_CALL)
            pairs = None if examples.pairs is None else examples.pairs[chunk]
            encoded = tokenizer(examples.texts[chunk], pairs, max_length=max_length)
            words, mask, types = (np.asarray(encoded[name]) for name in INPUT_NAMES)
            real = mask == 1
            word_ids.append(words[real])
            type_ids.append(types[real])
            lengths.append(mask.sum(axis=1))
            if progress is not None:
                progress.update(len(mask))
    return EncodedExamples(
        word_ids=np.concatenate(word_ids).astype(np.int32),
        type_ids=np.concatenate(type_ids).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64),
        labels=examples.labels,
        max_length=max_length,
        pad_token_id=int(tokenizer.pad_token_id),  # type: ignore[attr-defined]
        groups=examples.groups,
    )


def dataset(encoded: EncodedExamples, plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
    """Makes a `tf.data.Dataset` from a plan. Other threads prepare batches ahead of the training step.

    `start` is the first step; skipping the steps before it costs nothing.

    Returns:
      (inputs, labels) as in `EncodedExamples.batch`, or only inputs for unlabelled examples. All batches have the same
      signature, so that a `tf.function` is traced once. Widths are multiples of `BUCKET_MULTIPLE`, or `max_length`.
    """
    import tensorflow as tf

    labels = None if encoded.labels is None else tf.constant(encoded.labels)
    soft = None if encoded.soft_labels is None else tf.constant(encoded.soft_labels)

    def rows(indices: np.ndarray) -> list[np.ndarray]:
        inputs, _ = encoded.batch(indices)
        return [inputs[name] for name in INPUT_NAMES]

    def assemble(indices: tf.Tensor) -> Any:
        # TensorFlow keeps two more copies of captured tensors, too much memory for a large text.
        arrays = tf.numpy_function(rows, [indices], [tf.int32] * len(INPUT_NAMES), stateful=False)
        inputs = {name: tf.ensure_shape(array, [None, None]) for name, array in zip(INPUT_NAMES, arrays, strict=True)}
        # Calls of Python cost time, so only examples with several rows make one.
        if encoded.rows_per_example > 1 and (labels is not None or soft is not None):
            indices = tf.ensure_shape(tf.numpy_function(encoded.rows, [indices], tf.int64, stateful=False), [None])
        if soft is not None:
            inputs[SOFT_LABELS] = tf.gather(soft, indices)
        return inputs if labels is None else (inputs, tf.gather(labels, indices))

    return index_rows(plan, start).map(assemble, num_parallel_calls=2, deterministic=True).prefetch(4)


def index_rows(plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
    """Makes a data set from the rows of `plan`, int64 `[B]` each, from step `start`."""
    import tensorflow as tf

    rest = list(plan[start:])
    flat = np.concatenate(rest) if rest else np.zeros([0], np.int64)
    rows = tf.RaggedTensor.from_row_lengths(flat, [len(indices) for indices in rest], validate=False)
    options = tf.data.Options()
    # TensorFlow's tuner sleeps up to a minute, and the end of every epoch waits for it. Nothing here needs tuning.
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices(rows).with_options(options)
