"""Weights that a run leaves unchanged: layers with `trainable = False` in memory, and `RunConfig.freeze`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig, TaskConfig, head_names
from pocketbert.errors import raise_if_any
from pocketbert.notation import argument
from pocketbert.training.config import RunConfig
from pocketbert.training.kept_heads import source_of
from pocketbert.training.stage import Stage
from pocketbert.training.weight_patterns import matching_paths, parse_rate_factors, stored_names


@dataclass(frozen=True)
class FrozenWeights:
    """Weights that Keras would not train in a model in memory.

    Attributes:
      paths: their paths in that model.
      tasks: its heads' tasks.
    """

    paths: tuple[str, ...] = ()
    tasks: tuple[TaskConfig, ...] = ()

    @classmethod
    def of(cls, model: Any) -> FrozenWeights:
        """Finds the frozen weights of a model in memory; none for a path or an architecture."""
        if not hasattr(model, "weights_by_path"):
            return cls()
        learning = {id(variable) for variable in model.trainable_variables}
        paths = [path for path, variable in model.weights_by_path().items() if id(variable) not in learning]
        return cls(tuple(paths), tuple(model.tasks))

    def in_run(self, config: EncoderConfig, tasks: Sequence[TaskConfig], *, new_head: bool | None) -> tuple[str, ...]:
        """Paths of the frozen weights in a run's model; its new heads are trained."""
        prefixes = {"encoder.": "encoder."}
        if not new_head:
            held = dict(zip(self.tasks, head_names(self.tasks), strict=True))
            for name, task in zip(head_names(tasks), tasks, strict=True):
                source = source_of(self.tasks, task)
                if source is not None:
                    prefixes[f"heads.{held[source]}."] = f"heads.{name}."
        renamed = {
            after + path.removeprefix(before)
            for before, after in prefixes.items()
            for path in self.paths
            if path.startswith(before)
        }
        return tuple(path for path in tensor_specs(config, tasks) if path in renamed)


def frozen_paths(
    frozen: FrozenWeights,
    patterns: Sequence[str],
    config: EncoderConfig,
    tasks: Sequence[TaskConfig],
    *,
    new_head: bool | None,
) -> tuple[str, ...]:
    """Paths of all weights to leave unchanged; `patterns` are from `RunConfig.freeze`."""
    paths = {*frozen.in_run(config, tasks, new_head=new_head)} if frozen.paths else set()
    for pattern in patterns:
        paths |= {*matching_paths("freeze", pattern, config, tasks)}
    return tuple(path for path in tensor_specs(config, tasks) if path in paths) if paths else ()


def freeze(
    stages: Sequence[Stage], paths: Collection[str], config: EncoderConfig, tasks: Sequence[TaskConfig]
) -> tuple[Stage, ...]:
    """Freezes weights in all stages.

    Raises:
      UserError: a stage has no weight left to train.
    """
    names = stored_names(config, tasks)
    untrained = frozenset(name for path in paths for name in names[path])
    frozen = tuple(
        dataclasses.replace(stage, trainable=functools.partial(_trains, stage.trainable, untrained)) for stage in stages
    )
    problems = []
    for stage in frozen:
        if not any(stage.trainable(name) for of_path in names.values() for name in of_path):
            where = f"stage {stage.name}" if stage.name else "training"
            problems.append(
                f"{where} must have a weight to train; all of its weights are frozen; leave out "
                f"{argument('freeze')}, or set trainable=True for some layers"
            )
    raise_if_any(problems, "frozen weights")
    return frozen


def check_rates(run: RunConfig, paths: Collection[str], config: EncoderConfig, tasks: Sequence[TaskConfig]) -> None:
    """Raises a `UserError` for learning rates that reach frozen weights only; `paths` are the frozen weights."""
    weights = {
        f"rate_factors for {pattern!r}": matching_paths("rate_factors", pattern, config, tasks)
        for pattern in parse_rate_factors(run.rate_factors)
    }
    if run.layer_decay is not None:
        layered = ("encoder.embeddings.", "encoder.relative.", "encoder.layers.")
        weights["layer_decay"] = [path for path in tensor_specs(config, tasks) if path.startswith(layered)]
    raise_if_any(
        [
            f"{option} has no effect, because all of its weights are frozen; leave it out, or freeze fewer weights"
            for option, of_option in weights.items()
            if {*of_option} <= {*paths}
        ],
        "frozen weights",
    )


def _trains(trainable: Callable[[str], bool], untrained: Collection[str], name: str) -> bool:
    return name not in untrained and trainable(name)


def outline(paths: Collection[str], config: EncoderConfig, tasks: Sequence[TaskConfig]) -> list[str]:
    """Shortens paths to one prefix, such as `encoder.layers.0`, for all weights below it."""
    others = {path for path in tensor_specs(config, tasks) if path not in paths}
    outlined = []
    for path in paths:
        parts = path.split(".")
        prefixes = (".".join(parts[:count]) for count in range(1, len(parts)))
        whole = (prefix for prefix in prefixes if not any(other.startswith(prefix + ".") for other in others))
        outlined.append(next(whole, path))
    return list(dict.fromkeys(outlined))


def in_words(part: str, config: EncoderConfig) -> str:
    """Formats a part from `outline` for a message, with layers from 1 as in `RunConfig.freeze`."""
    match = re.fullmatch(r"encoder\.layers\.([0-9]+)(?:\.(.+))?", part)
    if match is None:
        return part
    layers = [layer + 1 for layer in range(config.num_layers) if config.stored_layer(layer) == int(match[1])]
    name = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    return name + (f" ({match[2]})" if match[2] else "")
