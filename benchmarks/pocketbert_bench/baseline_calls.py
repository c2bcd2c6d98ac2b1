"""Calls with the float model's outputs; a baseline must reproduce them approximately before it is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert_bench.configurations import Call, Configuration

# int8 only approximates the float model: four times the 15 % in pocketbert.recipes for our own files.
TOLERANCE = {"float32": 1e-3, "dynamic_wi8": 0.6}
_EXAMPLES = 3


def calls_with_answers(network: Model, length: int, signature: str) -> tuple[Call, ...]:
    """Creates calls on random valid ids, with a float model's outputs.

    Args:
      network: the float model.
      length: sequence length in tokens.
      signature: signature of the baseline's file; empty if the format has none.
    Raises:
      UserError: the model reads separate pairs.
    """
    if network.task is not None and network.task.pairs == "separate":
        raise UserError(
            "a baseline reads one row per call; received a head on separate pairs (pairs=separate); leave out "
            f"{argument('baselines', True)}"
        )
    calls = []
    for inputs in legal_inputs(network.config, length):
        row = {name: np.array([ids], np.int32) for name, ids in inputs.items()}
        outputs = {name: np.asarray(value).tolist() for name, value in network(row, training=False).items()}
        calls.append(Call(signature=signature, inputs=inputs, expected=outputs))
    return tuple(calls)


def configurations_of(
    name: str, paths: Mapping[str, Path], threads: Sequence[int], **common: Any
) -> list[Configuration]:
    """Returns configurations for another tool's files, by recipe, with the fields in common."""
    return [
        Configuration(
            label=f"{name} {recipe}",
            recipe=recipe,
            model_path=path,
            threads=number,
            is_baseline=True,
            relative_tolerance=TOLERANCE[recipe],
            **common,
        )
        for recipe, path in paths.items()
        for number in threads
    ]


def legal_inputs(config: EncoderConfig, length: int, seed: int = 0) -> list[dict[str, list[int]]]:
    """Returns random ids and segments under masks with different lengths, for calls whose meaning does not matter."""
    generator = np.random.default_rng(seed)
    rows = []
    for example in range(_EXAMPLES):
        tokens = length - example * length // (2 * _EXAMPLES)
        padding = [0] * (length - tokens)
        ids = generator.integers(0, config.vocab_size, tokens).tolist()
        segments = generator.integers(0, max(1, config.type_vocab_size), tokens).tolist()
        rows.append(
            {
                "input_word_ids": ids + [config.pad_token_id] * len(padding),
                "input_mask": [1] * tokens + padding,
                "input_type_ids": segments + padding,
            }
        )
    return rows
