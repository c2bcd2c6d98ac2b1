"""Thousands of difficult texts for tokenizers."""

from __future__ import annotations

import random

# Blocks that BERT's clean-up treats differently, the common ones listed more than once.
_BLOCKS = [
    *[(0x20, 0x7E)] * 8,
    *[(0xA0, 0x24F)] * 3,
    *[(0x300, 0x36F)] * 2,
    *[(0x4E00, 0x9FFF)] * 2,
    (0x00, 0x1F), (0x7F, 0x9F), (0x250, 0x2FF), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x5FF), (0x600, 0x6FF),
    (0x700, 0x8FF), (0x900, 0xDFF), (0xE00, 0xFFF), (0x1000, 0x10FF), (0x1100, 0x13FF), (0x1400, 0x17FF),
    (0x1800, 0x1BFF), (0x1C00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x23FF), (0x2400, 0x27FF),
    (0x2800, 0x2DFF), (0x2E00, 0x2EFF), (0x3000, 0x30FF), (0x3100, 0x33FF), (0x3400, 0x4DFF), (0xA000, 0xABFF),
    (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFFFF), (0x10000, 0x10FFF), (0x11000, 0x11FFF),
    (0x12000, 0x16FFF), (0x1B000, 0x1D0FF), (0x1D100, 0x1D3FF), (0x1D400, 0x1EFFF), (0x1F000, 0x1FFFF),
    (0x20000, 0x2FFFF), (0xE0000, 0xE01FF), (0xF0000, 0x10FFFF),
]  # fmt: skip

_PIECES = [
    "[SEP]", "[CLS]", "[MASK]", "[PAD]", "[UNK]", "[sep]", "[[SEP]]", "[SE", "P]", "[MASK", " [MASK] ", "[unused1]",
    "##ing", "un", "affable", "naïve", "İstanbul", "STRASSE", "ß", "ΣΑΣ", "don't", "...", "$9.99", "e\u0301\u0323",
    "\u1b44\u302e", "\U0001d165\u1b44", "\U0001d15e\u1baa\u0301", "\u0344", "ﬁ", "①", "\u200b", "\u00ad", "\ufeff",
    "\ufffd", "\u2028", "\u3000", "한국어", "ไทย", "हिन्दी", "中文", "日本語", "👩\u200d👩\u200d👧", "\u0301", " ", "  ",
    "\t", "\n", "\r\n", "\x00", "\x85", "\x0b", "-", "_", "^", "a" * 99, "b" * 100, "c" * 101, "д" * 60, "д" * 101,
    "é" * 100,
]  # fmt: skip


def awkward_texts(count: int, words: list[str], seed: int) -> list[str]:
    """`count` texts: words, special tokens, over-long words and random Unicode, mixed in random proportion.

    Args:
      count: how many.
      seed: same seed, same texts.
      words: whole tokens of the vocabulary, so that something is known.
    """
    draw = random.Random(seed)

    def character() -> str:
        while True:
            code = draw.randint(*draw.choice(_BLOCKS))
            if not 0xD800 <= code < 0xE000:
                return chr(code)

    texts = []
    for _ in range(count):
        word_share, special = draw.random(), draw.random() ** 2
        parts = []
        for _ in range(draw.randint(0, 24)):
            if draw.random() < word_share:
                word = draw.choice(words)
                parts.append(draw.choice([word, word.upper(), word.capitalize(), word + draw.choice(words)]))
                parts.append(draw.choice([" ", " ", " ", "", character()]))
            elif draw.random() < special:
                parts.append(draw.choice(_PIECES))
            else:
                parts.append("".join(character() for _ in range(draw.randint(1, 4))))
        texts.append("".join(parts))
    return texts
