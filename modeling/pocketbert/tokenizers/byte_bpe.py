"""RoBERTa's tokenizer: byte-level BPE for texts in tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pocketbert.tokenizers.library import byte_bpe
from pocketbert.tokenizers.python_tokenizer import PythonTokenizer
from pocketbert_runtime.tokenizers.added_tokens import AddedToken
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.truncation import HEAD
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class ByteBPETokenizer(PythonTokenizer):
    """Byte-level BPE with the results of transformers' `RobertaTokenizerFast`.

    Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019), with Hugging Face's `tokenizers` and
    `trim_offsets=True`. Inputs are `<s> text </s>` or `<s> text </s></s> pair </s>`; all segments are 0.

    Any text is valid, and no token is unknown: a vocabulary has all 256 bytes. Spans exclude the white space before a
    token; a token with spaces only has an empty span. A token within a character spans the character. It runs eagerly,
    in `tf.function` and in `tf.data`, but not in a SavedModel. Invalid UTF-8 bytes and lone surrogates are U+FFFD, one
    code point each.

    Args:
      vocab_path: a vocab.json: token → id, including <s>, <pad>, </s>, <unk> and <mask>.
      merges_path: the same model's merges.txt.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where `<mask>` also takes the white space before it; "text" for ordinary characters, as
        with transformers' `split_special_tokens=True`. Use "text" for untrusted text.
      added_tokens: tokens to find in a text before it is split.
      add_prefix_space: put a space before a text without one, and after each token found before the split, so that a
        first word has the same tokens as a later one.
      truncation: "head", "tail", "head-tail:N" or "only-second"; see `pocketbert_runtime.tokenizers.truncation`.
      layout: `modernbert` for ModernBERT's special tokens, which may be added, and texts in Unicode's form C.
    Attributes:
      vocabulary: the files.
      vocab_size: number of tokens.
      pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id: the special tokens' ids.
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
        layout: str = XLM_R,
    ) -> None:
        vocabulary = Vocabulary(
            path=Path(vocab_path),
            merges=Path(merges_path),
            kind="byte_bpe",
            added=tuple(added_tokens),
            add_prefix_space=add_prefix_space,
            truncation=truncation,
            layout=layout,
        )
        core = byte_bpe(vocabulary, special_tokens_in_text)
        super().__init__("byte_bpe_tokenizer", core, special_tokens_in_text)


def open_vocabulary(vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText) -> ByteBPETokenizer:
    """Makes a vocabulary's tokenizer; raises `UserError` if a file is invalid."""
    assert vocabulary.merges is not None
    return ByteBPETokenizer(
        vocabulary.path,
        vocabulary.merges,
        special_tokens_in_text,
        added_tokens=vocabulary.added,
        add_prefix_space=vocabulary.add_prefix_space,
        truncation=vocabulary.truncation,
        layout=vocabulary.layout,
    )


def write_kept(vocabulary: Vocabulary, kept_ids: Sequence[int], paths: Sequence[Path]) -> None:
    """Writes the files with some of a vocabulary's tokens, by ascending id; see `trimming.write_trimmed`."""
    files = vocabulary.byte_bpe
    tokens = [files.tokens[position] for position in kept_ids if position < len(files.tokens)]
    token_set = {*tokens}
    merges = [(left, right) for left, right in files.merges if {left, right, left + right} <= token_set]
    ids = {token: position for position, token in enumerate(tokens)}
    paths[0].write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    paths[1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
