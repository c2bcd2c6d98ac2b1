"""The table of tokenizers: kind → rules. Each row in `TOKENIZER_KINDS` has a file with its name in this folder."""

from __future__ import annotations

import importlib

from pocketbert_runtime.tokenizer_config import TOKENIZER_KINDS, TokenizerKind
from pocketbert_runtime.tokenizers.kinds.rules import TokenizerRules

TOKENIZER_RULES: dict[TokenizerKind, TokenizerRules] = {
    kind: importlib.import_module(f"pocketbert_runtime.tokenizers.kinds.{kind}").RULES for kind in TOKENIZER_KINDS
}
