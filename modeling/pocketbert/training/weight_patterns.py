"""Weight groups by pattern, for `RunConfig.freeze`, `layer_decay` and `rate_factors`. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence

from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError, did_you_mean

_LAYERS = re.compile(r"layers:([0-9]+)(?:-([0-9]+))?")
# Keyword → path prefixes for its weights.
_PARTS: dict[str, tuple[str, ...]] = {
    "embeddings": ("encoder.embeddings.", "encoder.relative."),
    "pooler": ("encoder.pooler.",),
    "head": ("heads.",),
}
_RULE = "embeddings, pooler, head, layers:FIRST-LAST (from 1), or a weight's name with a dot or *"


def pattern_problems(option: str, patterns: Iterable[str]) -> list[str]:
    """Reports patterns with another form."""
    return [
        f"{option} must be {_RULE}; received {pattern!r}{did_you_mean(pattern, [*_PARTS])}"
        for pattern in patterns
        if pattern not in _PARTS and not _LAYERS.fullmatch(pattern) and not set(pattern) & set(".*")
    ]


def parse_rate_factors(texts: Iterable[str]) -> dict[str, float]:
    """Parses texts such as `embeddings=0.1` to pattern → factor.

    Raises:
      UserError: a text has another form.
    """
    factors = {}
    for text in texts:
        pattern, _, number = text.rpartition("=")
        try:
            factor = float(number)
        except ValueError:
            factor = -1.0
        if not pattern or not 0 < factor < float("inf"):
            raise UserError(
                f"rate_factors must be PATTERN=FACTOR with a positive factor; received {text!r}; to keep weights as "
                "they are, use freeze"
            )
        factors[pattern] = factor
    return factors


def matching_paths(option: str, pattern: str, config: EncoderConfig, tasks: Sequence[TaskConfig]) -> list[str]:
    """Returns paths for the weights that match a pattern.

    Args:
      option: the option, for messages.
      pattern: a pattern without `pattern_problems`.
      config: the model's architecture.
      tasks: its heads' tasks.
    Raises:
      UserError: it matches no weight in this model (names the existing weights), or only some layers of a group with
        shared weights.
    """
    names = stored_names(config, tasks)
    if pattern in _PARTS:
        paths = [path for path in names if path.startswith(_PARTS[pattern])]
    elif numbers := _LAYERS.fullmatch(pattern):
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if not 1 <= first <= last <= config.num_layers:
            raise UserError(
                f"{option}: layers count from 1, and this model has {config.num_layers}; received {pattern!r}"
            )
        stored = {config.stored_layer(layer - 1) for layer in range(first, last + 1)}
        for layer in range(1, config.num_layers + 1):
            if config.stored_layer(layer - 1) in stored and not first <= layer <= last:
                raise UserError(
                    f"{option}: layers that share their weights go together (layer_groups={config.layer_groups}); "
                    f"received {pattern!r} without layer {layer}"
                )
        paths = [path for path in names if _layer_number(path) - 1 in stored]
    else:
        paths = [path for path in names if any(fnmatch.fnmatchcase(name, pattern) for name in names[path])]
    if not paths:
        outlined = _outline(name for of_path in names.values() for name in of_path)
        raise UserError(f"{option}: no weight matches {pattern!r}; the names are {', '.join(outlined)}")
    return paths


def rate_factors_by_name(
    layer_decay: float | None, factors: Mapping[str, float], config: EncoderConfig, tasks: Sequence[TaskConfig]
) -> dict[str, float]:
    """Returns learning rate factors by weight name in a model directory; omits factors of 1.

    Args:
      layer_decay: d: layer l of L, counted from 1, has the factor d^(L − l), embeddings have d^(L + 1), and pooler and
        head 1. After ELECTRA (Clark et al. 2020, appendix B, https://arxiv.org/abs/2003.10555), but its code has
        d^(L + 2 − l) and d^(L + 2).
      factors: pattern → factor instead; if several patterns match a weight, the last counts.
      config: the model's architecture.
      tasks: its heads' tasks.
    Raises:
      UserError: a pattern matches no weight, or layers share their weights, so that one weight would have many rates.
    """
    if layer_decay is not None and config.layer_groups is not None:
        raise UserError(
            f"layer_decay needs layers with weights of their own; received layer_groups={config.layer_groups}; use "
            "rate_factors"
        )
    names, by_path = stored_names(config, tasks), dict[str, float]()
    if layer_decay is not None:
        for path in names:
            if path.startswith(_PARTS["embeddings"]):
                by_path[path] = layer_decay ** (config.num_layers + 1)
            elif number := _layer_number(path):
                by_path[path] = layer_decay ** (config.num_layers - number)
    for pattern, factor in factors.items():
        by_path |= dict.fromkeys(matching_paths("rate_factors", pattern, config, tasks), factor)
    return {name: factor for path, factor in by_path.items() if factor != 1 for name in names[path]}


def stored_names(config: EncoderConfig, tasks: Sequence[TaskConfig]) -> dict[str, tuple[str, ...]]:
    """Weight path → its names in model directories.

    A new sentence head has two: if a fit decides that it reads the mean over tokens, its linear map has another name.
    """
    specs = tensor_specs(config, tasks)
    names: dict[str, tuple[str, ...]] = {path: (spec.weight_name,) for path, spec in specs.items()}
    on_mean = [dataclasses.replace(task, pooling="mean") if task.rules.head == "sentence" else task for task in tasks]
    for path, spec in tensor_specs(config, on_mean).items():
        if spec.weight_name not in names[path]:
            names[path] += (spec.weight_name,)
    return names


def _layer_number(path: str) -> int:
    """A weight's layer number, from 1; 0 outside the layers."""
    number = re.match(r"encoder\.layers\.([0-9]+)\.", path)
    return int(number[1]) + 1 if number else 0


def _outline(names: Iterable[str]) -> list[str]:
    """Replaces layer numbers in names by *."""
    return list(dict.fromkeys(re.sub(r"\.[0-9]+\.", ".*.", name, count=1) for name in names))
