"""The normalization as a model for tensorflow-text's FastBertNormalizer: the fast path.

This operation maps each code point to a string; FastWordpieceTokenizer then splits the result by its ICU version's
categories. Our strings make this split give our words: spaces isolate a character, and a character outside all
vocabularies replaces one that it would isolate wrongly. Other characters are in `left_out` and take the slow path
(`pocketbert.tokenizers.words`). So do mark order and special tokens, as they are no maps from single code points.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import flatbuffers
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from pocketbert.tokenizers.bert_unicode import CODE_POINTS, IRREGULAR, PRIVATE_USE, Normalization, normalization
from pocketbert_runtime.tokenizers.bert_characters import DROPPED, ISOLATED, SPACE, WORD

# Darts-clone units, as in tensorflow-text's darts_clone_trie_wrapper.h: bits 10 to 30 are the distance to a node's
# children (exclusive or of the positions), bit 8 marks a value among them, bits 0 to 7 are the node's label.
_OFFSET_SHIFT = 10
_HAS_VALUE = 0x100
_VALUE = 0x80000000
_ROOT_BASE = 256
# UTF-8's continuation bytes are 64 labels, 0x80 and up.
_BLOCK = 64

# Values, as in fast_bert_normalizer.h: whether it differs from the code point, position in the pool, six bits length.
_IS_DIFFERENT = 0x40000000
_LENGTH_BITS = 6


class NormalizerModel(NamedTuple):
    """A model for FastBertNormalizer.

    Attributes:
      buffer: the flatbuffer.
      left_out: vocabulary characters that it cannot handle. Texts with one take the slow path, as do texts with
        private-use characters, special tokens or invalid UTF-8.
    """

    buffer: bytes
    left_out: str


def normalizer_model(
    lowercase: bool,
    vocabulary_characters: frozenset[str],
    absent: int,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> NormalizerModel:
    """Builds the model (0.3 s).

    Args:
      lowercase: see `normalization`.
      vocabulary_characters: all characters in tokens.
      absent: a private-use code point not among them.
      strip_accents: see `normalization`.
      tokenize_chinese_chars: see `normalization`. If False, texts with ideographs must take the slow path.
    """
    tables = normalization(lowercase, strip_accents, tokenize_chinese_chars)
    kind_there = _kinds_in_tensorflow_text()
    characters = {ord(vocabulary_character) for vocabulary_character in vocabulary_characters}
    has_order = (tables.combining[:CODE_POINTS] > 0) & (tables.kind[:CODE_POINTS] != DROPPED)
    left_out = characters.intersection(np.flatnonzero(has_order).tolist())
    strings: dict[int, str] = {}
    for code in _changed(tables, kind_there):
        entries = slice(tables.start[code], tables.start[code] + tables.count[code])
        text = ""
        for result, kind in zip(tables.code[entries].tolist(), tables.kind[entries].tolist(), strict=True):
            if kind == SPACE:
                text += " "
            elif kind == ISOLATED and kind_there[result] != ISOLATED:
                text += f" {chr(result if result in characters and kind_there[result] == WORD else absent)} "
            elif kind == WORD and kind_there[result] != WORD:
                if result in characters:
                    left_out.add(code)
                text += chr(absent)
            elif kind != DROPPED:
                text += chr(result)
        if text != chr(code):
            strings[code] = text
    return NormalizerModel(_flatbuffer(strings), "".join(map(chr, sorted(left_out))))


def _changed(tables: Normalization, kind_there: np.ndarray) -> list[int]:
    """Filters `_codes()`: only kept code points with the same kind there need no string."""
    codes = np.array(_codes())
    is_kept = (tables.count[codes] == 1) & (tables.start[codes] == codes)
    kind = tables.kind[codes]
    is_kept &= (kind == WORD) | (kind == ISOLATED)
    changed: list[int] = codes[~(is_kept & (kind == kind_there[codes]))].tolist()
    return changed


@functools.cache
def _codes() -> tuple[int, ...]:
    """Code points that may need a string; private use is left out, as it would make the trie five times as large."""
    return tuple(
        code
        for first, last in (*IRREGULAR, (0x2B820, 0x2B91F))
        for code in range(first, last + 1)
        if not any(low <= code <= high for low, high in PRIVATE_USE) and not 0xD800 <= code < 0xE000
    )


@functools.cache
def _kinds_in_tensorflow_text() -> np.ndarray:
    """`[code points]` int8: kinds in FastWordpieceTokenizer for `_codes()`; others as in `normalization`."""
    splitter = tf_text.FastWordpieceTokenizer(["[UNK]", "a", "##a"], token_out_type=tf.int32)
    with tf.device("CPU:0"):
        texts = tf.constant([f"a{chr(code)}a" for code in _codes()])
        counts = splitter.tokenize(texts).row_lengths().numpy()
    kinds = normalization(lowercase=False).kind[:CODE_POINTS].copy()
    kinds[list(_codes())] = np.select([counts == 2, counts == 3], [SPACE, ISOLATED], WORD)
    # "aaa" has three tokens because of the vocabulary.
    kinds[ord("a")] = WORD
    return kinds


def _flatbuffer(strings: dict[int, str]) -> bytes:
    pool = bytearray()
    places: dict[str, int] = {}
    values = {}
    for code, text in strings.items():
        encoded = text.encode("utf-8")
        if text not in places:
            places[text] = len(pool)
            pool += encoded
        values[code] = _IS_DIFFERENT | places[text] << _LENGTH_BITS | len(encoded)
    zero = values.pop(0, 0)
    builder = flatbuffers.Builder(1 << 20)
    trie = builder.CreateNumpyVector(_trie(values))
    texts = builder.CreateNumpyVector(np.frombuffer(bytes(pool), np.uint8))
    builder.StartObject(4)
    builder.PrependUOffsetTRelativeSlot(1, trie, 0)
    builder.PrependInt32Slot(2, zero, 0)
    builder.PrependUOffsetTRelativeSlot(3, texts, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _trie(values: dict[int, int]) -> np.ndarray:
    """Builds a double-array trie over the code points' UTF-8.

    The root's children have a block of 256 units. Children of other inner nodes are continuation bytes and have a block
    of 64. Values follow all blocks. Bases are unique, so no unit matches a wrong path.
    """
    units: dict[int, int] = {0: _ROOT_BASE << _OFFSET_SHIFT}
    bases: dict[bytes, int] = {b"": _ROOT_BASE}
    leaves = []
    for code, value in values.items():
        encoded = chr(code).encode("utf-8")
        for length in range(1, len(encoded)):
            prefix = encoded[:length]
            if prefix not in bases:
                position = bases[prefix[:-1]] ^ prefix[-1]
                bases[prefix] = _ROOT_BASE + 256 + (len(bases) - 1) * _BLOCK
                units[position] = (position ^ bases[prefix]) << _OFFSET_SHIFT | prefix[-1]
        leaves.append((bases[encoded[:-1]] ^ encoded[-1], encoded[-1], value))
    # A block is at most two blocks from its base.
    first_value = _ROOT_BASE + 256 + (len(bases) + 3) * _BLOCK
    value_places = {value: first_value + index for index, value in enumerate(sorted(set(values.values())))}
    for position, label, value in leaves:
        units[position] = (position ^ value_places[value]) << _OFFSET_SHIFT | _HAS_VALUE | label
    for value, position in value_places.items():
        units[position] = _VALUE | value
    trie = np.zeros(max(units) + 1, np.uint32)
    trie[list(units)] = np.array(list(units.values()), np.uint64).astype(np.uint32)
    return trie
