"""Keys in sentence-transformers files, 0.2 to 6. Others are errors: they may change outputs. `null` means no key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pocketbert.checkpoints.own_config import OWN_KEY
from pocketbert.json_reading import REQUIRED, has_type, read_json_object, read_values

POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
_TORCH = "torch.nn."
_VECTOR, _TOKENS = "sentence_embedding", "token_embeddings"


@dataclass(frozen=True)
class Keys:
    """A file's keys.

    Attributes:
      read: key → type and default.
      fixed: keys that change the outputs → the only supported value.
      harmless: keys that change no output.
    """

    read: Mapping[str, tuple[type, object]] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    harmless: Collection[str] = ()


# config_sentence_transformers.json.
MODEL = Keys(
    read={
        "prompts": (dict, {}),
        "default_prompt_name": (str, ""),
        "similarity_fn_name": (str, "cosine"),
        "model_type": (str, ""),
        "activation_fn": (str, ""),
        OWN_KEY: (str, ""),
    },
    # Keeps only a vector's first numbers.
    fixed={"truncate_dim": None},
    harmless=("__version__", "requirements", "keep_in_fp32_modules"),
)
# Arguments for transformers' classes, under all versions' names.
_ARGUMENTS = ("model_args", "tokenizer_args", "config_args", "model_kwargs", "processor_kwargs", "config_kwargs")
# sentence_bert_config.json for an embedding and for a cross-encoder.
_SENTENCE = Keys(
    read={"max_seq_length": (int, None), "do_lower_case": (bool, False), "modality_config": (dict, {})},
    fixed={
        **dict.fromkeys((*_ARGUMENTS, "processing_kwargs"), {}),
        **dict.fromkeys(("query_length", "document_length", "query_expansion")),
    },
    harmless=("unpad_inputs",),
)
EMBEDDING = Keys(
    read=_SENTENCE.read,
    fixed={**_SENTENCE.fixed, "transformer_task": "feature-extraction", "module_output_name": _TOKENS},
    harmless=_SENTENCE.harmless,
)
CROSS_ENCODER = Keys(
    read=_SENTENCE.read,
    fixed={**_SENTENCE.fixed, "transformer_task": "sequence-classification", "module_output_name": "scores"},
    harmless=_SENTENCE.harmless,
)
# 1_Pooling/config.json.
POOLING = Keys(
    read={
        "word_embedding_dimension": (int, 0),
        "embedding_dimension": (int, 0),
        "include_prompt": (bool, True),
        **dict.fromkeys(POOLINGS.values(), (bool, False)),
        "pooling_mode_mean_sqrt_len_tokens": (bool, False),
        "pooling_mode_weightedmean_tokens": (bool, False),
        "pooling_mode_lasttoken": (bool, False),
        "pooling_mode": (object, None),
    },
)
# 2_Dense/config.json.
DENSE = Keys(
    read={
        "in_features": (int, REQUIRED),
        "out_features": (int, REQUIRED),
        "bias": (bool, True),
        "activation_function": (str, "torch.nn.modules.activation.Tanh"),
        "use_residual": (bool, False),
    },
    fixed={"module_input_name": _VECTOR, "module_output_name": _VECTOR},
)
# 2_Normalize/config.json.
NORMALIZE = Keys(fixed={"module_input_name": _VECTOR, "module_output_name": _VECTOR})


def read_file(path: Path, keys: Keys, problems: list[str], *, required: bool = False) -> dict[str, Any]:
    """Reads a file's values; every key in `keys.read` has one, its default after a problem."""
    value_problems: list[str] = []
    defaults = {key: default for key, (_, default) in keys.read.items()}
    content = read_json_object(path, problems, required=required)
    if content is None:
        return defaults
    present = {key: value for key, value in content.items() if value is not None}
    for key, value in present.items():
        if isinstance(value, dict):
            # The permission to run the model's code; sentence-transformers ignores it here, too.
            present[key] = {name: item for name, item in value.items() if name != "trust_remote_code"}
    read = {key: value for key, value in keys.read.items() if key in present or value[1] is REQUIRED}
    accepted = {*keys.read, *keys.harmless}
    values = read_values(present, read, fixed=keys.fixed, known=accepted, problems=value_problems)
    name = f"{path.parent.name}/{path.name}" if path.name == "config.json" else path.name
    problems += [f"{name}: {problem}" for problem in value_problems]
    return defaults | values


def activation_name(class_name: object) -> str:
    """Returns torch's activation class, such as Tanh for torch.nn.modules.activation.Tanh; empty for others."""
    name = str(class_name)
    return name.rpartition(".")[2] if has_type(class_name, str) and name.startswith(_TORCH) else ""
