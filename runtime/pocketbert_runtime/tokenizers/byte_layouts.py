"""Layouts for byte-level BPE: special tokens, and the form of texts. For a new layout, add a row to `_ROWS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pocketbert_runtime.tokenizers.layouts import XLM_R
from pocketbert_runtime.tokenizers.special_tokens import ROBERTA_SPECIAL_NAMES

if TYPE_CHECKING:
    from pocketbert_runtime.tokenizers.framing import Frame

MODERNBERT = "modernbert"


@dataclass(frozen=True, kw_only=True)
class ByteLayout:
    """A layout.

    Attributes:
      name: its name in `BYTE_LAYOUTS`, bundles and records.
      special_names: transformers' name, such as `sep_token` → special token.
      composes: whether texts are brought into Unicode's form C first.
      only_json: whether transformers reads such a tokenizer from tokenizer.json only. Special tokens may then be added
        ones behind the vocabulary.
      separators: number of tokens between two texts; segments are 0.
    """

    name: str
    special_names: Mapping[str, str]
    composes: bool = False
    only_json: bool = False
    separators: int = 1

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """All special tokens."""
        return tuple(dict.fromkeys(self.special_names.values()))

    @property
    def templates(self) -> dict[str, list[str]]:
        """Special tokens around one text, A, and two, A and B."""
        first, last = self.special_names["cls_token"], self.special_names["sep_token"]
        return {"single": [first, "A", last], "pair": [first, "A", *[last] * self.separators, "B", last]}

    def frame(self, ids: Mapping[str, int]) -> Frame:
        """Returns the special tokens around texts, from token ids."""
        # With NumPy, which the options of commands do without.
        from pocketbert_runtime.tokenizers.framing import Frame

        first, last, pad = (ids[self.special_names[name]] for name in ("cls_token", "sep_token", "pad_token"))
        return Frame(first=first, last=last, pad=pad, separators=self.separators, second_segment=0)


_ROWS = (
    # RoBERTa (Liu et al. 2019), the default. It has the name of unigram's default.
    ByteLayout(name=XLM_R, special_names=ROBERTA_SPECIAL_NAMES, separators=2),
    # ModernBERT (Warner et al. 2024): OLMo's vocabulary, with BERT's special tokens behind it.
    ByteLayout(
        name=MODERNBERT,
        special_names={
            "unk_token": "[UNK]",
            "sep_token": "[SEP]",
            "pad_token": "[PAD]",
            "cls_token": "[CLS]",
            "mask_token": "[MASK]",
        },
        composes=True,
        only_json=True,
    ),
)
BYTE_LAYOUTS: dict[str, ByteLayout] = {layout.name: layout for layout in _ROWS}
