"""RoBERTa (Liu et al. 2019): positions after the padding id, no next sentences, and a classifier with its own layer."""

from __future__ import annotations

import dataclasses

from pocketbert.checkpoints.families import bert

FAMILY = dataclasses.replace(
    bert.FAMILY,
    model_type="roberta",
    title="RoBERTa",
    class_prefix="Roberta",
    tensor_prefix="roberta",
    tokenizer="byte_bpe",
    keys={**bert.FAMILY.keys, "pad_token_id": (int, 1)},
    names={
        "cls.predictions.transform.dense.": "lm_head.dense.",
        "cls.predictions.transform.LayerNorm.": "lm_head.layer_norm.",
        "cls.predictions.": "lm_head.",
    },
    # transformers' RoBERTa classifier owns this map and has no pooler.
    sentence_dense="classifier.dense",
    sentence_output=".out_proj",
    pooler_in_head=True,
    has_next_sentence=False,
    masked_lm_activation="gelu",
    positions_follow_padding=True,
    sentence_config="sentence_roberta_config.json",
    relation_layer=19,
    relation_beta_2=0.98,
)
