"""Keys in ModernBERT's config.json, as transformers 4 and 5 write them: honoured, refused by name, or harmless."""

from __future__ import annotations

from typing import Any

import pytest

from pocketbert.checkpoints.huggingface import read_config
from pocketbert.configs import RotaryConfig
from pocketbert.errors import UserError

FULL, SLIDING = "full_attention", "sliding_attention"
# answerdotai/ModernBERT-base's keys, with tiny sizes.
PUBLISHED: dict[str, Any] = {
    "model_type": "modernbert",
    "architectures": ["ModernBertForMaskedLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 3,
    "classifier_activation": "gelu",
    "classifier_bias": False,
    "classifier_dropout": 0.0,
    "classifier_pooling": "mean",
    "cls_token_id": 3,
    "decoder_bias": True,
    "deterministic_flash_attn": False,
    "embedding_dropout": 0.0,
    "eos_token_id": 4,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 160000.0,
    "gradient_checkpointing": False,
    "hidden_activation": "gelu",
    "hidden_size": 24,
    "initializer_cutoff_factor": 2.0,
    "initializer_range": 0.02,
    "intermediate_size": 37,
    "layer_norm_eps": 1e-5,
    "local_attention": 6,
    "local_rope_theta": 10000.0,
    "max_position_embeddings": 17,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "norm_bias": False,
    "norm_eps": 1e-5,
    "num_attention_heads": 4,
    "num_hidden_layers": 5,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "reference_compile": None,
    "sep_token_id": 4,
    "sparse_pred_ignore_index": -100,
    "sparse_prediction": False,
    "vocab_size": 31,
}
ROPE = {FULL: {"rope_type": "default", "rope_theta": 5000.0}, SLIDING: {"rope_type": "default", "rope_theta": 70.0}}


def types(count: int, every: int) -> list[str]:
    return [SLIDING if index % every else FULL for index in range(count)]


def read(*removed: str, **changes: Any) -> Any:
    content = {key: value for key, value in {**PUBLISHED, **changes}.items() if key not in removed}
    config, tasks = read_config(content, ())
    return config.rotary, tasks


@pytest.mark.parametrize(
    ("removed", "changes", "fields"),
    [
        ((), {}, {}),
        ((), {"local_rope_theta": None}, {"local_theta": 160000.0}),
        # Ettin's encoders and their descendants.
        ((), {"position_embedding_type": "sans_pos", "causal_mask": False, "is_causal": False}, {}),
        # transformers 5.
        (
            ("global_rope_theta", "local_rope_theta"),
            {"rope_parameters": ROPE, "layer_types": types(5, 2)},
            {"theta": 5000.0, "local_theta": 70.0},
        ),
        (("local_rope_theta",), {"rope_parameters": {SLIDING: None, FULL: {"rope_theta": 9}}}, {"theta": 9.0}),
        (("global_attn_every_n_layers",), {"layer_types": types(5, 4)}, {"global_every": 4}),
        ((), {"layer_types": types(5, 1)}, {"global_every": 1}),
        # Two layers tell no period; the key does.
        (("layer_types",), {"num_hidden_layers": 2, "layer_types": [FULL, SLIDING]}, {}),
    ],
)
def test_keys_that_are_read(removed: tuple[str, ...], changes: dict[str, Any], fields: dict[str, Any]) -> None:
    expected = {"theta": 160000.0, "local_theta": 10000.0, "window": 6, "global_every": 2}
    assert read(*removed, **changes)[0] == RotaryConfig(**{**expected, **fields})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"local_rope_theta": "x"}, "local_rope_theta must be of type float; received 'x'"),
        (
            {"rope_parameters": {FULL: {"rope_type": "yarn", "factor": 4.0}}},
            "rope_parameters must have rope_type default",
        ),
        (
            {"rope_parameters": {"rope_theta": 9.0}},
            "rope_parameters must have .* for full_attention and sliding_attention",
        ),
        ({"rope_parameters": [1]}, "rope_parameters must have rope_type default"),
        ({"layer_types": [FULL, FULL, SLIDING, FULL, SLIDING]}, "layer_types must have full_attention in every n-th"),
        ({"layer_types": types(4, 2)}, r"layer_types must have .* num_hidden_layers=5; received \['full"),
        ({"layer_types": [SLIDING] * 5}, "layer_types must have full_attention in every n-th layer, from the first on"),
        ({"causal_mask": True}, "causal_mask must be False; received True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings must be True with a masked-LM head; received False"),
    ],
)
def test_configurations_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(**changes)


def test_keys_of_a_masked_lm_head_leave_a_classifier_alone() -> None:
    classifier = ["ModernBertForSequenceClassification"]
    _, (task,) = read(architectures=classifier, tie_word_embeddings=False)
    assert (task.kind, task.pooling) == ("classification", "mean")
