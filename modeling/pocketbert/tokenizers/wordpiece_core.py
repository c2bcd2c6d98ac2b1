"""WordPiece for vocabularies with added tokens; the graph cannot find these."""

from __future__ import annotations

import tensorflow as tf

from pocketbert.tokenizers.python_tokenizer import PythonCalls


class WordPieceCore(PythonCalls):
    """Calls `added_wordpiece`'s tokenizer, and has the methods of `WordPieceGraph`."""

    def encode(self, texts: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._encode(texts, None, max_length, pad_to)

    def encode_pairs(
        self, texts: tf.Tensor, pairs: tf.Tensor, max_length: tf.Tensor, pad_to: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        return self._encode(texts, pairs, max_length, pad_to)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenize(texts)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        return self._tokenize_with_offsets(texts)
