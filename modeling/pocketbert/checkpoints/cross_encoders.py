"""Cross-encoders (rerankers) from sentence-transformers: their score's activation in config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pocketbert.checkpoints.sentence_keys import activation_name
from pocketbert.configs import ScoreActivation, TaskConfig

# Keys in versions 4 to 6, and in older ones.
_KEY, _OLD_KEY = "sentence_transformers", "sbert_ce_default_activation_function"
_ACTIVATIONS: dict[ScoreActivation, str] = {
    "identity": "torch.nn.modules.linear.Identity",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}


def with_activation(content: Mapping[str, Any], class_name: str) -> dict[str, Any]:
    """Returns the content of config.json for a cross-encoder.

    Args:
      content: the parsed file.
      class_name: activation in another file; empty to leave it to config.json.
    """
    return {**content, _KEY: {"activation_fn": class_name} if class_name else content.get(_KEY) or {}}


def cross_encoder_activation(
    content: Mapping[str, Any], num_labels: int, kinds: Collection[str], problems: list[str]
) -> ScoreActivation | None:
    """Returns the activation for a cross-encoder's score; None for other models.

    sentence-transformers applies it to all logits; the default is a sigmoid for one label. Here, label probabilities
    come from a softmax or, with `problem_type` multi_label_classification, from sigmoids.
    """
    if _KEY not in content and _OLD_KEY not in content:
        return None
    block = content.get(_KEY, {})
    if not isinstance(block, dict):
        # The key reader reports it.
        return None
    unknown = sorted(set(block) - {"activation_fn", "version"})
    problems += [f"key {key!r} of {_KEY} is unknown and may change the outputs of the model" for key in unknown]
    key = f"{_KEY}.activation_fn" if block.get("activation_fn") else _OLD_KEY
    name = (
        block.get("activation_fn")
        or content.get(_OLD_KEY)
        or _ACTIVATIONS["sigmoid" if num_labels == 1 else "identity"]
    )
    activations = {activation_name(path): activation for activation, path in _ACTIVATIONS.items()}
    if activation_name(name) not in activations:
        problems.append(f"{key} must be one of {', '.join(_ACTIVATIONS.values())}; received {name!r:.100}")
        return None
    activation = activations[activation_name(name)]
    if activation == "sigmoid" and "classification" in kinds:
        problems.append(
            f"{key} of a classifier must be {_ACTIVATIONS['identity']}; received {name}; for a probability of its own "
            "for each label, set problem_type to multi_label_classification"
        )
    return activation


def cross_encoder_config(task: TaskConfig) -> dict[str, Any]:
    """The key in config.json for a task with an activation."""
    return {} if task.activation is None else {_KEY: {"activation_fn": _ACTIVATIONS[task.activation]}}
