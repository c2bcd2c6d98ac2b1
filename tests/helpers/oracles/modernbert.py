"""ModernBERT's encoder in NumPy (Warner et al. 2024, section 2.1; Su et al. 2021, eq. 13; Shazeer 2020).

A pair of features is one complex number, and a rotary position turns it. float64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from pocketbert.configs import EncoderConfig


def hidden_states(
    config: EncoderConfig, weights: Mapping[str, np.ndarray], ids: np.ndarray, mask: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """The sums before each norm, from the embedding on, each [B, S, H], and the output behind the final norm."""
    rotary = config.rotary
    assert rotary is not None
    weights = {path: np.asarray(value, np.float64) for path, value in weights.items()}
    x = _norm(weights["encoder.embeddings.word.table"][ids], weights["encoder.embeddings.norm.gamma"], config)
    states = [x]
    length = ids.shape[1]
    distance = np.abs(np.arange(length)[:, None] - np.arange(length))
    for layer in range(config.num_layers):
        path = f"encoder.layers.{layer}"
        is_global = layer % rotary.global_every == 0
        theta = rotary.theta if is_global else rotary.local_theta
        seen = mask[:, None, None, :] == 1
        if not is_global:
            seen = seen & (distance <= rotary.window / 2)
        read = x if layer == 0 else _norm(x, weights[f"{path}.attention.norm.gamma"], config)
        q, k, v = (read @ weights[f"{path}.attention.{name}.kernel"] for name in ("query", "key", "value"))
        context = _attend(_turned(q, config, theta), _turned(k, config, theta), v, seen, config)
        x = x + context @ weights[f"{path}.attention.output.kernel"]
        path = f"{path}.feed_forwards.0"
        read = _norm(x, weights[f"{path}.norm.gamma"], config)
        inner = _gelu(read @ weights[f"{path}.intermediate.kernel"]) * (read @ weights[f"{path}.gate.kernel"])
        x = x + inner @ weights[f"{path}.output.kernel"]
        states.append(x)
    return states, _norm(x, weights["encoder.final_norm.gamma"], config)


def _turned(x: np.ndarray, config: EncoderConfig, theta: float) -> np.ndarray:
    """[B, S, A] → complex [B, S, N, D / 2]; pair i of the token at p turns by p · theta^(-2i / D)."""
    half = config.head_size // 2
    heads = x.reshape(*x.shape[:2], config.num_attention_heads, 2, half)
    angles = np.arange(x.shape[1])[:, None] * theta ** (-2 * np.arange(half) / config.head_size)
    return (heads[..., 0, :] + 1j * heads[..., 1, :]) * np.exp(1j * angles)[:, None]


def _attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, seen: np.ndarray, config: EncoderConfig) -> np.ndarray:
    logits = np.einsum("bqnd,bknd->bnqk", q, k.conj()).real / math.sqrt(config.head_size)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True)) * seen
    # A query in the padding may see no token at all.
    probs = exponentials / np.maximum(exponentials.sum(-1, keepdims=True), 1e-300)
    values = v.reshape(*v.shape[:2], config.num_attention_heads, config.head_size)
    return np.einsum("bnqk,bknd->bqnd", probs, values).reshape(v.shape)


def _norm(x: np.ndarray, gamma: np.ndarray, config: EncoderConfig) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config.layer_norm_eps)


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
