"""Keys in config.json that all families share; `families` has the others."""

from __future__ import annotations

# transformers' name → ours; a value's first name is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
# Relatives of BERT with a class outside transformers: BERT with rotary positions and gated networks.
UNSUPPORTED = {"nomic_bert": "nomic-embed-text", "new": "gte v1.5"}
# Keys that change the mathematics, with the only supported value.
FIXED: dict[str, object] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "tie_encoder_decoder": False,
    "pruned_heads": {},
}
# The same for keys that change only a masked-LM head.
FIXED_OF_MASKED_LM: dict[str, object] = {"tie_word_embeddings": True, "tie_weights_": True}
# Keys that repeat another key (emb_size: Huawei's TinyBERT).
SAME_AS = {"emb_size": "hidden_size"}
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
