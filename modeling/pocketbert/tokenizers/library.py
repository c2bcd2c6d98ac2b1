"""Tokenizers for training by the library `tokenizers`: byte-level BPE, and WordPiece with added tokens.

The runtime has both in plain Python, with the same results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pocketbert_runtime.tokenizers.added_token_search import check_strings
from pocketbert_runtime.tokenizers.added_tokens import FLAGS, AddedToken, found_in_text
from pocketbert_runtime.tokenizers.base import SpecialTokensInText, TextTokenizer, Tokens, without_surrogates
from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE
from pocketbert_runtime.tokenizers.byte_layouts import BYTE_LAYOUTS
from pocketbert_runtime.tokenizers.framing import Frame
from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import CLS, MAX_CHARACTERS_PER_WORD, PAD, SEP, UNK


class LibraryTokenizer(TextTokenizer):
    """A tokenizer by the library. It refuses lone surrogates, so they are U+FFFD.

    Args:
      vocabulary: files and options.
      make_frame: the special tokens around texts, from token ids.
      make_core: makes the library's tokenizer without added tokens, from the vocabulary and token ids.
      special_tokens_in_text: whether special tokens in a text are tokens, or ordinary text.
    Raises:
      UserError: a file is invalid, or an added token contradicts it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        make_frame: Callable[[Mapping[str, int]], Frame],
        make_core: Callable[[Vocabulary, dict[str, int]], Any],
        special_tokens_in_text: SpecialTokensInText,
    ) -> None:
        super().__init__(vocabulary, make_frame)
        self._special_tokens_in_text: SpecialTokensInText = special_tokens_in_text
        self._core = make_core(vocabulary, dict(self.ids))
        in_text = found_in_text(vocabulary.rules, self.ids, vocabulary.added)
        _add_to_core(self._core, in_text, special=special_tokens_in_text == "token")

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._core.encode_batch_fast(without_surrogates(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        rows = []
        for encoding in self._core.encode_batch(without_surrogates(texts), add_special_tokens=False):
            starts, ends = zip(*encoding.offsets, strict=True) if encoding.offsets else ((), ())
            rows.append(Tokens(encoding.ids, starts, ends))
        return rows


class _ComposingTokenizer(LibraryTokenizer):
    """Byte-level BPE of texts in form C: ids by the library, tokens with offsets by the runtime.

    The library gives a composed character the span of its first part.
    """

    @functools.cached_property
    def _python(self) -> ByteBPE:
        return ByteBPE(self.vocabulary, self._special_tokens_in_text)

    def _tokens_of(self, texts: Sequence[str]) -> list[Tokens]:
        return self._python._tokens_of(texts)


def byte_bpe(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> LibraryTokenizer:
    """Makes RoBERTa's tokenizer; see `pocketbert_runtime.tokenizers.byte_bpe.ByteBPE`."""
    layout = BYTE_LAYOUTS[vocabulary.layout]
    kind = _ComposingTokenizer if layout.composes else LibraryTokenizer
    return kind(vocabulary, layout.frame, _byte_bpe_core, special_tokens_in_text)


def added_wordpiece(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> LibraryTokenizer:
    """Makes BERT's tokenizer for a vocabulary with added tokens."""
    return LibraryTokenizer(
        vocabulary,
        lambda ids: Frame(first=ids[CLS], last=ids[SEP], pad=ids[PAD]),
        _wordpiece_core,
        special_tokens_in_text,
    )


def _byte_bpe_core(vocabulary: Vocabulary, ids: dict[str, int]) -> Any:
    """RoBERTa's or ModernBERT's tokenizer in transformers, without its added tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.normalizers import NFC
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing

    core = Tokenizer(BPE(ids, list(vocabulary.byte_bpe.merges)))
    core.pre_tokenizer = ByteLevel(add_prefix_space=vocabulary.add_prefix_space, trim_offsets=True)
    if BYTE_LAYOUTS[vocabulary.layout].composes:
        core.normalizer = NFC()
        return core
    core.post_processor = RobertaProcessing(
        (EOS, ids[EOS]), (BOS, ids[BOS]), trim_offsets=True, add_prefix_space=vocabulary.add_prefix_space
    )
    return core


def _wordpiece_core(vocabulary: Vocabulary, ids: dict[str, int]) -> Any:
    """BERT's tokenizer in transformers, without its added tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    config = vocabulary.options
    core = Tokenizer(WordPiece(ids, unk_token=UNK, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD))  # type: ignore[call-arg]
    core.normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.tokenize_chinese_chars,
        strip_accents=config.strip_accents,
        lowercase=config.lowercase,
    )
    core.pre_tokenizer = BertPreTokenizer()
    return core


def _add_to_core(core: Any, tokens: Sequence[AddedToken], *, special: bool) -> None:
    """Adds all tokens to find to a tokenizer; see `LibraryTokenizer` for `special`."""
    from tokenizers import AddedToken as CoreToken

    core.encode_special_tokens = not special
    for normalized in (False, True):
        strings = [
            (core.normalizer.normalize_str(token.content) if normalized and core.normalizer else token.content, token)
            for token in tokens
            if token.normalized == normalized
        ]
        check_strings(strings)
    core.add_tokens(
        [CoreToken(token.content, **{flag: getattr(token, flag) for flag in FLAGS}) for token in _by_id(tokens, core)]
    )


def _by_id(tokens: Sequence[AddedToken], core: Any) -> list[AddedToken]:
    """Sorts tokens so that `core` gives new ones their ids."""
    size = core.get_vocab_size(with_added_tokens=False)
    in_table = [token for token in tokens if token.id < size]
    return [*in_table, *sorted((token for token in tokens if token.id >= size), key=lambda token: token.id)]
