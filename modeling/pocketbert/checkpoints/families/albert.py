"""ALBERT (Lan et al. 2020): BERT whose layers share their weights, behind a narrower embedding.

The weights of shared layers are stored once, as in transformers. Published checkpoints have a head for the order of two
sentences, which no task here needs. It is left out when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.families import bert
from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import EncoderConfig
from pocketbert_runtime.tokenizers.layouts import ALBERT

# Keys of the original code that no class in transformers reads, with their only published value.
_UNREAD: dict[str, object] = {
    "down_scale_factor": 1,
    "gap_size": 0,
    "net_structure_type": 0,
    "num_memory_blocks": 0,
    "layers_to_keep": [],
}


class Albert(Family):
    """The family with its groups of layers and the fields of its embedding."""

    def tensor_name(self, bert_name: str) -> str:
        # A group of layers is stored as a list with one layer.
        return re.sub(r"(\.albert_layer_groups\.\d+)\.", r"\1.albert_layers.0.", super().tensor_name(bert_name))

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        groups, layers = values.get("num_hidden_groups", 1), values.get("num_hidden_layers", 1)
        if groups < 1 or layers % groups:
            return [f"num_hidden_groups must divide num_hidden_layers={layers}; received {groups}"]
        return []

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "embedding_size": values["embedding_size"],
            "embedding_projection": "output",
            "layer_groups": values["num_hidden_groups"],
        }

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        return super().config_values(config, values) | {
            "embedding_size": config.embedding_size,
            "num_hidden_groups": config.layer_groups,
        }


FAMILY = Albert(
    model_type="albert",
    title="ALBERT",
    class_prefix="Albert",
    tensor_prefix="albert",
    tokenizer="wordpiece",
    tokenizer_layout=ALBERT,
    keys={
        **bert.FAMILY.keys,
        "vocab_size": (int, 30000),
        "embedding_size": (int, 128),
        "hidden_size": (int, 4096),
        "num_hidden_layers": (int, 12),
        "num_hidden_groups": (int, 1),
        "num_attention_heads": (int, 64),
        "intermediate_size": (int, 16384),
        "max_position_embeddings": (int, 512),
        "hidden_act": (str, "gelu_new"),
        "hidden_dropout_prob": (float, 0.0),
        "attention_probs_dropout_prob": (float, 0.0),
        "classifier_dropout_prob": (float, 0.1),
    },
    renamed={"classifier_dropout_prob": "classifier_dropout"},
    fixed={"inner_group_num": 1, **_UNREAD},
    written={**bert.FAMILY.written, "inner_group_num": 1},
    names={
        ".embeddings.embedding_transformation.": ".encoder.embedding_hidden_mapping_in.",
        ".encoder.layer.": ".encoder.albert_layer_groups.",
        ".attention.self.": ".attention.",
        ".attention.output.": ".attention.",
        ".intermediate.dense.": ".ffn.",
        ".output.dense.": ".ffn_output.",
        ".output.LayerNorm.": ".full_layer_layer_norm.",
        ".pooler.dense.": ".pooler.",
        "cls.predictions.transform.": "predictions.",
        "cls.predictions.": "predictions.",
    },
    # On an encoder without a pooler, as in a student cut from one.
    sentence_dense="bert.pooler.dense",
    has_next_sentence=False,
    unread_heads={"ForPreTraining": "sop_classifier."},
)
