"""Keys in config.json for each family, as in transformers' configuration classes."""

from __future__ import annotations

from pocketbert.json_reading import REQUIRED

CLASS_PREFIX = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "mobilebert": "MobileBert",
    "distilbert": "DistilBert",
}


def tensor_family(model_type: str) -> str:
    """Returns the family whose tensor names a family uses: RoBERTa for XLM-R, else itself."""
    return "roberta" if model_type == "xlm-roberta" else model_type


# transformers' name → ours; a value's first name is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}

# key → (type, default in transformers' configuration class); for DistilBERT's see RENAMED.
_COMMON: dict[str, tuple[type, object]] = {
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
}
_ROBERTA = _COMMON | {"pad_token_id": (int, 1)}
KEYS: dict[str, dict[str, tuple[type, object]]] = {
    "bert": _COMMON,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mobilebert": _COMMON
    | {
        "hidden_act": (str, "relu"),
        "hidden_dropout_prob": (float, 0.0),
        "embedding_size": (int, REQUIRED),
        "intra_bottleneck_size": (int, REQUIRED),
        "num_feedforward_networks": (int, 4),
        "use_bottleneck_attention": (bool, False),
        "key_query_shared_bottleneck": (bool, True),
        "normalization_type": (str, "no_norm"),
        "classifier_activation": (bool, True),
    },
    "distilbert": {
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
}
# DistilBERT's key → BERT's.
RENAMED = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "hidden_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "seq_classif_dropout": "classifier_dropout",
}
# Values without a key in DistilBERT's class.
DISTILBERT = {"type_vocab_size": 0, "layer_norm_eps": 1e-12}
# Keys that change the mathematics, with the only supported value.
FIXED: dict[str, object] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
    "trigram_input": True,
    "use_bottleneck": True,
}
# The same for keys that change only a masked-LM head.
FIXED_OF_HEADS: dict[str, object] = {"tie_word_embeddings": True, "tie_weights_": True}
# Keys that repeat another key (emb_size: Huawei's TinyBERT).
SAME_AS = {"true_hidden_size": "intra_bottleneck_size", "emb_size": "hidden_size"}
# Keys that change neither weights nor outputs. No class reads those in the last two lines, from Google and Huawei.
HARMLESS = (
    "_name_or_path transformers_version torch_dtype dtype use_cache gradient_checkpointing bos_token_id eos_token_id "
    "sep_token_id cls_token_id mask_token_id decoder_start_token_id tokenizer_class chunk_size_feed_forward "
    "output_attentions output_hidden_states return_dict torchscript output_past model_max_length task_specific_params "
    "attn_implementation _attn_implementation_autoset cross_attention_hidden_size "
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "cell structure pre_trained training"
).split()
# Keys about the heads. The defaults also replace null; the default dropout is hidden_dropout_prob.
TASK_KEYS: dict[str, tuple[type, object]] = {
    "architectures": (list, []),
    "classifier_dropout": (float, 0.0),
    "finetuning_task": (str, ""),
    "id2label": (dict, {}),
    "label2id": (dict, {}),
    "num_labels": (int, 2),
    "problem_type": (str, "single_label_classification"),
    # For cross-encoders; see `cross_encoders`.
    "sentence_transformers": (dict, {}),
    "sbert_ce_default_activation_function": (str, ""),
}
