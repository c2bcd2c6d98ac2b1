"""MobileBERT (Sun et al. 2020): bottlenecks around each block, stacked feed-forward networks and trigram inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.families import bert
from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import BottleneckConfig, EncoderConfig
from pocketbert.json_reading import REQUIRED


class MobileBert(Family):
    """The family with the fields of its bottlenecks."""

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        problems = []
        norm = values.get("normalization_type")
        if norm not in ("layer_norm", "no_norm", None):
            problems.append(f"normalization_type must be layer_norm or no_norm; received {norm!r}")
        if not values.get("key_query_shared_bottleneck") and not values.get("use_bottleneck_attention"):
            problems.append(
                "transformers' MobileBERT has no unshared query and key, so key_query_shared_bottleneck or "
                "use_bottleneck_attention must be true; received false for both; convert the original checkpoint"
            )
        return problems

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        norm = values["normalization_type"]
        source = "bottleneck" if values["use_bottleneck_attention"] else "shared"
        return {
            "num_feedforward_networks": values["num_feedforward_networks"],
            "norm": norm,
            # transformers' PyTorch class keeps torch's default for the embedding's LayerNorm.
            **({"embedding_layer_norm_eps": 1e-5} if norm == "layer_norm" else {}),
            "embedding_size": values["embedding_size"],
            "embedding_projection": "word",
            "trigram": True,
            "bottleneck": BottleneckConfig(size=values["intra_bottleneck_size"], query_key=source),  # type: ignore[arg-type]
            **({} if values["classifier_activation"] else {"pooler": "first_token"}),
        }

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        query_key = config.bottleneck.query_key if config.bottleneck else "raw"
        return super().config_values(config, values) | {
            "classifier_activation": config.pooler != "first_token",
            "embedding_size": config.embedding_size,
            "intra_bottleneck_size": config.block_size,
            "key_query_shared_bottleneck": query_key == "shared",
            "normalization_type": config.norm,
            "num_feedforward_networks": config.num_feedforward_networks,
            "trigram_input": config.trigram,
            "true_hidden_size": config.block_size,
            "use_bottleneck": config.bottleneck is not None,
            "use_bottleneck_attention": query_key == "bottleneck",
        }


FAMILY = MobileBert(
    model_type="mobilebert",
    title="MobileBERT",
    class_prefix="MobileBert",
    tensor_prefix="mobilebert",
    tokenizer="wordpiece",
    keys={
        **bert.FAMILY.keys,
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
    fixed={"trigram_input": True, "use_bottleneck": True},
    same_as={"true_hidden_size": "intra_bottleneck_size"},
    sentence_dense=bert.FAMILY.sentence_dense,
    head_width_key="intra_bottleneck_size",
    block="bottleneck",
)
