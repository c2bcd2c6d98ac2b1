"""Tokenizers that call the runtime's: byte-level BPE and unigram."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.tokenizers.base import Tokenizer
from pocketbert.tokenizers.framing import packing
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD


class PythonCalls:
    """Calls a runtime tokenizer for texts in tensors, in `tf.function` and `tf.data` as a `tf.numpy_function`.

    Args:
      core: the tokenizer.
    Attributes:
      frame: special tokens around texts.
    """

    def __init__(self, core: TextTokenizer) -> None:
        self._core, self.frame = core, core.frame

    def _encode(
        self, texts: tf.Tensor, pairs: tf.Tensor | None, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        with tf.device("CPU:0"):
            if pairs is None:
                return packing(self.frame, pairs=False)(self._tokenize(texts), max_length, pad_to)
            tf.debugging.assert_equal(tf.size(texts), tf.size(pairs), "each text must have a pair")
            first, second = self._tokenize(texts), self._tokenize(pairs)
            return packing(self.frame, pairs=True)(first, second, max_length, pad_to)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._ragged(self._flat_ids, texts, 1)[0]

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        ids, starts, ends = self._ragged(self._flat_tokens, texts, 3)
        return ids, starts, ends

    def _ragged(self, function: Any, texts: tf.Tensor, count: int) -> list[tf.RaggedTensor]:
        """Calls a function on string arrays; it returns row splits and `count` value arrays."""
        with tf.device("CPU:0"):
            types = [tf.int64] + [tf.int32] * count
            arrays = tf.numpy_function(function, [texts], types, stateful=False)
            splits, *values = (tf.ensure_shape(array, [None]) for array in arrays)
            return [tf.RaggedTensor.from_row_splits(value, splits, validate=False) for value in values]

    def _flat_ids(self, texts: np.ndarray) -> list[np.ndarray]:
        rows = self._core.id_rows(_decoded(texts))
        splits = np.cumsum([0, *map(len, rows)], dtype=np.int64)
        return [splits, np.fromiter(itertools.chain.from_iterable(rows), np.int32)]

    def _flat_tokens(self, texts: np.ndarray) -> list[np.ndarray]:
        tokens = self._core.tokens(_decoded(texts))
        return [tokens.splits, tokens.ids, tokens.starts, tokens.ends]


class PythonTokenizer(PythonCalls, Tokenizer):
    """Calls Python, so no SavedModel contains it. Invalid UTF-8 bytes and lone surrogates become one U+FFFD each."""

    def __init__(self, name: str, core: TextTokenizer, special_tokens_in_text: SpecialTokensInText) -> None:
        Tokenizer.__init__(self, name, special_tokens_in_text)
        PythonCalls.__init__(self, core)
        self.vocabulary, self.vocab_size = core.vocabulary, core.vocab_size
        ids = {name: core.special_ids[token] for name, token in core.vocabulary.rules.special_names.items()}
        self.cls_token_id, self.pad_token_id, self.sep_token_id = ids["cls_token"], ids["pad_token"], ids["sep_token"]
        self.unk_token_id, self.mask_token_id = ids["unk_token"], ids["mask_token"]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickles a tokenizer as its arguments. Other processes need the files at the same paths."""
        options: dict[str, Any] = {
            "special_tokens_in_text": self.special_tokens_in_text,
            "added_tokens": self.vocabulary.added,
        }
        if self.vocabulary.layout != XLM_R:
            options["layout"] = self.vocabulary.layout
        if self.vocabulary.keeps_space:
            options["keeps_space"] = True
        if self.vocabulary.add_prefix_space:
            options["add_prefix_space"] = True
        if self.vocabulary.truncation != HEAD:
            options["truncation"] = self.vocabulary.truncation
        return functools.partial(type(self), **options), self.vocabulary.files


def _decoded(texts: np.ndarray) -> list[str]:
    return [bytes(text).decode("utf-8", "replace") for text in texts]
