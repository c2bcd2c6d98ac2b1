"""Reading a JSON configuration strictly: every key is known, and every value of the right type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

REQUIRED = object()

# Keys that change neither weights nor outputs. The last two lines: Google's and Huawei's, read by no class.
_HARMLESS = (
    "_name_or_path transformers_version torch_dtype dtype use_cache gradient_checkpointing bos_token_id eos_token_id "
    "sep_token_id cls_token_id mask_token_id decoder_start_token_id tokenizer_class chunk_size_feed_forward "
    "output_attentions output_hidden_states return_dict torchscript output_past model_max_length task_specific_params "
    "attn_implementation _attn_implementation_autoset cross_attention_hidden_size "
    "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type "
    "cell structure pre_trained training"
).split()


def read_values(
    content: Mapping[str, Any],
    keys: Mapping[str, tuple[type, object]],
    *,
    fixed: Mapping[str, object],
    known: Collection[str],
    problems: list[str],
) -> dict[str, Any]:
    """The values of the keys that make up an architecture.

    Args:
      content: the parsed file.
      keys: key → type and default, the latter `REQUIRED` if there is none.
      fixed: keys that change the mathematics, with the one value that we compute.
      known: further keys that the caller reads.
      problems: receives a sentence for every unknown or missing key and every wrong value.
    Returns:
      Key → value, without the keys that have a problem.
    """
    for key in sorted(set(content) - set(keys) - set(fixed) - set(known) - set(_HARMLESS)):
        problems.append(f"key {key!r} is unknown and may change what the model computes; remove it if not")
    for key, required in fixed.items():
        if key in content and content[key] != required:
            problems.append(f"{key} must be {required!r}; received {content[key]!r}")
    values: dict[str, Any] = {}
    for key, (kind, default) in keys.items():
        value = content.get(key, default)
        if value is REQUIRED:
            problems.append(f"key {key!r} is missing")
        elif not has_type(value, kind):
            problems.append(f"{key} must be of type {kind.__name__}; received {value!r}")
        else:
            values[key] = value
    return values


def has_type(value: object, kind: type) -> bool:
    """Whether a JSON value can stand where `kind` is wanted: an integer for a float, but no bool for a number."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
