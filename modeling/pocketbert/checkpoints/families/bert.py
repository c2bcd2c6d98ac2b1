"""BERT (Devlin et al. 2019), TinyBERT and MiniLM."""

from __future__ import annotations

from pocketbert.checkpoints.families.family import Family
from pocketbert.json_reading import REQUIRED

FAMILY = Family(
    model_type="bert",
    title="BERT",
    class_prefix="Bert",
    tensor_prefix="bert",
    tokenizer="wordpiece",
    keys={
        "vocab_size": (int, REQUIRED),
        "hidden_size": (int, REQUIRED),
        "num_hidden_layers": (int, REQUIRED),
        "num_attention_heads": (int, REQUIRED),
        "intermediate_size": (int, REQUIRED),
        "max_position_embeddings": (int, REQUIRED),
        "type_vocab_size": (int, 2),
        "hidden_act": (str, "gelu"),
        "hidden_dropout_prob": (float, 0.1),
        "attention_probs_dropout_prob": (float, 0.1),
        "initializer_range": (float, 0.02),
        "layer_norm_eps": (float, 1e-12),
        "pad_token_id": (int, 0),
    },
    written={"position_embedding_type": "absolute"},
    # The head's tanh layer on the first token is stored like the pooler.
    sentence_dense="bert.pooler.dense",
    relation_layer=21,
)
