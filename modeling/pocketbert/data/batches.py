"""Tokenized examples, and batches with similar lengths.

A plan has one index array per step, a pure function of lengths, seed and epoch. Training can resume at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pocketbert.data.examples import Examples
from pocketbert.data.teacher_rows import TeacherRows
from pocketbert_runtime.rows import BUCKET_MULTIPLE, TokenRows, token_rows
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES

if TYPE_CHECKING:
    import tensorflow as tf

WINDOW_BATCHES = 100
SOFT_LABELS = "soft_labels"


@dataclass(frozen=True)
class EncodedExamples(TokenRows):
    """Token ids for examples with different lengths, and their labels; see `TokenRows`.

    Attributes:
      labels: see `Examples.labels`, an entry for each row; int32 `[N, 2]` for questions; int32 `[N, max_length]`, -1
        for none, for token tags; or None.
      groups: see `Examples.groups`.
      soft_labels: see `Examples.soft_labels`, an entry for each row; float32 `[N, max_length, labels]`, 0 without one,
        for token tags. Batches have them as the input `soft_labels`.
      teacher_rows: the same examples for a teacher with another tokenizer, or None.
    """

    labels: np.ndarray | None = None
    groups: list[str] | None = None
    soft_labels: np.ndarray | None = None
    teacher_rows: TeacherRows | None = None

    @classmethod
    def of(cls, rows: TokenRows, labels: np.ndarray | None = None, groups: list[str] | None = None) -> EncodedExamples:
        """Returns the rows with labels and groups."""
        return cls(**vars(rows), labels=labels, groups=groups)

    @property
    def read_by_teacher(self) -> EncodedExamples:
        """The rows that determine a teacher's outputs: its own alone, unless the student's tokens share its outputs."""
        rows = self.teacher_rows
        if rows is None or rows.partners:
            return self
        return EncodedExamples(**{name: getattr(rows, name) for name in TokenRows.__dataclass_fields__})

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in `batch`."""
        return INPUT_NAMES if self.teacher_rows is None else (*INPUT_NAMES, *self.teacher_rows.names)

    def unlabelled(self) -> EncodedExamples:
        """Returns a copy without labels."""
        return replace(self, labels=None)

    def with_labels(self, labels: np.ndarray) -> EncodedExamples:
        """Returns a copy with these labels."""
        return replace(self, labels=labels)

    def with_soft_labels(self, soft_labels: np.ndarray) -> EncodedExamples:
        """Returns a copy with these soft labels."""
        return replace(self, soft_labels=soft_labels)

    def batch(self, indices: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Returns inputs, int32 `[B, L]`, and labels, `[B]`, for B rows; L is their bucket's length.

        The inputs include those for a teacher with another tokenizer; see `TeacherRows.batch`.
        """
        inputs = self.inputs(indices)
        if self.teacher_rows is not None:
            inputs |= self.teacher_rows.batch(indices)
        return inputs, None if self.labels is None else self.labels[self.rows(indices)]


def plan_batches(
    lengths: np.ndarray,
    *,
    batch_size: int,
    seed: int,
    epoch: int,
    bucket_multiple: int = BUCKET_MULTIPLE,
    shuffle: bool = True,
) -> list[np.ndarray]:
    """Plans one epoch's batches: int64 index arrays that together contain each of 0…N−1 once.

    With `shuffle`, it permutes the examples, sorts each window of `WINDOW_BATCHES` batches by bucket (stably), cuts it
    into batches, and permutes the batches. Random left-over examples form a smaller last batch. Random numbers come
    from NumPy's PCG64, seeded with (seed, epoch).

    Without `shuffle`, for evaluation, it sorts by bucket, shortest first; `np.concatenate(plan)` maps rows to examples.

    Args:
      lengths: int `[N]`, number of tokens in each example.
      batch_size: examples per batch; only the last batch may have fewer.
      seed: random seed, not negative.
      epoch: epoch number, from 0.
      bucket_multiple: bucket width in tokens.
      shuffle: whether to draw a random order.
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
      tokenizer: `tokenizer(texts, pairs, max_length=…)` returns int32 `[B, L]`, right-padded with
        `tokenizer.pad_token_id`.
      max_length: maximum sequence length; longer examples are truncated.
      show_progress: whether to show a progress bar on stderr.
    """
    rows = token_rows(examples.texts, examples.pairs, tokenizer, max_length, show_progress=show_progress)
    return EncodedExamples.of(rows, examples.labels, examples.groups)


def dataset(encoded: EncodedExamples, plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
    """Makes a `tf.data.Dataset` from a plan, from step `start` on. Other threads prepare batches in advance.

    Skipping steps costs nothing.

    Returns:
      (inputs, labels) as in `EncodedExamples.batch`, or only inputs for unlabelled examples. All batches have the same
      signature, so a `tf.function` is traced once. Widths are multiples of `BUCKET_MULTIPLE`, or `max_length`.
    """
    import tensorflow as tf

    labels = None if encoded.labels is None else tf.constant(encoded.labels)
    soft = None if encoded.soft_labels is None else tf.constant(encoded.soft_labels)

    def rows(indices: np.ndarray) -> list[np.ndarray]:
        inputs, _ = encoded.batch(indices)
        return [inputs[name] for name in encoded.input_names]

    def assemble(indices: tf.Tensor) -> Any:
        # TensorFlow keeps two more copies of captured tensors, too much memory for a large text.
        names = encoded.input_names
        arrays = tf.numpy_function(rows, [indices], [tf.int32] * len(names), stateful=False)
        inputs = {name: tf.ensure_shape(array, [None, None]) for name, array in zip(names, arrays, strict=True)}
        # Python calls cost time, so only examples with several rows make one.
        if encoded.rows_per_example > 1 and (labels is not None or soft is not None):
            indices = tf.ensure_shape(tf.numpy_function(encoded.rows, [indices], tf.int64, stateful=False), [None])
        if soft is not None:
            inputs[SOFT_LABELS] = tf.gather(soft, indices)
        return inputs if labels is None else (inputs, tf.gather(labels, indices))

    return index_rows(plan, start).map(assemble, num_parallel_calls=2, deterministic=True).prefetch(4)


def index_rows(plan: Sequence[np.ndarray], start: int = 0) -> tf.data.Dataset:
    """Makes a data set with the rows of `plan`, int64 `[B]` each, from step `start` on."""
    import tensorflow as tf

    rest = list(plan[start:])
    flat = np.concatenate(rest) if rest else np.zeros([0], np.int64)
    rows = tf.RaggedTensor.from_row_lengths(flat, [len(indices) for indices in rest], validate=False)
    options = tf.data.Options()
    # TensorFlow's tuner sleeps up to a minute, and the end of every epoch waits for it. Nothing here needs tuning.
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensor_slices(rows).with_options(options)
