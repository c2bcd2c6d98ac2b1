"""Tiny architectures with pairwise distinct sizes, and weights for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import BottleneckConfig, EncoderConfig, RelativeConfig, RotaryConfig, TaskConfig
from pocketbert.presets import PRESETS

SENTIMENT = TaskConfig(kind="classification", name="sst2", labels=("bad", "so so", "good"), dropout=0.2)
_TINY = {
    "vocab_size": 31,
    "hidden_size": 20,
    "num_layers": 2,
    "num_attention_heads": 4,
    "head_size": 5,
    "intermediate_size": 37,
    "embedding_size": 20,
    "max_position_embeddings": 17,
}
_TINY_MOBILEBERT = _TINY | {"embedding_size": 6, "head_size": 3, "num_feedforward_networks": 3}


def tiny_bert(**changes: object) -> EncoderConfig:
    return PRESETS["bert_base_uncased"].config.replace(**(_TINY | changes))


def tiny_roberta(**changes: object) -> EncoderConfig:
    return PRESETS["roberta_base"].config.replace(**(_TINY | changes))


def tiny_xlm_roberta(**changes: object) -> EncoderConfig:
    return PRESETS["xlm_r_base"].config.replace(**(_TINY | changes))


def tiny_camembert(**changes: object) -> EncoderConfig:
    return PRESETS["camembert_base"].config.replace(**(_TINY | changes))


def tiny_mobilebert(query_key: str = "shared", **changes: object) -> EncoderConfig:
    bottleneck = BottleneckConfig(size=12, query_key=query_key)  # type: ignore[arg-type]
    return PRESETS["mobilebert"].config.replace(**(_TINY_MOBILEBERT | {"bottleneck": bottleneck} | changes))


def tiny_distilbert(**changes: object) -> EncoderConfig:
    return tiny_bert(**({"model_type": "distilbert", "type_vocab_size": 0, "pooler": "none"} | changes))


def tiny_electra(**changes: object) -> EncoderConfig:
    return PRESETS["electra_small"].config.replace(**(_TINY | {"embedding_size": 6} | changes))


def tiny_albert(**changes: object) -> EncoderConfig:
    return PRESETS["albert_base"].config.replace(**(_TINY | {"embedding_size": 6, "num_layers": 4} | changes))


def tiny_deberta(**changes: object) -> EncoderConfig:
    relative = RelativeConfig(buckets=6, max_distance=_TINY["max_position_embeddings"])
    return PRESETS["deberta_v3_small"].config.replace(**(_TINY | {"relative": relative} | changes))


def tiny_modernbert(**changes: object) -> EncoderConfig:
    rotary = RotaryConfig(theta=160.0, local_theta=10.0, window=4, global_every=3)
    changes = {"num_attention_heads": 2, "head_size": 10, "rotary": rotary} | changes
    return PRESETS["modernbert_base"].config.replace(**(_TINY | {"pad_token_id": 1} | changes))


def random_tensors(config: EncoderConfig, tasks: tuple = (), seed: int = 3) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        path: generator.normal(size=spec.canonical_shape).astype(np.float32)
        for path, spec in tensor_specs(config, tasks).items()
    }


def edit_config(path: Path, **changes: object) -> None:
    content = json.loads((path / "config.json").read_text())
    content.update(changes)
    (path / "config.json").write_text(json.dumps(content))


def edit_tensors(path: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
