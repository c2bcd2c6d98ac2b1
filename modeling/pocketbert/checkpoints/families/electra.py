"""ELECTRA (Clark et al. 2020): BERT with a narrower embedding, no pooler, and heads of its own.

Published discriminators have a head for replaced tokens, which no task here needs. It is left out when they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.families import bert
from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import EncoderConfig

# For multiple choice, which has no head here.
_SUMMARY: dict[str, tuple[type, object]] = {
    "summary_type": (str, "first"),
    "summary_use_proj": (bool, True),
    "summary_activation": (str, "gelu"),
    "summary_last_dropout": (float, 0.1),
}


class Electra(Family):
    """The family with the fields of its embedding."""

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        size = values["embedding_size"]
        return {
            "embedding_size": size,
            "embedding_projection": "none" if size == values["hidden_size"] else "output",
        }

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        return super().config_values(config, values) | {"embedding_size": config.embedding_size}


FAMILY = Electra(
    model_type="electra",
    title="ELECTRA",
    class_prefix="Electra",
    tensor_prefix="electra",
    tokenizer="wordpiece",
    keys={
        **bert.FAMILY.keys,
        "vocab_size": (int, 30522),
        "embedding_size": (int, 128),
        "hidden_size": (int, 256),
        "num_hidden_layers": (int, 12),
        "num_attention_heads": (int, 4),
        "intermediate_size": (int, 1024),
        "max_position_embeddings": (int, 512),
        **_SUMMARY,
    },
    written={**bert.FAMILY.written, **{key: value for key, (_, value) in _SUMMARY.items()}},
    names={
        ".embeddings.embedding_transformation.": ".embeddings_project.",
        "cls.predictions.transform.": "generator_predictions.",
        "cls.predictions.decoder.": "generator_lm_head.",
        "cls.predictions.": "generator_lm_head.",
    },
    sentence_dense="classifier.dense",
    sentence_output=".out_proj",
    head_activation="gelu",
    has_next_sentence=False,
    unread_heads={"ForPreTraining": "discriminator_predictions."},
    masked_lm_activation="gelu",
)
