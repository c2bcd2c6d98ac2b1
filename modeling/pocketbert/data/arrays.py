"""Reads integer arrays in .npy files, and checks the header against the file's size."""

from __future__ import annotations

import math
import tokenize
from pathlib import Path

import numpy as np

from pocketbert.errors import UserError


def read_int32(path: Path, shape: tuple[int, ...], remedy: str) -> np.ndarray:
    """Reads the int32 array in a .npy file.

    Raises:
      UserError: the file cannot be read or has other content. A wrong header allocates no memory.
    """
    try:
        with path.open("rb") as stream:
            np.lib.format.read_magic(stream)
            stored_shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
            room = path.stat().st_size - stream.tell()
            if (stored_shape, by_columns, dtype) != (shape, False, np.dtype("<i4")) or room != 4 * math.prod(shape):
                raise ValueError(
                    f"it must be int32 {list(shape)}; received {dtype} {list(stored_shape)} in {room} bytes"
                )
            return np.fromfile(stream, "<i4").reshape(shape)
    # NumPy passes on errors of Python's parser.
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise UserError(f"{path}: the file is damaged ({' '.join(str(error).split())[:200]}); {remedy}") from error
