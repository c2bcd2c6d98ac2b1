"""Round matrices to int4 in blocks with a common scale.

`round_blocks` chooses each block's scale by its squared error. `round_with_moments` also lets weights compensate for
the errors in those rounded before: GPTQ (Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative
Pre-trained Transformers", algorithm 1), in blocks of columns.
"""

from __future__ import annotations

import numpy as np

_LOWEST, _HIGHEST = -8, 7
# Scales to try, relative to the one that maps the largest weight to 7.
_SHARES = np.linspace(0.7, 1.1, 17)
# Added to the moments' diagonal, relative to its mean (GPTQ, section 3.3).
_DAMPING = 0.01
_SMALLEST = 1e-7


def round_blocks(matrix: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds each block to nearest in a float matrix `[rows, width]`, with the scale for the least squared error.

    Returns int8 `[rows, width]` from -8 to 7, and float16 scales `[rows, blocks]`. The block size divides the width.
    """
    blocks = matrix.reshape(-1, block_size).astype(np.float64)
    scales = _best_scales(blocks, np.ones(block_size))
    return _rounded(blocks, scales).reshape(matrix.shape), scales.reshape(len(matrix), -1)


def round_with_moments(matrix: np.ndarray, moments: np.ndarray, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds a dense layer's weights so that its outputs change little, rather than its weights.

    Takes float `[outputs, inputs]` and the summed products between the layer's inputs over tokens, `[inputs, inputs]`;
    returns int8 `[outputs, inputs]` from -8 to 7, and float16 scales `[outputs, blocks]`.
    """
    weights, inverse = matrix.astype(np.float64), _inverse_factor(moments)
    numbers = np.zeros(matrix.shape, np.int8)
    scales = np.zeros((len(matrix), matrix.shape[1] // block_size), np.float16)
    for block in range(scales.shape[1]):
        first, behind = block * block_size, (block + 1) * block_size
        block_inverse = inverse[first:behind, first:behind]
        scales[:, block] = _best_scales(weights[:, first:behind], 1 / np.square(np.diag(block_inverse)))
        steps = scales[:, block].astype(np.float64)
        errors = np.zeros((len(matrix), block_size))
        for column in range(block_size):
            position = first + column
            numbers[:, position] = np.clip(np.round(weights[:, position] / steps), _LOWEST, _HIGHEST)
            errors[:, column] = (weights[:, position] - numbers[:, position] * steps) / block_inverse[column, column]
            weights[:, position:behind] -= errors[:, column, None] * block_inverse[column, column:]
        weights[:, behind:] -= errors @ inverse[first:behind, behind:]
    return numbers, scales


def pack(numbers: np.ndarray) -> bytes:
    """Packs two numbers a byte, the first in the lower half, as TFLite stores int4."""
    halves = numbers.reshape(-1).view(np.uint8) & 15
    return (halves[0::2] | (halves[1::2] << 4)).tobytes()


def _best_scales(blocks: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """float16 scale per block `[n, size]`, with the least error weighted by `importance` `[size]`."""
    largest = np.maximum(np.abs(blocks).max(axis=1), _SMALLEST)
    best = np.full(len(blocks), np.inf)
    chosen = np.zeros(len(blocks), np.float16)
    for share in _SHARES:
        scales = np.maximum(share * largest / _HIGHEST, _SMALLEST).astype(np.float16)
        errors = np.square(_rounded(blocks, scales) * scales[:, None].astype(np.float64) - blocks) @ importance
        chosen = np.where(errors < best, scales, chosen)
        best = np.minimum(errors, best)
    return chosen


def _rounded(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.clip(np.round(blocks / scales[:, None].astype(np.float64)), _LOWEST, _HIGHEST).astype(np.int8)


def _inverse_factor(moments: np.ndarray) -> np.ndarray:
    """Upper Cholesky factor for the damped moments' inverse."""
    damped = moments.astype(np.float64)
    diagonal = np.einsum("ii->i", damped)
    # Inputs without tokens and padding are never read.
    diagonal[diagonal == 0] = 1
    diagonal += _DAMPING * diagonal.mean()
    return np.linalg.cholesky(np.linalg.inv(damped)).T
