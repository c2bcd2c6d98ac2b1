"""A sentencepiece model with XLM-R's tokens and scores; the data has these, but no sentencepiece.bpe.model.

Its normalizer is `nmt_nfkc`, whose character map differs from XLM-R's own in a few hundred code points.
"""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def toy_model(size: int = 300) -> bytes:
    """A small sentencepiece model with the normalization of XLM-R's."""
    import sentencepiece

    draw = random.Random(7)
    words = ["".join(draw.choice("abcdeéf한日ก") for _ in range(draw.randint(1, 6))) for _ in range(3000)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(" ".join(draw.choices(words, k=8)) for _ in range(2000)),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


def _fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Number, value and all bytes of each field of a protocol buffer."""

    def varint(offset: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[offset]
            value |= (byte & 0x7F) << shift
            offset, shift = offset + 1, shift + 7
            if byte < 0x80:
                return value, offset

    offset = 0
    while offset < len(message):
        start = offset
        tag, offset = varint(offset)
        if tag & 7 == 2:
            length, offset = varint(offset)
            value: Any = message[offset : offset + length]
            offset += length
        elif tag & 7 == 5:
            value, offset = message[offset : offset + 4], offset + 4
        else:
            value, offset = varint(offset)
        yield tag >> 3, value, message[start:offset]


def _length(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size])


def xlmr_model(shared: Path, toy: bytes) -> bytes:
    """XLM-R's tokens and scores with the rest of a toy model: the data has no sentencepiece.bpe.model."""
    parts = [raw for number, _, raw in _fields(toy) if number == 1][:3]
    for line in (shared / "data/vocab/xlm_roberta_base.pieces.tsv").read_text(encoding="utf-8").split("\n")[4:]:
        _, token, score = line.split("\t") if line else ("", "<mask>", "")
        if token != "<mask>":
            name = token.encode()
            message = b"\x0a" + _length(len(name)) + name + b"\x15" + struct.pack("<f", float(score))
            parts.append(b"\x0a" + _length(len(message)) + message)
    return b"".join(parts + [raw for number, _, raw in _fields(toy) if number != 1])
