"""Encodings for the vectors in a teacher cache: NumPy arrays to bytes and back. No TensorFlow.

A vector is a target's last axis. Every encoding has a fixed size, so an example stays one contiguous read:

- `plain`: the numbers, little-endian.
- `scaled`: int8 numbers and one float16 scale, max |x| / 127; for `int8`.
- `bits`: one bit per possible index, for strictly ascending indices below a limit.
- `elias-fano`: for the same indices. Each index is split: its low bits are stored as they are, its high bits as a one's
  place in a bit string (Elias 1974; Fano 1971). 77 of 768 indices take 51 bytes, a bit mask 96.
"""

from __future__ import annotations

import numpy as np

from pocketbert.errors import UserError

# All are little-endian in the file.
FLOAT_DTYPES: dict[str, np.dtype] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
INTEGER_DTYPES: dict[str, np.dtype] = {"uint8": np.dtype("u1"), "uint16": np.dtype("<u2")}
DTYPES = {**FLOAT_DTYPES, **INTEGER_DTYPES, "int8": np.dtype("i1")}
INDEX_ENCODINGS = ("bits", "elias-fano")
ENCODINGS = ("plain", "scaled", *INDEX_ENCODINGS)
_SCALE = FLOAT_DTYPES["float16"]
_LARGEST = 127


def vector_bytes(encoding: str, dtype: str, size: int, limit: int | None = None) -> int:
    """Returns one vector's size in bytes.

    Args:
      encoding: one of `ENCODINGS`.
      dtype: a key in `DTYPES`.
      size: numbers in the vector.
      limit: number of possible indices, for `INDEX_ENCODINGS`.
    """
    if encoding == "plain":
        return size * DTYPES[dtype].itemsize
    if encoding == "scaled":
        return size + _SCALE.itemsize
    assert limit is not None
    if encoding == "bits":
        return -(-limit // 8)
    low, high = _split(size, limit)
    return -(-(size * low + high) // 8)


def encode(values: np.ndarray, encoding: str, dtype: str, limit: int | None = None) -> np.ndarray:
    """Encodes vectors [..., n] as uint8 [..., bytes]; indices must ascend strictly and lie below the limit."""
    if encoding == "plain":
        plain = np.ascontiguousarray(values, DTYPES[dtype])
        return plain.view(np.uint8).reshape(*values.shape[:-1], values.shape[-1] * plain.itemsize)
    if encoding == "scaled":
        floats = np.asarray(values, np.float32)
        scales = (np.abs(floats).max(-1, keepdims=True, initial=0.0) / _LARGEST).astype(_SCALE)
        divisors = np.where(scales > 0, scales, 1).astype(np.float32)
        whole = np.clip(np.rint(floats / divisors), -_LARGEST, _LARGEST).astype(np.int8)
        return np.concatenate([whole.view(np.uint8), scales.view(np.uint8)], axis=-1)
    assert limit is not None
    rows = np.asarray(values, np.int64).reshape(-1, values.shape[-1])
    if encoding == "bits":
        bits = np.zeros((len(rows), limit), np.uint8)
        np.put_along_axis(bits, rows, 1, axis=1)
    else:
        size = rows.shape[1]
        low, high = _split(size, limit)
        bits = np.zeros((len(rows), size * low + high), np.uint8)
        bits[:, : size * low] = ((rows[:, :, np.newaxis] >> np.arange(low)) & 1).reshape(len(rows), -1)
        np.put_along_axis(bits, size * low + (rows >> low) + np.arange(size), 1, axis=1)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return packed.reshape(*values.shape[:-1], packed.shape[-1])


def decode(content: np.ndarray, encoding: str, dtype: str, size: int, limit: int | None = None) -> np.ndarray:
    """Decodes uint8 [..., bytes] to vectors [..., n]: the stored type, or float32 for `scaled`.

    Raises:
      UserError: bits for `INDEX_ENCODINGS` do not have n indices.
    """
    lead = content.shape[:-1]
    if encoding == "plain":
        return np.ascontiguousarray(content).view(DTYPES[dtype])
    if encoding == "scaled":
        scales = np.ascontiguousarray(content[..., size:]).view(_SCALE).astype(np.float32)
        return np.ascontiguousarray(content[..., :size]).view(np.int8) * scales
    assert limit is not None
    rows = np.ascontiguousarray(content).reshape(-1, content.shape[-1])
    low, high = (0, limit) if encoding == "bits" else _split(size, limit)
    bits = np.unpackbits(rows, axis=-1, count=size * low + high, bitorder="little")
    # NumPy finds the ones of booleans several times as fast.
    ones = np.flatnonzero(np.ascontiguousarray(bits[:, bits.shape[1] - high :]).view(bool))
    if len(ones) != len(rows) * size:
        raise UserError(
            f"{encoding} vectors must have {size} indices each; received {len(ones)} in {len(rows)}; make the cache "
            "again with pocketbert cache-teacher"
        )
    places = ones.reshape(len(rows), size) - np.arange(len(rows))[:, np.newaxis] * high
    if encoding == "elias-fano":
        places = (places - np.arange(size)) << low
        for bit in range(low):
            places += bits[:, bit : size * low : low].astype(np.int64) << bit
    return places.astype(DTYPES[dtype]).reshape(*lead, size)


def _split(size: int, limit: int) -> tuple[int, int]:
    """Returns an index's number of low bits, and the bit string's length for the high parts."""
    low = max(0, (limit // size).bit_length() - 1)
    return low, size + ((limit - 1) >> low) + 1
