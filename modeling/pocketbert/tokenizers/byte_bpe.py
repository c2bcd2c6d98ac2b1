"""RoBERTa's tokenizer: byte-level BPE by the library `tokenizers`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import raise_if_any
from pocketbert.tokenizers.added_tokens import add_to_core
from pocketbert.tokenizers.base import SpecialTokensInText
from pocketbert.tokenizers.python_tokenizer import PythonTokenizer, tokens_of
from pocketbert_runtime.tokenizers.added_tokens import AddedToken, added_problems, appended, found_in_text
from pocketbert_runtime.tokenizers.base import Tokens
from pocketbert_runtime.tokenizers.byte_bpe_files import read_byte_bpe
from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class ByteBPETokenizer(PythonTokenizer):
    """Byte-level BPE with the results of transformers' `RobertaTokenizerFast`.

    Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019). The work is done by Hugging Face's `tokenizers`
    with `trim_offsets=True`. Inputs are `<s> text </s>` or `<s> text </s></s> pair </s>`,
    and all segments are 0.

    Any text is valid, and no token is unknown: a vocabulary has all 256 bytes. Spans exclude the white space in front
    of a token. A token that is a part of a character spans the character. A token of spaces only has an empty span.
    It runs eagerly, in `tf.function` and in `tf.data`, but not in a SavedModel. Invalid UTF-8 bytes and lone surrogates
    are U+FFFD, one code point each.

    Args:
      vocab_path: a vocab.json: token → id, including <s>, <pad>, </s>, <unk> and <mask>.
      merges_path: the merges.txt of the same model.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where `<mask>` also takes the white space before it; "text" for ordinary characters, as
        with transformers' `split_special_tokens=True`. Use "text" for untrusted text.
      added_tokens: tokens to find in a text before it is split.
      add_prefix_space: put a space in front of a text that begins without one, so that its first word has the same
        tokens as a later one; also after each token that is found before the split.
      truncation: how longer texts are cut: "head", "tail", "head-tail:N" or "only-second"; see
        `pocketbert_runtime.tokenizers.truncation`.

    Attributes:
      vocabulary: the files.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: ids of the special tokens.

    Raises:
      UserError: a file or an option is invalid, or the merges contradict the vocabulary. One error lists all problems.
    """

    def __init__(
        self,
        vocab_path: str | os.PathLike[str],
        merges_path: str | os.PathLike[str],
        special_tokens_in_text: SpecialTokensInText = "token",
        *,
        added_tokens: Sequence[AddedToken] = (),
        add_prefix_space: bool = False,
        truncation: str = HEAD,
    ) -> None:
        files = read_byte_bpe(vocab_path, merges_path)
        raise_if_any(added_problems(added_tokens, files.tokens), str(vocab_path))
        ids = {token: position for position, token in enumerate(files.tokens)}
        size = len(ids) + len(appended(added_tokens, len(ids)))
        super().__init__("byte_bpe_tokenizer", special_tokens_in_text, ids, size)
        self.vocabulary = Vocabulary(
            path=Path(vocab_path),
            merges=Path(merges_path),
            kind="byte_bpe",
            added=tuple(added_tokens),
            add_prefix_space=add_prefix_space,
            truncation=truncation,
        )
        self._core = _core(ids, files.merges, add_prefix_space)
        in_text = found_in_text("byte_bpe", ids, added_tokens)
        add_to_core(self._core, in_text, special=special_tokens_in_text == "token")

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        return (encoding.ids for encoding in self._core.encode_batch_fast(texts, add_special_tokens=False))

    def _tokens_of(self, texts: list[str]) -> Iterable[Tokens]:
        return tokens_of(self._core.encode_batch(texts, add_special_tokens=False))


def _core(ids: dict[str, int], merges: Sequence[tuple[str, str]], add_prefix_space: bool) -> Any:
    """The tokenizer that transformers makes for RoBERTa, without its added tokens."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.processors import RobertaProcessing

    core = Tokenizer(BPE(ids, list(merges)))
    core.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space, trim_offsets=True)
    core.post_processor = RobertaProcessing(
        (EOS, ids[EOS]), (BOS, ids[BOS]), trim_offsets=True, add_prefix_space=add_prefix_space
    )
    return core
