"""DistilBERT (Sanh et al. 2019): no segments and no pooler, and other names for keys and tensors."""

from __future__ import annotations

from pocketbert.checkpoints.families.family import Family

FAMILY = Family(
    model_type="distilbert",
    title="DistilBERT",
    class_prefix="DistilBert",
    tensor_prefix="distilbert",
    tokenizer="wordpiece",
    keys={
        "vocab_size": (int, 30522),
        "dim": (int, 768),
        "n_layers": (int, 6),
        "n_heads": (int, 12),
        "hidden_dim": (int, 3072),
        "max_position_embeddings": (int, 512),
        "activation": (str, "gelu"),
        "dropout": (float, 0.1),
        "attention_dropout": (float, 0.1),
        "initializer_range": (float, 0.02),
        "pad_token_id": (int, 0),
        "seq_classif_dropout": (float, 0.2),
        # Before the span head, in training; ours has no dropout there.
        "qa_dropout": (float, 0.1),
        # How the position table was initialized; it is stored either way.
        "sinusoidal_pos_embds": (bool, False),
    },
    renamed={
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "seq_classif_dropout": "classifier_dropout",
    },
    implied={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    written={"sinusoidal_pos_embds": False, "tie_weights_": True},
    names={
        ".encoder.layer.": ".transformer.layer.",
        ".attention.self.query.": ".attention.q_lin.",
        ".attention.self.key.": ".attention.k_lin.",
        ".attention.self.value.": ".attention.v_lin.",
        ".attention.output.dense.": ".attention.out_lin.",
        ".attention.output.LayerNorm.": ".sa_layer_norm.",
        ".intermediate.dense.": ".ffn.lin1.",
        ".output.dense.": ".ffn.lin2.",
        ".output.LayerNorm.": ".output_layer_norm.",
        "cls.predictions.transform.dense.": "vocab_transform.",
        "cls.predictions.transform.LayerNorm.": "vocab_layer_norm.",
        "cls.predictions.decoder.weight": "vocab_projector.weight",
        "cls.predictions.bias": "vocab_projector.bias",
    },
    sentence_dense="pre_classifier",
    head_activation="relu",
    head_drops_inputs=False,
    has_next_sentence=False,
    sentence_config="sentence_distilbert_config.json",
)
