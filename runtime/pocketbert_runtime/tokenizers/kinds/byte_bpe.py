"""Byte-level BPE, the kind of tokenizer in RoBERTa and ModernBERT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.byte_layouts import BYTE_LAYOUTS, ByteLayout
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.layouts import XLM_R

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.base import TextTokenizer
    from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class ByteBPERules(TokenizerRules):
    """Merges of bytes.

    Attributes:
      layout: special tokens, and the form of texts.
    """

    layout: ByteLayout

    def tokens(self, vocabulary: Vocabulary) -> Sequence[str]:
        return vocabulary.byte_bpe.tokens

    def segmentation(self, vocabulary: Vocabulary) -> str:
        name = "" if self.layout.name == XLM_R else f" {self.layout.name}"
        return f"{vocabulary.byte_bpe.merges!r}{vocabulary.prefix_option}{name}"

    def open(self, vocabulary: Vocabulary) -> TextTokenizer:
        from pocketbert_runtime.tokenizers.byte_bpe import ByteBPE

        return ByteBPE(vocabulary)


LAYOUT_RULES = {
    name: ByteBPERules(
        layout=layout,
        files=("vocab.json", "merges.txt"),
        special_tokens=layout.special_tokens,
        special_names=layout.special_names,
        special_behind=layout.only_json,
        json_type="BPE",
        classes=() if layout.only_json else ("Bart", "Longformer", "Roberta"),
        config_keys={"add_prefix_space": (False, True), "dropout": (0, 0.0), "use_regex": (True,)},
        tokens_are_bytes=True,
    )
    for name, layout in BYTE_LAYOUTS.items()
}
RULES = LAYOUT_RULES[XLM_R]
