"""Pretraining examples as `tf.train.Example` records: encoding and decoding.

Without static masks, a record has int64 features: `word_ids`, a list with the example's length; `first_segment_length`,
the number of tokens up to and including the first [SEP]; `next_sentence_labels`; `document`, the first segment's
document number in the shard. With static masks, it has the names and padded shapes in tf-models-official
(`BertPretrainDataLoader` with `use_v2_feature_names`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from pocketbert.data.pretraining.manifest import VocabularyFacts
from pocketbert.data.pretraining.masking import NO_LABEL, Masked, MaskingVocabulary, mask_batch
from pocketbert.data.pretraining.next_sentence import SPECIAL_TOKENS, SentencePair
from pocketbert.data.pretraining.options import MaskingOptions
from pocketbert_runtime.rows import BUCKET_MULTIPLE

# A constant shape, so that masking is traced once.
_EXAMPLES_A_CALL = 1024
PretrainingBatch = dict[str, tf.Tensor]


def plain_records(word_ids: np.ndarray, pairs: Iterable[SentencePair], tokenizer: VocabularyFacts) -> Iterator[bytes]:
    """Makes records without masks."""
    for pair in pairs:
        ids, first_length = _with_special(word_ids, pair, tokenizer)
        yield _serialized(
            {
                "word_ids": ids.tolist(),
                "first_segment_length": [first_length],
                "next_sentence_labels": [pair.label],
                "document": [pair.document],
            }
        )


class Masker:
    """Makes records with static masks."""

    def __init__(
        self,
        masking: MaskingOptions,
        *,
        max_length: int,
        seed: int,
        tokenizer: VocabularyFacts,
        vocabulary: MaskingVocabulary,
    ) -> None:
        self._max_length, self._tokenizer = max_length, tokenizer
        batch = tf.TensorSpec([_EXAMPLES_A_CALL, max_length], tf.int32)
        row, number = tf.TensorSpec([_EXAMPLES_A_CALL], tf.int32), tf.TensorSpec([], tf.int32)

        @tf.function(input_signature=[batch, row, row, number], autograph=False)
        def masked(ids: tf.Tensor, lengths: tf.Tensor, examples: tf.Tensor, shard: tf.Tensor) -> Masked:
            return mask_batch(
                ids,
                tf.sequence_mask(lengths, max_length, tf.int32),
                vocabulary.special(ids),
                examples,
                seed=seed,
                epoch=shard,
                max_length=max_length,
                vocabulary=vocabulary,
                options=masking,
            )

        self._masked = masked

    def records(self, word_ids: np.ndarray, pairs: Iterable[SentencePair], shard: int) -> Iterator[bytes]:
        """Makes a shard's records. Masks depend on seed, shard and the example's number in it."""
        length = self._max_length
        start = 0
        remaining = iter(pairs)
        while chunk := list(itertools.islice(remaining, _EXAMPLES_A_CALL)):
            ids = np.full([_EXAMPLES_A_CALL, length], self._tokenizer.pad_token_id, np.int32)
            lengths = np.zeros(_EXAMPLES_A_CALL, np.int32)
            firsts = []
            for row, pair in enumerate(chunk):
                with_special, first_length = _with_special(word_ids, pair, self._tokenizer)
                lengths[row] = len(with_special)
                ids[row, : len(with_special)] = with_special
                firsts.append(first_length)
            examples = np.arange(start, start + _EXAMPLES_A_CALL, dtype=np.int32)
            result = self._masked(ids, lengths, examples, np.int32(shard))
            start += len(chunk)
            # The last chunk has more rows than examples.
            rows = zip(chunk, lengths.tolist(), firsts, *(column.numpy().tolist() for column in result), strict=False)
            for pair, count, first_length, own_ids, positions, labels in rows:
                chosen = [label != NO_LABEL for label in labels]
                yield _serialized(
                    {
                        "input_word_ids": own_ids,
                        "input_mask": [1] * count + [0] * (length - count),
                        "input_type_ids": [0] * first_length + [1] * (count - first_length) + [0] * (length - count),
                        "masked_lm_positions": positions,
                        "masked_lm_ids": [label if is_one else 0 for label, is_one in zip(labels, chosen, strict=True)],
                        "next_sentence_labels": [pair.label],
                    },
                    {"masked_lm_weights": [float(is_one) for is_one in chosen]},
                )


def plain_decoder(max_length: int, pad_token_id: int) -> Callable[[tf.Tensor], PretrainingBatch]:
    """Parses records without masks, string `[B]`, into int32 `[B, S]` inputs and `next_sentence_labels` `[B]`."""

    def decode(records: tf.Tensor) -> PretrainingBatch:
        parsed = tf.io.parse_example(
            records,
            {
                "word_ids": tf.io.RaggedFeature(tf.int64),
                "first_segment_length": tf.io.FixedLenFeature([], tf.int64),
                "next_sentence_labels": tf.io.FixedLenFeature([], tf.int64),
            },
        )
        lengths = parsed["word_ids"].row_lengths()
        width = _width(lengths, max_length)
        input_mask = tf.sequence_mask(lengths, width)
        is_first = tf.sequence_mask(parsed["first_segment_length"], width)
        shape = tf.stack([tf.cast(tf.size(records), width.dtype), width])
        return {
            "input_word_ids": tf.cast(parsed["word_ids"].to_tensor(pad_token_id, shape=shape), tf.int32),
            "input_mask": tf.cast(input_mask, tf.int32),
            "input_type_ids": tf.cast(input_mask & ~is_first, tf.int32),
            "next_sentence_labels": tf.cast(parsed["next_sentence_labels"], tf.int32),
        }

    return decode


def masked_decoder(max_length: int, masking: MaskingOptions) -> Callable[[tf.Tensor], PretrainingBatch]:
    """Parses records with masks; adds `masked_lm_positions` and `masked_lm_labels`, int32 `[B, P]`."""
    shapes = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), max_length)
    shapes |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), masking.max_predictions)

    def decode(records: tf.Tensor) -> PretrainingBatch:
        features = {name: tf.io.FixedLenFeature([size], tf.int64) for name, size in shapes.items()}
        features["next_sentence_labels"] = tf.io.FixedLenFeature([], tf.int64)
        features["masked_lm_weights"] = tf.io.FixedLenFeature([masking.max_predictions], tf.float32)
        parsed = tf.io.parse_example(records, features)
        weights = parsed.pop("masked_lm_weights")
        parsed = {name: tf.cast(value, tf.int32) for name, value in parsed.items()}
        width = _width(tf.reduce_sum(parsed["input_mask"], axis=1), max_length)
        inputs = {name: parsed[name][:, :width] for name in ("input_word_ids", "input_mask", "input_type_ids")}
        return {
            **inputs,
            "masked_lm_positions": parsed["masked_lm_positions"],
            "masked_lm_labels": tf.where(weights > 0, parsed["masked_lm_ids"], NO_LABEL),
            "next_sentence_labels": parsed["next_sentence_labels"],
        }

    return decode


def _width(lengths: tf.Tensor, max_length: int) -> tf.Tensor:
    """Same as `pocketbert_runtime.rows.bucketed`, in the graph."""
    longest = tf.reduce_max(lengths)
    return tf.minimum(-(-longest // BUCKET_MULTIPLE) * BUCKET_MULTIPLE, max_length)


def _with_special(word_ids: np.ndarray, pair: SentencePair, tokenizer: VocabularyFacts) -> tuple[np.ndarray, int]:
    """Returns an example's ids and its first segment's length, with special tokens."""
    first = word_ids[pair.first_begin : pair.first_end]
    second = word_ids[pair.second_begin : pair.second_end]
    first_length = len(first) + 2
    ids = np.empty(len(first) + len(second) + SPECIAL_TOKENS, np.int32)
    ids[0] = tokenizer.cls_token_id
    ids[1 : first_length - 1] = first
    ids[first_length - 1] = ids[-1] = tokenizer.sep_token_id
    ids[first_length:-1] = second
    return ids, first_length


def _serialized(integers: Mapping[str, Sequence[int]], floats: Mapping[str, Sequence[float]] = {}) -> bytes:  # noqa: B006
    example = tf.train.Example()
    features = example.features.feature
    for name, values in integers.items():
        features[name].int64_list.value.extend(values)
    for name, numbers in floats.items():
        features[name].float_list.value.extend(numbers)
    # Otherwise the order of features may differ between processes.
    return example.SerializeToString(deterministic=True)
