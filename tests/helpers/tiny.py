"""Tiny architectures for tests: sizes awkward and pairwise distinct, so that a mix-up of axes shows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from pocketbert.configs import BottleneckConfig, EncoderConfig, RelativeConfig, RotaryConfig
from pocketbert.feedforward import FeedForwardConfig

BERT = EncoderConfig(
    model_type="bert",
    vocab_size=97,
    hidden_size=30,
    num_layers=3,
    num_attention_heads=5,
    head_size=6,
    intermediate_size=41,
    num_feedforward_networks=1,
    activation="gelu",
    norm="layer_norm",
    layer_norm_eps=1e-12,
    embedding_layer_norm_eps=1e-12,
    embedding_size=30,
    embedding_projection="none",
    trigram=False,
    max_position_embeddings=29,
    position_offset=0,
    type_vocab_size=2,
    pad_token_id=0,
    bottleneck=None,
    pooler="tanh",
    hidden_dropout=0.1,
    attention_dropout=0.1,
    initializer_range=0.2,
)
ROBERTA = BERT.replace(model_type="roberta", position_offset=2, type_vocab_size=1, pad_token_id=1, pooler="none")
FACTORIZED_WORD = BERT.replace(embedding_size=13, embedding_projection="word")
FACTORIZED_OUTPUT = BERT.replace(embedding_size=13, embedding_projection="output")
MOBILEBERT = BERT.replace(
    model_type="mobilebert",
    head_size=4,
    intermediate_size=37,
    num_feedforward_networks=3,
    activation="relu",
    norm="no_norm",
    embedding_size=11,
    embedding_projection="word",
    trigram=True,
    bottleneck=BottleneckConfig(size=20, query_key="shared"),
    pooler="first_token",
    hidden_dropout=0.0,
    # NoNorm lets values grow with depth: smaller weights keep them of order 1.
    initializer_range=0.1,
)
MOBILEBERT_RAW = MOBILEBERT.replace(bottleneck=BottleneckConfig(size=20, query_key="raw"))
MOBILEBERT_TINY = MOBILEBERT.replace(
    bottleneck=BottleneckConfig(size=20, query_key="bottleneck"), num_feedforward_networks=2
)
MOBILEBERT_LAYER_NORM = MOBILEBERT_RAW.replace(norm="layer_norm", activation="gelu_tanh")
IB_BERT = MOBILEBERT_LAYER_NORM.replace(
    head_size=7,
    num_feedforward_networks=1,
    bottleneck=BottleneckConfig(size=35, query_key="raw"),
    pooler="tanh",
    hidden_dropout=0.1,
)
EFFICIENTBERT = FACTORIZED_WORD.replace(
    trigram=True,
    activation="gelu_tanh",
    feedforward=FeedForwardConfig(
        expressions=(
            "tanh(linear2_2(gelu(linear2_2(x))))",
            "linear1_3(relu(mul(linear1_3(x),x)))",
            "linear1_1(gelu(linear1_1(max(x,tanh(x)))))",
        )
    ),
)
DEBERTA = BERT.replace(
    model_type="deberta-v2",
    layer_norm_eps=1e-7,
    embedding_layer_norm_eps=1e-7,
    type_vocab_size=0,
    relative=RelativeConfig(buckets=8, max_distance=29),
    pooler="none",
)

MODERNBERT = BERT.replace(
    model_type="modernbert",
    num_layers=4,
    layer_norm_eps=1e-5,
    embedding_layer_norm_eps=1e-5,
    type_vocab_size=0,
    pooler="none",
    hidden_dropout=0.1,
    rotary=RotaryConfig(theta=160.0, local_theta=10.0, window=4, global_every=3),
)

FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "factorized_word": FACTORIZED_WORD,
    "factorized_output": FACTORIZED_OUTPUT,
    "mobilebert": MOBILEBERT,
    "mobilebert_raw": MOBILEBERT_RAW,
    "mobilebert_tiny": MOBILEBERT_TINY,
    "mobilebert_layer_norm": MOBILEBERT_LAYER_NORM,
    "ib_bert": IB_BERT,
    "efficientbert": EFFICIENTBERT,
    "deberta": DEBERTA,
    "modernbert": MODERNBERT,
}

BATCH_LENGTHS = (7, 4, 6)


def batch(config: EncoderConfig, length: int = 7, seed: int = 3) -> dict[str, tf.Tensor]:
    """Three rows of 7, 4 and 6 tokens, filled up with the padding id to `length`."""
    generator = np.random.default_rng(seed)
    mask = np.zeros([len(BATCH_LENGTHS), length], np.int32)
    for row, tokens in enumerate(BATCH_LENGTHS):
        mask[row, :tokens] = 1
    ids = np.full_like(mask, config.pad_token_id)
    types = np.zeros_like(mask)
    ids[:, :7] = generator.integers(2, config.vocab_size, [len(BATCH_LENGTHS), 7])
    types[:, :7] = generator.integers(0, 2, [len(BATCH_LENGTHS), 7])
    ids = np.where(mask == 1, ids, config.pad_token_id)
    arrays = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types * mask}
    return {name: tf.constant(array, tf.int32) for name, array in arrays.items()}
