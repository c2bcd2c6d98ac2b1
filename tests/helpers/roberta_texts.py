"""Texts and files for the tests of the Java tokenizers of RoBERTa and XLM-R."""

from __future__ import annotations

import csv
import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from awkward_texts import awkward_texts

from studies.trimming.xlm_r_tokenizer import SPECIAL, toy_model, xlmr_model

__all__ = ["SPECIAL", "toy_model", "xlmr_model"]

CODE_POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
_PARTS = [
    *SPECIAL, " <mask>", "  <mask> ", "\u3000<mask>", "<s", "mask>", "'s", "'re", "'LL", "''ve", "don't", "I'll", "   ",
    "\t\n", "\r\n ", " \u00a0 ", "\u2581", "\u2581\u2581a", "e\u0301\u0323", "ﬁne", "½", "①②", "\u1e9b\u0323", "한국어",
    "\u1112\u1161\u11ab", "हिन्दी", "ไทย", "日本語です", "👩\u200d👩\u200d👧", "\u200b", "\ufeff", "\x00", "\x85",
    "\u00ad", "٣٤", "Ⅷ", "a" * 300, "ab" * 40, "!" * 70, "ｶﾞ", "\ufdfa", "㌔", "\u0344", "…",
]  # fmt: skip


def everything() -> list[str]:
    """All code points between two letters, the assigned ones also alone; 64 in each text."""
    rows = (CODE_POINTS[start : start + 64] for start in range(0, len(CODE_POINTS), 64))
    return [" ".join(_shown(chr(code)) for code in row) for row in rows]


def _shown(character: str) -> str:
    return f"a{character}b" if unicodedata.category(character) in ("Cn", "Co") else f"a{character}b {character}"


def hard_texts(words: list[str], count: int, seed: int) -> list[str]:
    """Generated texts, joined with special tokens, contractions and spaces of RoBERTa and XLM-R."""
    draw = random.Random(seed)
    texts = awkward_texts(count, words, seed)

    def joined(text: str) -> str:
        return draw.choice(_PARTS).join([text[: draw.randint(0, 30)], draw.choice(_PARTS), text])

    return [text if draw.random() < 0.4 else joined(text) for text in texts]


def xnli(shared: Path) -> list[str]:
    """A fourth of the 74,700 premises and hypotheses in all languages; a third of these once more, in NFD."""
    texts = list(_all_xnli(shared))[::4]
    assert len(texts) == 18_675
    return texts + [unicodedata.normalize("NFD", text) for text in texts[::3]]


def _all_xnli(shared: Path) -> Iterator[str]:
    files = sorted((shared / "data" / "xnli").glob("dev-*.tsv"))
    assert len(files) == 15
    for path in files:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                yield from row[:2]


def run(java: Any, files: Path, folder: Path, lines: Sequence[Any], special: str = "token") -> list[list[list[int]]]:
    """Results of the Java tokenizer for each line."""
    inputs, outputs = folder / "texts.jsonl", folder / "tokens.jsonl"
    inputs.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="ascii")
    java("org.pocketbert.tokenizer.RobertaTokenizeMain", files, special, inputs, outputs)
    return [json.loads(line) for line in outputs.read_text(encoding="ascii").splitlines()]
