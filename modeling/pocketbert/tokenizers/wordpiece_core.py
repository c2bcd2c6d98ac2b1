"""WordPiece by the library `tokenizers`, for vocabularies with added tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

from pocketbert.configs import TokenizerConfig
from pocketbert.tokenizers.added_tokens import add_to_core
from pocketbert.tokenizers.python_tokenizer import PythonCalls, tokens_of
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.base import Tokens
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import CLS, MAX_CHARACTERS_PER_WORD, PAD, SEP, UNK


class WordPieceCore(PythonCalls):
    """Has the methods of `WordPieceGraph`.

    Args:
      ids: token → id of the vocabulary.
      config: normalization of letters, accents and ideographs.
      found: all tokens to find in a text, special tokens included.
      special: whether special tokens in a text are tokens, or ordinary text.
    """

    def __init__(
        self, ids: Mapping[str, int], config: TokenizerConfig, found: Sequence[AddedToken], *, special: bool
    ) -> None:
        from tokenizers import Tokenizer
        from tokenizers.models import WordPiece
        from tokenizers.normalizers import BertNormalizer
        from tokenizers.pre_tokenizers import BertPreTokenizer

        self.frame = Frame(first=ids[CLS], last=ids[SEP], pad=ids[PAD])
        self._core = Tokenizer(
            WordPiece(dict(ids), unk_token=UNK, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD)  # type: ignore[call-arg]
        )
        self._core.normalizer = BertNormalizer(  # type: ignore[assignment]
            clean_text=True,
            handle_chinese_chars=config.tokenize_chinese_chars,
            strip_accents=config.strip_accents,
            lowercase=config.lowercase,
        )
        self._core.pre_tokenizer = BertPreTokenizer()  # type: ignore[assignment]
        add_to_core(self._core, found, special=special)

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

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        return (encoding.ids for encoding in self._core.encode_batch_fast(texts, add_special_tokens=False))

    def _tokens_of(self, texts: list[str]) -> Iterable[Tokens]:
        return tokens_of(self._core.encode_batch(texts, add_special_tokens=False))
