"""Dynamic token masking for MLM, as in BERT and reproducible.

Source: Devlin et al. 2019, section 3.1, task 1 (https://arxiv.org/abs/1810.04805), and google-research/bert
`create_pretraining_data.py`. In an example with n tokens, including special ones, round(0.15 n) tokens are selected, at
least 1 and at most `max_predictions`, never [CLS] or [SEP]. 80 % become [MASK], 10 % a random token, and 10 % stay.
With whole words, words are drawn in random order while all their tokens fit, with one replacement decision per word, as
in tf-models-official (google-research's code decides per token).

Masks depend on (seed, epoch, example, position) only: a resumed or differently shuffled run has the same masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from pocketbert.data.batches import EncodedExamples, dataset, index_rows
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

NO_LABEL = -1
# Sorts after all priorities, which are in [0, 1).
_NEVER = 2.0


class MaskingTokenizer(Protocol):
    """Tokenizer properties needed for masking."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The files."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""

    @property
    def pad_token_id(self) -> int:
        """[PAD] id."""

    @property
    def cls_token_id(self) -> int:
        """[CLS] id."""

    @property
    def sep_token_id(self) -> int:
        """[SEP] id."""

    @property
    def mask_token_id(self) -> int:
        """[MASK] id."""


# eq=False: `tf.function` hashes its arguments, and arrays have no hash.
@dataclass(frozen=True, eq=False)
class MaskingVocabulary:
    """A vocabulary as needed for masking.

    Attributes:
      size: number of tokens.
      mask_token_id: [MASK] id.
      special_ids: ids that are never selected: [CLS], [SEP] and [PAD].
      continues: bool `[size]`, whether a token continues a word: `##ing` in WordPiece, or else a token without a
        leading space, as in fairseq's whole-word masking.
    """

    size: int
    mask_token_id: int
    special_ids: tuple[int, ...]
    continues: np.ndarray

    @classmethod
    def of(cls, tokenizer: MaskingTokenizer) -> MaskingVocabulary:
        """Reads a tokenizer's vocabulary."""
        special_ids = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id)
        tokens = tokenizer.vocabulary.tokens()
        if continuation := tokenizer.vocabulary.rules.continuation:
            continues = np.array([token.startswith(continuation) for token in tokens])
        else:
            continues = np.array([not token.startswith(("\u0120", "\u2581")) for token in tokens])
            # An added word includes the space before it, but its text does not show the space.
            added = [token.id for token in tokenizer.vocabulary.added]
            continues[[*special_ids, tokenizer.mask_token_id, *added]] = False
        return cls(
            size=tokenizer.vocab_size,
            mask_token_id=tokenizer.mask_token_id,
            special_ids=special_ids,
            continues=continues,
        )

    def special(self, word_ids: tf.Tensor) -> tf.Tensor:
        """Returns bool `[B, S]`, whether a token is never selected."""
        return tf.reduce_any(word_ids[:, :, tf.newaxis] == tf.constant(self.special_ids, word_ids.dtype), axis=-1)


class Masked(NamedTuple):
    """A batch with masked tokens.

    Attributes:
      word_ids: int32 `[B, S]`, ids after masking.
      positions: int32 `[B, P]`, selected positions, ascending, padded with 0.
      labels: int32 `[B, P]`, original ids at these positions, padded with `NO_LABEL`.
    """

    word_ids: tf.Tensor
    positions: tf.Tensor
    labels: tf.Tensor


