"""Texts and files for the tests of the Java tokenizers of RoBERTa and XLM-R."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
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


def hard_texts(awkward: Any, words: list[str], count: int, seed: int) -> list[str]:
    """Generated texts, joined with special tokens, contractions and spaces of RoBERTa and XLM-R."""
    draw = random.Random(seed)
    texts = awkward.awkward_texts(count, words, seed)

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
    given, found = folder / "texts.jsonl", folder / "tokens.jsonl"
    given.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="ascii")
    java("org.pocketbert.tokenizer.RobertaTokenizeMain", files, special, given, found)
    return [json.loads(line) for line in found.read_text(encoding="ascii").splitlines()]


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


def fields(message: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """Number, value and all bytes of each field of a protocol buffer."""

    def varint(place: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = message[place]
            value |= (byte & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if byte < 0x80:
                return value, place

    place = 0
    while place < len(message):
        start = place
        tag, place = varint(place)
        if tag & 7 == 2:
            length, place = varint(place)
            value: Any = message[place : place + length]
            place += length
        elif tag & 7 == 5:
            value, place = message[place : place + 4], place + 4
        else:
            value, place = varint(place)
        yield tag >> 3, value, message[start:place]


def _length(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size])


def xlmr_model(shared: Path, toy: bytes) -> bytes:
    """XLM-R's tokens and scores with the rest of a toy model: the data has no sentencepiece.bpe.model."""
    parts = [raw for number, _, raw in fields(toy) if number == 1][:3]
    for line in (shared / "data/vocab/xlm_roberta_base.pieces.tsv").read_text(encoding="utf-8").split("\n")[4:]:
        _, token, score = line.split("\t") if line else ("", "<mask>", "")
        if token != "<mask>":
            name = token.encode()
            message = b"\x0a" + _length(len(name)) + name + b"\x15" + struct.pack("<f", float(score))
            parts.append(b"\x0a" + _length(len(message)) + message)
    return b"".join(parts + [raw for number, _, raw in fields(toy) if number != 1])
