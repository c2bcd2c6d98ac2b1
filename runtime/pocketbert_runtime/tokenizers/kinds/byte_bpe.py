"""Byte-level BPE, the kind of tokenizer in RoBERTa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.special_tokens import ROBERTA_SPECIAL_NAMES, ROBERTA_SPECIAL_TOKENS

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


class ByteBPERules(TokenizerRules):
    """Merges of bytes; a text is not normalized."""

    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        return vocabulary.byte_bpe.tokens

    def segmentation(self, vocabulary: Vocabulary) -> str:
        return f"{vocabulary.byte_bpe.merges!r}{vocabulary.prefix_option}"

    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE

        return ByteBPE(vocabulary)


RULES = ByteBPERules(
    files=("vocab.json", "merges.txt"),
    special_tokens=ROBERTA_SPECIAL_TOKENS,
    special_names=ROBERTA_SPECIAL_NAMES,
    json_type="BPE",
    classes=("Bart", "Longformer", "Roberta"),
    config_keys={"add_prefix_space": (False, True), "dropout": (0, 0.0), "use_regex": (True,)},
    tokens_are_bytes=True,
)