def mask_batch(
    word_ids: tf.Tensor,
    input_mask: tf.Tensor,
    special: tf.Tensor,
    examples: tf.Tensor,
    *,
    seed: int | tf.Tensor,
    epoch: int | tf.Tensor,
    max_length: int,
    vocabulary: MaskingVocabulary,
    options: MaskingOptions | None = None,
) -> Masked:
    """Masks a batch. A pure function for `tf.data.Dataset.map`, `tf.function` or eager use.

    Args:
      word_ids: int32 `[B, S]`.
      input_mask: int32 `[B, S]`, 1 = token.
      special: bool `[B, S]`, tokens that are never selected, from `MaskingVocabulary.special`.
      examples: int `[B]`, example numbers in the data set.
      seed: random seed, int32.
      epoch: epoch number, from 0; each epoch has other masks.
      max_length: maximum S. Use a constant for a data set: it affects the random numbers.
      vocabulary: vocabulary for the ids.
      options: masking rates; None for BERT's.
    Returns:
      Masked ids, positions and labels, P = `options.max_predictions`.
    Raises:
      ValueError: the batch is wider than `max_length`; an `InvalidArgumentError` if only the graph knows the width.
    """
    if (word_ids.shape[1] or 0) > max_length:
        raise ValueError(f"a batch must not be wider than max_length={max_length}; received {word_ids.shape}")
    options = options or MaskingOptions()
    length = tf.shape(word_ids)[1]
    with tf.control_dependencies([tf.debugging.assert_less_equal(length, max_length, "a batch wider than max_length")]):
        draws = tf.map_fn(
            lambda example: _draws(seed, epoch, example, max_length, vocabulary.size),
            tf.cast(examples, tf.int32),
            fn_output_signature=_Draws(
                tf.TensorSpec([max_length], tf.float32),
                tf.TensorSpec([max_length], tf.float32),
                tf.TensorSpec([max_length], tf.int32),
            ),
        )
    priority, action, random_ids = (draw[:, :length] for draw in draws)
    is_token = input_mask == 1
    selectable = is_token & ~special
    continues = tf.zeros_like(selectable)
    if options.whole_words:
        # A token continues the previous one, unless that one is special.
        before = tf.pad(selectable, [[0, 0], [1, 0]])[:, :-1]
        continues = tf.gather(tf.constant(vocabulary.continues), word_ids) & selectable & before
    tokens = tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1)
    wanted = _number_wanted(tokens, options)
    chosen, action = _choose(selectable, continues, priority, action, wanted, options)
    masked = tf.where(action < options.mask_token_rate, vocabulary.mask_token_id, word_ids)
    is_random = (action >= options.mask_token_rate) & (action < options.mask_token_rate + options.random_token_rate)
    masked = tf.where(is_random, random_ids, masked)
    positions, counted = _positions(chosen, options.max_predictions)
    return Masked(
        word_ids=tf.where(chosen, masked, word_ids),
        positions=positions,
        labels=tf.where(counted, tf.gather(word_ids, positions, batch_dims=1), NO_LABEL),
    )


def masked_dataset(
    encoded: EncodedExamples,
    plan: Sequence[np.ndarray],
    tokenizer: MaskingTokenizer,
    *,
    seed: int,
    epoch: int,
    start: int = 0,
    options: MaskingOptions | None = None,
    predictions: bool = False,
) -> tf.data.Dataset:
    """Makes the batches from `pocketbert.data.batches.dataset`, with masked tokens.

    Args:
      encoded: examples without labels.
      plan: this epoch's plan, from `plan_batches`.
      tokenizer: the examples' tokenizer.
      seed: random seed, not negative.
      epoch: epoch number, from 0.
      start: first step; skipping steps costs nothing.
      options: masking rates; None for BERT's.
      predictions: False for inputs only (general distillation); True for inputs and labels (MLM).
    Returns:
      Inputs with masked `input_word_ids`; or (inputs with `masked_lm_positions` int32 [B, P], labels int32 [B, P]).
    """
    if encoded.labels is not None:
        raise ValueError("examples for masking must have no labels; received labels")
    vocabulary = MaskingVocabulary.of(tokenizer)

    def mask(inputs: dict[str, tf.Tensor], examples: tf.Tensor) -> Any:
        masked = mask_batch(
            inputs["input_word_ids"],
            inputs["input_mask"],
            vocabulary.special(inputs["input_word_ids"]),
            examples,
            seed=seed,
            epoch=epoch,
            max_length=encoded.max_length,
            vocabulary=vocabulary,
            options=options,
        )
        inputs = {**inputs, "input_word_ids": masked.word_ids}
        if not predictions:
            return inputs
        return {**inputs, "masked_lm_positions": masked.positions}, masked.labels

    numbered = tf.data.Dataset.zip((dataset(encoded, plan, start), index_rows(plan, start)))
    return numbered.map(mask, num_parallel_calls=2, deterministic=True).prefetch(4)


