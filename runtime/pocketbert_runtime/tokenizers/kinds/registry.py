"""The table of tokenizers: kind → rules. Each row in `TOKENIZER_KINDS` has a file with its name in this folder.

Unigram and byte-level BPE have rules for each layout; their rows in the table have those for XLM-R's and RoBERTa's.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from pocketbert_runtime.tokenizer_config import TOKENIZER_KINDS, TokenizerKind
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.layouts import XLM_R

_MODULES = {kind: importlib.import_module(f"pocketbert_runtime.tokenizers.kinds.{kind}") for kind in TOKENIZER_KINDS}
TOKENIZER_RULES: dict[TokenizerKind, TokenizerRules] = {kind: module.RULES for kind, module in _MODULES.items()}
_OF_LAYOUTS: dict[TokenizerKind, Mapping[str, TokenizerRules]] = {
    kind: module.LAYOUT_RULES for kind, module in _MODULES.items() if hasattr(module, "LAYOUT_RULES")
}
# All rules with their kinds, among them one row for each layout.
ALL_RULES: tuple[tuple[TokenizerKind, TokenizerRules], ...] = tuple(
    (kind, rules) for kind, row in TOKENIZER_RULES.items() for rules in _OF_LAYOUTS.get(kind, {XLM_R: row}).values()
)


def rules_of(kind: TokenizerKind, layout: str) -> TokenizerRules:
    """Returns a kind's rules; `layout` is one of `layouts_of`."""
    return _OF_LAYOUTS[kind][layout] if kind in _OF_LAYOUTS else TOKENIZER_RULES[kind]


def layouts_of(kind: TokenizerKind) -> tuple[str, ...]:
    """Returns the names of a kind's layouts; a kind without has the default's name."""
    return tuple(_OF_LAYOUTS[kind]) if kind in _OF_LAYOUTS else (XLM_R,)
