"""A student's weights as slices of a supernet (EfficientBERT, sections 3.2 and 4.2). Nothing here uses TensorFlow.

A supernet is an ordinary encoder: its layers have four stacked feed-forward networks with the full inner width.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import numpy as np

from pocketbert.checkpoints.name_maps import tensor_specs
from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import raise_if_any
from pocketbert.feedforward import STACKS, FeedForwardConfig, FeedForwardExpression, parse

_GELU = "linear1_1(gelu(linear1_1(x)))"
_LAYERS = "encoder.layers."
# These fields may differ: they are sliced, checked by layer, or do not affect weight shapes.
_FREE_FIELDS = (
    "num_layers", "hidden_size", "head_size", "intermediate_size", "num_feedforward_networks", "feedforward",
    "activation", "hidden_dropout", "attention_dropout", "initializer_range",
)  # fmt: skip


def supernet_config(base: EncoderConfig, *, keep_operations: bool = False) -> EncoderConfig:
    """Returns the supernet for a base architecture: four stacks at ratio 1 in each layer.

    Args:
      base: for example `preset("efficientbert_base").config`; its sizes stay.
      keep_operations: keep the operations in the base's expressions, as in search stage 3. Otherwise every network is
        linear, gelu, linear, as in stages 1 and 2.
    Raises:
      UserError: the base cannot have stacked feed-forward networks; lists all problems.
    """
    expressions = base.feedforward.expressions if base.feedforward and keep_operations else (_GELU,) * base.num_layers
    largest = (str(FeedForwardExpression(parse(expression).tree, max(STACKS), 1)) for expression in expressions)
    mismatch = base.feedforward.mismatch if base.feedforward else "truncate"
    return base.replace(feedforward=FeedForwardConfig(expressions=tuple(largest), mismatch=mismatch))


def inheritance_problems(supernet: EncoderConfig, candidate: EncoderConfig) -> list[str]:
    """Reasons why a candidate is not a part of a supernet, one sentence each."""
    # Slices of kernels are parts of a supernet in these blocks.
    problems = supernet.block_problems("a supernet", ("plain", "bottleneck"), "search without one")
    for item in dataclasses.fields(EncoderConfig):
        value, expected = getattr(candidate, item.name), getattr(supernet, item.name)
        if item.name not in _FREE_FIELDS and value != expected:
            problems.append(f"{item.name} must equal the supernet's {expected}; received {value}")
    for name in ("hidden_size", "head_size"):
        value, expected = getattr(candidate, name), getattr(supernet, name)
        if value > expected:
            problems.append(f"{name} must be at most the supernet's {expected}; received {value}")
    repeats, rest = divmod(candidate.num_layers, supernet.num_layers)
    if rest:
        problems.append(f"num_layers must be a multiple of the supernet's {supernet.num_layers}; received "
                        f"{candidate.num_layers}")  # fmt: skip
        return problems
    for layer in range(candidate.num_layers):
        (stacks, width), (most, widest) = (
            candidate.feedforward_networks(layer),
            supernet.feedforward_networks(layer // repeats),
        )
        where = f"layer {layer + 1}: the supernet has"
        if stacks > most:
            problems.append(f"{where} {most} stacked feed-forward networks; received {stacks}")
        if width > widest:
            problems.append(f"{where} feed-forward networks of width {widest}; received {width}")
    return problems


def inherited_arrays(
    supernet: EncoderConfig,
    arrays: Mapping[str, np.ndarray],
    candidate: EncoderConfig,
    tasks: Sequence[TaskConfig] = (),
) -> dict[str, np.ndarray]:
    """Slices a candidate's weights from a supernet: path → array.

    - A layer with S stacks at ratio R takes the first S networks, and their first d·R inner columns: columns and bias
      of the first linear map, rows of the second. The paper says that candidates are slices of the supernet; the first
      columns and rows are the authors' code (`models/auto_bert.py`).
    - A narrower candidate takes the leading features on every axis as wide as the feature map or all heads. The number
      of heads stays, so a candidate's head mixes features from the supernet's heads. The paper only says that the
      hidden size shrinks (section 4.2); this is the code (`load_supernet_state_dict_6_540_to_6_360`).
    - A candidate with k times as many layers takes each layer k times in a row: 1, 1, 2, 2, … The paper says "affinely
      repeating each layer"; this order is the code's (`load_supernet_state_dict_6_540_to_12_360`).

    Args:
      supernet: architecture with the weights.
      arrays: its weights, by path as in `Model.weights_by_path`. Heads may be missing.
      candidate: architecture that inherits them.
      tasks: tasks for the candidate's heads; heads in `arrays` under the candidate's paths are inherited too.
    Raises:
      UserError: the candidate is not a part of the supernet; lists all problems.
    """
    raise_if_any(inheritance_problems(supernet, candidate), "the student must be a part of its supernet")
    repeats = candidate.num_layers // supernet.num_layers
    inherited = {}
    for path, spec in tensor_specs(candidate, tasks).items():
        source = re.sub(rf"^{re.escape(_LAYERS)}(\d+)", lambda match: f"{_LAYERS}{int(match[1]) // repeats}", path)
        if source.startswith("encoder.") or source in arrays:
            inherited[path] = arrays[source][tuple(slice(size) for size in spec.canonical_shape)]
    return inherited