class _Draws(NamedTuple):
    priority: tf.Tensor
    action: tf.Tensor
    random_ids: tf.Tensor


def _draws(
    seed: int | tf.Tensor, epoch: int | tf.Tensor, example: tf.Tensor, max_length: int, vocab_size: int
) -> _Draws:
    """Draws one example's random numbers: priority and action in [0, 1), and an id, for each position."""
    key = tf.random.fold_in(tf.stack([tf.cast(seed, tf.int32), tf.cast(epoch, tf.int32)]), example, alg="philox")
    uniform = tf.random.stateless_uniform([2, max_length], key, alg="philox")
    other_key = tf.random.fold_in(key, 1, alg="philox")
    ids = tf.random.stateless_uniform([max_length], other_key, 0, vocab_size, tf.int32, alg="philox")
    return _Draws(uniform[0], uniform[1], ids)


def _number_wanted(tokens: tf.Tensor, options: MaskingOptions) -> tf.Tensor:
    """Computes `min(max_predictions, max(1, round(tokens * rate)))`, int32 `[B]`."""
    if not options.rate:
        return tf.zeros_like(tokens)
    rounded = tf.cast(tf.round(tf.cast(tokens, tf.float64) * options.rate), tf.int32)
    return tf.minimum(tf.maximum(rounded, 1), options.max_predictions)


def _choose(
    selectable: tf.Tensor,
    continues: tf.Tensor,
    priority: tf.Tensor,
    action: tf.Tensor,
    wanted: tf.Tensor,
    options: MaskingOptions,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns whether a token is selected, bool `[B, S]`, and its action, `[B, S]`."""
    begins = selectable & ~continues
    order = tf.argsort(tf.where(begins, priority, _NEVER), axis=1, stable=True)
    rank = tf.argsort(order, axis=1, stable=True)
    if not options.whole_words:
        return selectable & (rank < wanted[:, tf.newaxis]), action
    # Position where each token's word begins.
    word = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32), axis=1) - 1, 0)
    first = tf.gather(_true_places_first(begins), word, batch_dims=1)
    rows, width = tf.range(tf.shape(first)[0]), tf.shape(first)[1]
    lengths = tf.math.unsorted_segment_sum(
        tf.cast(selectable, tf.int32), first + rows[:, tf.newaxis] * width, tf.size(first)
    )
    lengths = tf.reshape(lengths, tf.shape(first))
    in_order = tf.gather(tf.where(begins, lengths, 0), order, batch_dims=1)
    fits = tf.gather(_greedy(in_order, wanted), rank, batch_dims=1)
    return selectable & tf.gather(fits, first, batch_dims=1), tf.gather(action, first, batch_dims=1)


def _greedy(lengths: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
    """Selects words in order while their tokens fit, bool `[B, S]`, from int32 lengths `[B, S]` and limits `[B]`."""

    def step(state: tuple[tf.Tensor, tf.Tensor], length: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        takes = (length > 0) & (state[0] + length <= wanted)
        return state[0] + tf.where(takes, length, 0), takes

    none = tf.zeros_like(wanted)
    _, taken = tf.scan(step, tf.transpose(lengths), (none, none > 0))
    return tf.transpose(taken)


def _true_places_first(values: tf.Tensor) -> tf.Tensor:
    """Returns int32 `[B, S]`: positions where `values` is true, ascending, then the others."""
    return tf.argsort(tf.cast(~values, tf.int32), axis=1, stable=True)


def _positions(chosen: tf.Tensor, max_predictions: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns ascending positions where `chosen` is true, int32 `[B, P]`, and False for padding, bool `[B, P]`."""
    order = _true_places_first(chosen)
    count = tf.reduce_sum(tf.cast(chosen, tf.int32), axis=1)
    order = tf.pad(order, [[0, 0], [0, max_predictions]])[:, :max_predictions]
    counted = tf.sequence_mask(count, max_predictions)
    return tf.where(counted, order, 0), counted
