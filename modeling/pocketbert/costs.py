"""Costs of an encoder, computed from its configuration. Nothing here imports TensorFlow."""

from __future__ import annotations

from pocketbert.configs import EncoderConfig


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """Floating-point operations of one text of `length` tokens, two per multiply-add.

    Counted are the matrix products: every linear map and, in attention, queries by keys and probabilities by values,
    over all heads and all positions, padding included. Not counted: table look-ups, biases, norms, softmax,
    activations and task heads.

    The papers print, at 128 tokens, 22.5 B for BERT-base, 5.7 B for MobileBERT and 3.1 B for TINY (MobileBERT,
    table 4), 1.2 B for TinyBERT4 (TinyBERT, table 1); this gives 22.35, 5.59 (the paper's form; 5.39 as released),
    3.07 and 1.25 B. With the elementwise operations, as TensorFlow's profiler counts them in our graphs, it would be
    22.41, 5.62, 3.10 and 1.26 B. So the difference is rounding to the printed digit, elementwise operations, and a
    remainder of at most 0.7 % that the papers do not explain.

    Args:
      config: the architecture.
      length: tokens.
    """
    hidden, block, attention = config.hidden_size, config.block_size, config.attention_size
    source = config.bottleneck.query_key if config.bottleneck else "raw"
    query_width = hidden if source == "raw" else block
    value_width = block if source == "bottleneck" else hidden

    per_token = 2 * query_width * attention + value_width * attention + attention * block
    per_token += config.num_feedforward_networks * 2 * block * config.intermediate_size
    if config.bottleneck:
        input_maps = 2 if source == "shared" else 1
        per_token += (input_maps + 1) * hidden * block
    attention_products = 2 * length * length * attention

    multiply_adds = config.num_layers * (length * per_token + attention_products)
    if config.embedding_projection != "none":
        multiply_adds += length * config.embedding_size * (3 if config.trigram else 1) * hidden
    if config.pooler == "tanh":
        multiply_adds += hidden * hidden
    return 2 * multiply_adds
