"""Texts and references for the tests of unigram's layouts."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from awkward_texts import awkward_texts
from tiny_tokenizers import LAYOUT_SENTENCES

from pocketbert_runtime.tokenizers.albert_text import is_newer
from pocketbert_runtime.tokenizers.layouts import LAYOUTS

PEERS = {
    "xlm_r": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "deberta": "DebertaV2Tokenizer",
}
WORDS = sorted({word for sentence in LAYOUT_SENTENCES for word in sentence.split()})
NUMBERS = ["1990, 5,9", "9,123,", "a9,b", "5,, 9", "²,", "٣,", "in 2,5,", "\u30001,"]
QUOTES = ["``a''", "'''", "```", "＇＇", "a 'b' ''c"]
layouts = pytest.mark.parametrize("layout", LAYOUTS)
_NAMES = {"SEP": "sep_token", "CLS": "cls_token", "MASK": "mask_token", "PAD": "pad_token", "UNK": "unk_token"}


def peer(path: Path, layout: str, **options: Any) -> Any:
    """Transformers' slow tokenizer."""
    import transformers

    return getattr(transformers, PEERS[layout])(str(path), **options)


def with_special(layout: str, text: str) -> str:
    """A text with the layout's special tokens instead of BERT's."""
    names = LAYOUTS[layout].special_names
    return re.sub(r"\[(SEP|CLS|MASK|PAD|UNK)\]", lambda match: names[_NAMES[match[1]]], text)


def hard_texts(layout: str, count: int, seed: int) -> list[str]:
    """Generated texts with the layout's special tokens.

    U+0085 is left out: the slow classes strip it before a mask. So are characters newer than `albert_text`'s rules.
    """
    texts = [
        "".join(
            character for character in with_special(layout, text) if character != "\x85" and not is_newer(character)
        )
        for text in awkward_texts(count, WORDS, seed)
    ]
    texts += [f"a{token}b {token} c" for token in LAYOUTS[layout].special_tokens]
    texts += [*LAYOUT_SENTENCES[:9], *NUMBERS, *QUOTES]
    return [*texts, *(unicodedata.normalize("NFD", text) for text in texts[:60])]
