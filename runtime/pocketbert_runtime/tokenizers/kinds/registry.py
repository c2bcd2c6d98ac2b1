"""The table of tokenizers: kind → rules. Each row in `TOKENIZER_KINDS` has a file with its name in this folder.

Unigram has rules for each layout; its row in the table has those for XLM-R's.
"""

from __future__ import annotations

import importlib

from pocketbert_runtime.tokenizer_config import TOKENIZER_KINDS, UNIGRAM_KIND, TokenizerKind
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules
from pocketbert_runtime.tokenizers.kinds.unigram import LAYOUT_RULES

TOKENIZER_RULES: dict[TokenizerKind, TokenizerRules] = {
    kind: importlib.import_module(f"pocketbert_runtime.tokenizers.kinds.{kind}").RULES for kind in TOKENIZER_KINDS
}
# All rules with their kinds, among them one row for each layout.
ALL_RULES: tuple[tuple[TokenizerKind, TokenizerRules], ...] = tuple(
    (kind, rules)
    for kind, row in TOKENIZER_RULES.items()
    for rules in (LAYOUT_RULES.values() if kind == UNIGRAM_KIND else [row])
)


def rules_of(kind: TokenizerKind, layout: str) -> TokenizerRules:
    """Returns a kind's rules; `layout` is a name in `LAYOUTS` that counts for unigram."""
    return LAYOUT_RULES[layout] if kind == UNIGRAM_KIND else TOKENIZER_RULES[kind]
