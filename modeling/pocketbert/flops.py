"""An encoder's floating-point operations."""

from __future__ import annotations

from pocketbert.configs import EncoderConfig


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """Counts floating-point operations for one text of `length` tokens, two per multiply-add.

    Counts matrix products: all linear maps and, in attention, queries by keys and probabilities by values, for all
    heads and positions including padding, and in DeBERTa queries and keys by distances. A token in a local layer reads
    1.5 windows at most, as in the graph, where the last block may be filled up. Excludes embedding look-ups, biases,
    norms, softmax, activations and heads.

    At 128 tokens this gives 22.35 B for BERT-base, 5.59 B for MobileBERT (5.39 B as released), 3.07 B for TINY and 1.25
    B for TinyBERT4. The papers report 22.5, 5.7 and 3.1 B (MobileBERT, table 4) and 1.2 B (TinyBERT, table 1).
    Elementwise operations, as counted by TensorFlow's profiler in our graphs, raise ours to 22.41, 5.62, 3.10 and 1.26
    B. The remaining difference is rounding and at most 0.7 % that the papers do not explain.
    """
    hidden, block, attention = config.hidden_size, config.block_size, config.attention_size
    source = config.bottleneck.query_key if config.bottleneck else "raw"
    query_width = hidden if source == "raw" else block
    value_width = block if source == "bottleneck" else hidden

    per_token = 2 * query_width * attention + value_width * attention + attention * block
    if config.bottleneck:
        input_maps = 2 if source == "shared" else 1
        per_token += (input_maps + 1) * hidden * block
    if config.relative:
        # Queries and keys by the 2·length - 1 distances.
        per_token += 2 * (2 * length - 1) * attention

    multiply_adds = config.num_layers * length * per_token
    for layer in range(config.num_layers):
        window = config.rotary.window_of(layer) if config.rotary else None
        queries, keys = length, length
        if window is not None and 2 * length > 3 * window:
            half = window // 2
            queries, keys = -(-length // half) * half, 3 * half
        multiply_adds += 2 * queries * keys * attention
        stacked, inner_size = config.feedforward_networks(layer)
        multiply_adds += length * stacked * (2 if config.rotary is None else 3) * block * inner_size
    if config.embedding_projection != "none":
        multiply_adds += length * config.embedding_size * (3 if config.trigram else 1) * hidden
    if config.pooler == "tanh":
        multiply_adds += hidden * hidden
    return 2 * multiply_adds
