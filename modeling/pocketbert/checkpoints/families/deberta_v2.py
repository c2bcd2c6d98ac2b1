"""DeBERTa-v3 (He et al. 2023): disentangled attention with log buckets, without positions in the embedding.

transformers stores versions 2 and 3 as `deberta-v2`. The released networks of version 2 have a convolution, and are
refused by its key. Version 1 has a `model_type` of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.families import bert
from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import EncoderConfig, RelativeConfig
from pocketbert.json_reading import has_type
from pocketbert_runtime.tokenizers.layouts import DEBERTA

# Keys that change the mathematics → type, transformers' default, and the only supported value.
_VERSION_3: dict[str, tuple[type, object, object]] = {
    "relative_attention": (bool, False, True),
    "share_att_key": (bool, False, True),
    "norm_rel_ebd": (str, "none", "layer_norm"),
    "position_biased_input": (bool, True, False),
}
_POSITION_PRODUCTS = ["p2c", "c2p"]


class DebertaV2(Family):
    """The family with the fields of its attention."""

    def bert_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        bert_values = super().bert_values(values)
        # Without a rate of its own, a head has that of the hidden states.
        dropout = bert_values.pop("classifier_dropout", None)
        return bert_values | {"classifier_dropout" if has_type(dropout, float) else "cls_dropout": dropout}

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        problems = [
            f"{key} must be {required!r}; received {values[key]!r}"
            for key, (_, _, required) in _VERSION_3.items()
            if values.get(key, required) != required
        ]
        products = values.get("pos_att_type")
        names = products.lower().split("|") if isinstance(products, str) else products
        if not isinstance(names, list) or sorted(str(name).strip() for name in names) != sorted(_POSITION_PRODUCTS):
            problems.append(f"pos_att_type must be {'|'.join(_POSITION_PRODUCTS)}; received {products!r}")
        if values.get("position_buckets", 1) < 1:
            problems.append(f"position_buckets must be positive; received {values['position_buckets']}")
        if values.get("cls_dropout") is not None:
            problems.append(f"cls_dropout must be of type float; received {values['cls_dropout']!r}")
        return problems

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        longest = values["max_relative_positions"]
        return {
            "head_size": values["attention_head_size"] or values["hidden_size"] // values["num_attention_heads"],
            "relative": RelativeConfig(
                buckets=values["position_buckets"],
                max_distance=longest if longest > 0 else values["max_position_embeddings"],
            ),
        }

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        relative = config.relative
        longest = relative.max_distance if relative else config.max_position_embeddings
        has_own_width = config.head_size * config.num_attention_heads != config.hidden_size
        return super().config_values(config, values) | {
            "relative_attention": relative is not None,
            "position_buckets": relative.buckets if relative else -1,
            "max_relative_positions": -1 if longest == config.max_position_embeddings else longest,
            "pooler_hidden_size": config.hidden_size,
            **({"attention_head_size": config.head_size} if has_own_width else {}),
        }


FAMILY = DebertaV2(
    model_type="deberta-v2",
    title="DeBERTa-v3",
    class_prefix="DebertaV2",
    tensor_prefix="deberta",
    tokenizer="unigram",
    tokenizer_layout=DEBERTA,
    block="relative",
    keys={
        **bert.FAMILY.keys,
        **{key: (kind, default) for key, (kind, default, _) in _VERSION_3.items()},
        "vocab_size": (int, 128100),
        "hidden_size": (int, 1536),
        "num_hidden_layers": (int, 24),
        "num_attention_heads": (int, 24),
        "intermediate_size": (int, 6144),
        "max_position_embeddings": (int, 512),
        "type_vocab_size": (int, 0),
        "layer_norm_eps": (float, 1e-7),
        "position_buckets": (int, -1),
        "max_relative_positions": (int, -1),
        # A list of names, or one string.
        "pos_att_type": (object, None),
        # 0 for hidden_size / num_attention_heads, without a key.
        "attention_head_size": (int, 0),
        "cls_dropout": (object, None),
        # Whether the masked-LM head has BERT's names.
        "legacy": (bool, True),
        # They count only with a convolution.
        "conv_act": (str, "tanh"),
        "conv_groups": (int, 1),
        # For the authors' decoder. transformers' classes do not read it.
        "z_steps": (int, 0),
    },
    renamed={"cls_dropout": "classifier_dropout"},
    fixed={"conv_kernel_size": 0},
    fixed_of_sentence_heads={"pooler_dropout": 0, "pooler_hidden_act": "gelu"},
    fixed_of_masked_lm={"legacy": True},
    same_as={"embedding_size": "hidden_size", "pooler_hidden_size": "hidden_size"},
    written={
        **{key: required for key, (_, _, required) in _VERSION_3.items()},
        "pos_att_type": _POSITION_PRODUCTS,
        "legacy": True,
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
    },
    names={
        ".attention.self.query.": ".attention.self.query_proj.",
        ".attention.self.key.": ".attention.self.key_proj.",
        ".attention.self.value.": ".attention.self.value_proj.",
    },
    sentence_dense="pooler.dense",
    head_activation="gelu",
    head_drops_inputs=False,
    tokens_drop_states=True,
    has_next_sentence=False,
    # Positions for the authors' decoder, and the heads of the pretraining.
    unread_tensors=("deberta.embeddings.position_embeddings.", "lm_predictions.", "mask_predictions."),
)
