"""Differences between transformers' slow and fast tokenizers: the table in docs/reference/tokenizer.md.

pytest -m slow -s tests/pocketbert/tokenizers/test_peers_differ.py      prints it
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

import pytest

import pocketbert as pb

SURROGATES = range(0xD800, 0xE000)


def _reason(character: str, lowercase: bool) -> str:
    category = unicodedata.category(character)
    if 0x2B820 <= ord(character) <= 0x2B91F:
        return "ideograph that the fast one does not set apart"
    if category == "Cn":
        return "unassigned in Unicode 14"
    if not lowercase and unicodedata.normalize("NFC", "a" + character) != "a" + character:
        return "changed by NFC"
    if category[0] == "P":
        return "punctuation younger than Unicode 8"
    if category == "Cf":
        return "format character younger than Unicode 8"
    if category == "Mn" and ord(character) != 0x111C9:
        return "nonspacing mark younger than Unicode 8"
    return "property changed since Unicode 8"


_ALWAYS = {
    "unassigned in Unicode 14": 829_834,
    "ideograph that the fast one does not set apart": 256,
    "punctuation younger than Unicode 8": 104,
    "format character younger than Unicode 8": 13,
}
EXPECTED = {
    True: {
        **_ALWAYS,
        "nonspacing mark younger than Unicode 8": 383,
        # U+166D, U+1734, U+111C9, U+11938
        "property changed since Unicode 8": 4,
    },
    False: {
        **_ALWAYS,
        "changed by NFC": 1_134,
        # U+166D, U+111C9
        "property changed since Unicode 8": 2,
    },
}

EXAMPLES = [
    ("cased", "cafe\u0301", ["café"], ["cafe", "##\u0301"]),
    ("uncased", "warner\u0378", ["warner"], ["[UNK]"]),
    ("uncased", "un\U0001cf00able", ["unable"], ["[UNK]"]),
    ("uncased", "a\u2e4eb", ["a", "[UNK]", "b"], ["[UNK]"]),
    ("uncased", "a\U0002b820b", ["a", "[UNK]", "b"], ["[UNK]"]),
    ("uncased", "a\u0890b", ["ab"], ["[UNK]"]),
    ("uncased", "a\u166db", ["[UNK]"], ["a", "[UNK]", "b"]),
]


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_code_points(lowercase: bool) -> None:
    from tokenizers import normalizers, pre_tokenizers
    from transformers.models.bert.tokenization_bert import BasicTokenizer

    slow = BasicTokenizer(do_lower_case=lowercase)
    normalizer, splitter = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    differ: Counter[str] = Counter()
    for code in range(0x110000):
        if code in SURROGATES:
            continue
        text = f"a{chr(code)}b"
        fast_words = [word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))]
        if slow.tokenize(text) != fast_words:
            differ[_reason(chr(code), lowercase)] += 1
    for reason, count in differ.most_common():
        print(f"{'uncased' if lowercase else 'cased'}: {count:7,} {reason}")
    assert dict(differ) == EXPECTED[lowercase]


@pytest.mark.data
def test_examples(shared: Path) -> None:
    """We follow the fast one."""
    from transformers import BertTokenizer, BertTokenizerFast

    for name in ("cased", "uncased"):
        path = shared / "data" / "vocab" / f"bert-base-{name}.vocab.txt"
        options = {"do_lower_case": name == "uncased"}
        slow, fast = BertTokenizer(str(path), **options), BertTokenizerFast(str(path), **options)
        word_piece_tokenizer = pb.WordPieceTokenizer(path, lowercase=name == "uncased")
        for _, text, slow_pieces, fast_pieces in (example for example in EXAMPLES if example[0] == name):
            assert slow.tokenize(text) == slow_pieces, ascii(text)
            assert fast.tokenize(text) == fast_pieces, ascii(text)
            assert fast.convert_ids_to_tokens(word_piece_tokenizer.tokenize(text).to_list()[0]) == fast_pieces, ascii(
                text
            )
