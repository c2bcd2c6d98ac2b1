"""Encodings of vectors in a teacher cache: bits written by hand, round trips and sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pocketbert.data.teacher_cache.encodings import decode, encode, vector_bytes
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.errors import UserError

GIB = 2**30
# MNLI's training examples.
EXAMPLES = 392_702


def test_elias_fano_bits_match_the_definition() -> None:
    # 20 / 3 leaves 2 low bits: 5 = 1·4 + 1, 6 = 1·4 + 2, 19 = 4·4 + 3.
    low = "01 10 11".split()
    # One 1 per index, at its high part plus its rank: 1, 2 and 6 of 3 + 19 // 4 + 1 places.
    high = "01100010"
    bits = "".join(pair[::-1] for pair in low) + high
    expected = [int(bits[start : start + 8][::-1], 2) for start in range(0, len(bits), 8)]
    encoded = encode(np.array([[5, 6, 19]]), "elias-fano", "uint8", 20)
    assert encoded.tolist() == [expected] and len(expected) == vector_bytes("elias-fano", "uint8", 3, 20)


def test_elias_fano_follows_its_definition_at_every_size() -> None:
    """The low bits of each index, log2(limit / size) rounded down; then, for each high part, its ones and a zero."""
    for limit in range(1, 70):
        for size in range(1, limit + 1):
            low = math.floor(math.log2(limit / size))
            parts = {index // 2**low for index in range(limit)}
            last = range(limit - size, limit)
            bits = "".join(f"{index % 2**low:0{low}b}"[::-1] for index in last if low)
            bits += "".join("1" * sum(index // 2**low == part for index in last) + "0" for part in sorted(parts))
            expected = [int(bits[start : start + 8][::-1], 2) for start in range(0, len(bits), 8)]
            assert vector_bytes("elias-fano", "uint8", size, limit) == len(expected), (size, limit)
            content = encode(np.array([last]), "elias-fano", "uint8", limit)
            assert content.tolist() == [expected], (size, limit)
            assert decode(content, "elias-fano", "uint8", size, limit).tolist() == [[*last]]


@pytest.mark.parametrize("encoding", ["bits", "elias-fano"])
@pytest.mark.parametrize(("size", "limit"), [(77, 768), (1, 1), (1, 300), (13, 13), (7, 30), (255, 256), (9, 257)])
def test_index_sets_round_trip(encoding: str, size: int, limit: int) -> None:
    random = np.random.default_rng(size)
    sets = np.stack([np.sort(random.permutation(limit)[:size]) for _ in range(15)]).reshape(3, 5, size)
    content = encode(sets, encoding, "uint16", limit)
    assert content.shape == (3, 5, vector_bytes(encoding, "uint16", size, limit))
    np.testing.assert_array_equal(decode(content, encoding, "uint16", size, limit), sets)


def test_wrong_number_of_bits_is_refused() -> None:
    content = encode(np.array([[2, 5]]), "bits", "uint8", 11)
    with pytest.raises(UserError, match="bits vectors must have 3 indices each; received 2 in 1"):
        decode(content, "bits", "uint8", 3, 11)


def test_scaled_error_is_half_a_step() -> None:
    values = np.random.default_rng(3).standard_normal((5, 7, 33)).astype(np.float32) * 4
    values[2] = 0.0
    decoded = decode(encode(values, "scaled", "int8"), "scaled", "int8", 33)
    step = np.abs(values).max(-1, keepdims=True) / 127
    # Half a step, and the float16 rounding of the scale (2^-11) on 127 steps.
    assert (np.abs(decoded - values) <= step * (0.5 + 127 * 2.0**-11)).all()
    assert decoded.dtype == np.float32 and not decoded[2].any()


@pytest.mark.parametrize(
    "changes",
    [
        {"encoding": "scaled"},
        {"dtype": "int8"},
        {"encoding": "bits", "limit": 9},
        {"encoding": "bits", "dtype": "uint8"},
        {"encoding": "elias-fano", "dtype": "uint8", "limit": 6},
        {"encoding": "bits", "dtype": "uint8", "limit": 9, "shape": (7, None)},
        {"limit": 9},
    ],
)
def test_encoding_must_fit_the_target(changes: dict[str, object]) -> None:
    with pytest.raises(UserError, match="the encoding of 'kept' must fit its type and shape"):
        TargetSpec(**{"name": "kept", "shape": (3, 7), "dtype": "float16", **changes})  # type: ignore[arg-type]


def test_unknown_encoding_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="the encoding of 'kept' must be one of plain, .*; received 'huffman'; .*newer"):
        TargetSpec(name="kept", shape=(3, 7), dtype="uint8", encoding="huffman")


def gib(*targets: TargetSpec) -> float:
    return int(record_bytes(targets, np.ones(EXAMPLES, int)).sum()) / GIB


@pytest.mark.parametrize(
    ("layers", "tokens", "width", "values", "masks"),
    [(1, 9, 77, 1.0, 2.5), (5, 2, 230, 3.4, 2.8), (3, 8, 154, 5.4, 6.8)],
)
def test_sizes_match_table_3(layers: int, tokens: int, width: int, values: float, masks: float) -> None:
    """Float32 values, and a byte per activation for the masks."""
    rows = layers * tokens
    assert gib(TargetSpec(name="values", shape=(rows, width), dtype="float32")) == pytest.approx(values, abs=0.1)
    assert gib(TargetSpec(name="masks", shape=(rows, 768), dtype="uint8")) == pytest.approx(masks, abs=0.1)


def test_full_set_matches_table_3() -> None:
    # 7 layers of 128 tokens.
    assert gib(TargetSpec(name="values", shape=(896, 768), dtype="float32")) == pytest.approx(1011, rel=0.005)


@pytest.mark.parametrize(
    ("dtype", "masks", "expected", "most"),
    [
        ("int8", "bits", 0.582, 0.6),
        ("int8", "elias-fano", 0.433, 0.45),
        ("float16", "bits", 0.83, None),
        ("float16", "elias-fano", 0.68, None),
    ],
)
def test_mnli_fits_its_targets(dtype: str, masks: str, expected: float, most: float | None) -> None:
    """(1, 9, 0.1) with positions and the predictions of three classes."""
    size = gib(
        TargetSpec(name="values_1", shape=(9, 77), dtype=dtype, encoding="scaled" if dtype == "int8" else "plain"),
        TargetSpec(name="widths_1", shape=(9, 77), dtype="uint16", encoding=masks, limit=768),
        TargetSpec(name="positions_1", shape=(9,), dtype="uint8"),
        TargetSpec(name="logits", shape=(3,), dtype="float16"),
    )
    assert size == pytest.approx(expected, abs=0.005)
    # Two stages have a file with the lengths, int32.
    assert most is None or size + 2 * 4 * EXAMPLES / GIB <= most
