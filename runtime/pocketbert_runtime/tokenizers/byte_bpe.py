"""RoBERTa's tokenizer: byte-level BPE by the library `tokenizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketbert_runtime.tokenizers.added_token_search import add_to_core
from pocketbert_runtime.tokenizers.added_tokens import found_in_text
from pocketbert_runtime.tokenizers.base import SpecialTokensInText
from pocketbert_runtime.tokenizers.extras import TOKENIZERS, needed
from pocketbert_runtime.tokenizers.framing import roberta_frame
from pocketbert_runtime.tokenizers.library import LibraryTokenizer
from pocketbert_runtime.tokenizers.special_tokens import BOS, EOS
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class ByteBPE(LibraryTokenizer):
    """Byte-level BPE with the results of transformers' `RobertaTokenizerFast`.

    Source: RoBERTa (Liu et al. 2019) and GPT-2 (Radford et al. 2019), with Hugging Face's `tokenizers` and
    `trim_offsets=True`. Inputs are `<s> text </s>` or `<s> text </s></s> pair </s>`; all segments are 0.

    Any text is valid, and no token is unknown: a vocabulary has all 256 bytes. Spans exclude the white space before a
    token; a token with spaces only has an empty span. A token within a character spans the character. Lone surrogates
    are U+FFFD, one code point each.

    Args:
      vocabulary: files and options.
      special_tokens_in_text: meaning of a literal `</s>` or similar in a text: "token" for the special token, as in
        transformers by default, where `<mask>` also takes the white space before it; "text" for ordinary characters, as
        with transformers' `split_special_tokens=True`.
    Raises:
      UserError: a file is invalid, the merges contradict the vocabulary, or the library is not installed.
    """

    def __init__(self, vocabulary: Vocabulary, special_tokens_in_text: SpecialTokensInText = "token") -> None:
        super().__init__(vocabulary, roberta_frame)
        self._core = _core(self.ids, vocabulary.byte_bpe.merges, vocabulary.add_prefix_space)
        in_text = found_in_text("byte_bpe", self.ids, vocabulary.added)
        add_to_core(self._core, in_text, special=special_tokens_in_text == "token")


def _core(ids: dict[str, int], merges: Sequence[tuple[str, str]], add_prefix_space: bool) -> Any:
    """RoBERTa's tokenizer in transformers, without its added tokens."""
    with needed("byte-level BPE", TOKENIZERS):
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
