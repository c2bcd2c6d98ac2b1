"""ModernBERT (Warner et al. 2024): rotary positions, local attention, gated networks, and heads with own layers.

transformers' class has one dropout rate for attention's probabilities and outputs, and two others, for embeddings and
inside the gated networks. Here the two others are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pocketbert.checkpoints.families.family import Family
from pocketbert.configs import EncoderConfig, RotaryConfig
from pocketbert.json_reading import has_type
from pocketbert_runtime.tokenizers.byte_layouts import MODERNBERT

_ROTARY = {
    "global_rope_theta": "theta",
    "local_rope_theta": "local_theta",
    "local_attention": "window",
    "global_attn_every_n_layers": "global_every",
}


# transformers 5 has the bases of the angles in `rope_parameters`, and the pattern of the layers in `layer_types`.
_FULL, _SLIDING = "full_attention", "sliding_attention"
_THETAS = {_FULL: "global_rope_theta", _SLIDING: "local_rope_theta"}


class ModernBert(Family):
    """The family with the fields of its attention."""

    def prefixed(self, name: str) -> str:
        parts = ("embeddings", "layers", "final_norm")
        return f"{self.tensor_prefix}.{name}" if name.split(".")[0] in parts else name

    def bert_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if values.get("local_rope_theta") is None:
            values = {**values, "local_rope_theta": values.get("global_rope_theta")}
        if _rope_problem(values.get("rope_parameters")) is None:
            values = {**values, **_thetas(values.get("rope_parameters") or {})}
        if values.get("layer_types") is not None and (every := _global_every(values)):
            values = {**values, "global_attn_every_n_layers": every}
        return super().bert_values(values)

    def problems(self, values: Mapping[str, Any]) -> list[str]:
        one, other = values.get("hidden_dropout_prob"), values.get("embedding_dropout")
        problems = [f"embedding_dropout must equal mlp_dropout={one}; received {other}"] if one != other else []
        if problem := _rope_problem(values.get("rope_parameters")):
            problems.append(problem)
        elif not has_type(values.get("local_rope_theta", 1.0), float):
            problems.append(f"local_rope_theta must be of type float; received {values['local_rope_theta']!r}")
        if (types := values.get("layer_types")) is not None and not _global_every(values):
            problems.append(
                f"layer_types must have {_FULL} in every n-th layer, from the first on, and {_SLIDING} in others, for "
                f"num_hidden_layers={values.get('num_hidden_layers')}; received {types!r:.90}; choose another model"
            )
        return problems

    def encoder_fields(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"rotary": RotaryConfig(**{field: values[key] for key, field in _ROTARY.items()})}

    def config_values(self, config: EncoderConfig, values: Mapping[str, Any]) -> dict[str, Any]:
        rotary = {key: getattr(config.rotary, field, None) for key, field in _ROTARY.items()}
        return super().config_values(config, values) | rotary | {"embedding_dropout": config.hidden_dropout}


def _rope_problem(parameters: Any) -> str | None:
    """The problem with `rope_parameters`: other angles than those of a base, or another form."""
    parts = parameters if isinstance(parameters, dict) else {None: parameters} if parameters is not None else {}
    for name, part in parts.items():
        values = {} if part is None else part
        if (
            name not in _THETAS
            or not isinstance(values, dict)
            or not values.keys() <= {"rope_type", "rope_theta"}
            or values.get("rope_type", "default") != "default"
            or not has_type(values.get("rope_theta", 1.0), float)
        ):
            return (
                f"rope_parameters must have rope_type default and a number as rope_theta for {_FULL} and {_SLIDING}; "
                f"received {parameters!r:.90}; choose another model"
            )
    return None


def _thetas(parameters: Mapping[str, Any]) -> dict[str, float]:
    return {_THETAS[name]: part["rope_theta"] for name, part in parameters.items() if part and "rope_theta" in part}


def _global_every(values: Mapping[str, Any]) -> int | None:
    """The n of `layer_types` with every n-th layer global, from the first on; the key's own n if it suits, too."""
    count, types = values.get("num_hidden_layers", 0), values.get("layer_types")
    if not isinstance(types, list) or len(types) != count:
        return None
    for every in (values.get("global_attn_every_n_layers", 1), *range(1, count + 1)):
        if every > 0 and types == [_SLIDING if index % every else _FULL for index in range(count)]:
            return int(every)
    return None


_FIXED = {
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "decoder_bias": True,
}

FAMILY = ModernBert(
    model_type="modernbert",
    title="ModernBERT",
    class_prefix="ModernBert",
    tensor_prefix="model",
    tokenizer="byte_bpe",
    tokenizer_layout=MODERNBERT,
    block="rotary",
    keys={
        "vocab_size": (int, 50368),
        "hidden_size": (int, 768),
        "num_hidden_layers": (int, 22),
        "num_attention_heads": (int, 12),
        "intermediate_size": (int, 1152),
        "max_position_embeddings": (int, 8192),
        "hidden_activation": (str, "gelu"),
        "mlp_dropout": (float, 0.0),
        "embedding_dropout": (float, 0.0),
        "attention_dropout": (float, 0.0),
        "initializer_range": (float, 0.02),
        "norm_eps": (float, 1e-5),
        "pad_token_id": (int, 50283),
        "global_rope_theta": (float, 160000.0),
        # Null means that of global layers.
        "local_rope_theta": (object, 10000.0),
        "rope_parameters": (object, None),
        "layer_types": (object, None),
        "local_attention": (int, 128),
        "global_attn_every_n_layers": (int, 3),
        "classifier_pooling": (str, "cls"),
    },
    renamed={
        "hidden_activation": "hidden_act",
        "mlp_dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "norm_eps": "layer_norm_eps",
    },
    implied={"type_vocab_size": 0, "classifier_dropout": 0.0},
    fixed={**_FIXED, "causal_mask": False, "is_causal": False},
    written=_FIXED,
    # For training, for Flash Attention, and keys that the class does not read but the published files have.
    harmless=(
        "initializer_cutoff_factor",
        "deterministic_flash_attn",
        "sparse_prediction",
        "sparse_pred_ignore_index",
        "reference_compile",
        "repad_logits_with_grad",
        "layer_norm_eps",
        "position_embedding_type",
    ),
    names={
        ".encoder.layer.": ".layers.",
        ".embeddings.word_embeddings.": ".embeddings.tok_embeddings.",
        ".embeddings.LayerNorm.": ".embeddings.norm.",
        "qa_outputs.": "classifier.",
        "cls.predictions.decoder.": "decoder.",
        "cls.predictions.": "decoder.",
    },
    sentence_dense="head.dense",
    pooling_key="classifier_pooling",
    has_prediction_layers=True,
    head_activation="gelu",
    has_next_sentence=False,
    masked_lm_activation="gelu",
)
