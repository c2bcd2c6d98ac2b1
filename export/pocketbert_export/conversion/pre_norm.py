"""Fold gamma and centring of the norms before sub-layers (ModernBERT)."""

from __future__ import annotations

import numpy as np

from pocketbert.configs import EncoderConfig


def fold_pre_norm(config: EncoderConfig, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Folds each norm's gamma into the maps that read it, and its centring into those that write what it reads.

    A norm is gamma ∘ (x − mean(x)) / deviation(x), and only norms read the residual stream x. So the maps that write
    into it lose the mean over their outputs, and layer 0 removes the embeddings' mean from its residual. The stream
    then has no mean, and a norm is x / sqrt(mean(x²) + epsilon). Layer 0's attention reads the embeddings as they are.

    Args:
      config: an architecture with `rotary` and `layer_norm`.
      tensors: canonical path → array.
    Returns:
      Weights for the same architecture with `norm="rms"`, float32. The final norm keeps its gamma.
    """
    wide = {path: array.astype(np.float64) for path, array in tensors.items()}
    for layer in range(config.num_layers):
        attention, feed_forward = f"encoder.layers.{layer}.attention", f"encoder.layers.{layer}.feed_forwards.0"
        readers = {attention: ("query", "key", "value"), feed_forward: ("intermediate", "gate")}
        for part, names in readers.items():
            gamma = wide.pop(f"{part}.norm.gamma", None)
            if gamma is not None:
                for name in names:
                    wide[f"{part}.{name}.kernel"] *= gamma[:, np.newaxis]
            kernel = wide[f"{part}.output.kernel"]
            wide[f"{part}.output.kernel"] = kernel - kernel.mean(axis=1, keepdims=True)
    return {path: array.astype(np.float32) for path, array in wide.items()}
