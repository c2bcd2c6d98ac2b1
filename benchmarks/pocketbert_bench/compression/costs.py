"""Latency and size of structures, predicted from a few measured networks with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.files import write_json
from pocketbert.tasks.registry import get_task
from pocketbert.training.run_folder import read_record
from pocketbert_bench import host
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.structures import SMALL_RANK, Structure, can_be_pruned
from pocketbert_bench.network_latency import Setting, measure_here

_SCHEDULE = dataclasses.replace(host.QUICK, rounds=8, runs=64, seconds=1.0)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Costs as linear functions of a structure's terms; see `terms`.

    Attributes:
      latency: coefficient of each term, in milliseconds.
      size: coefficient of each term, in MB.
      last_layer_share: share of the tokens that the last layer computes.
    """

    latency: Sequence[float]
    size: Sequence[float]
    last_layer_share: float

    def predict(self, config: EncoderConfig) -> Cost:
        """The costs of an architecture."""
        of_time, of_size = terms(config, self.last_layer_share), terms(config, 1.0)
        return Cost(latency_ms=float(np.dot(self.latency, of_time)), size_mb=float(np.dot(self.size, of_size)))


def terms(config: EncoderConfig, last_layer_share: float) -> np.ndarray:
    """What the costs are linear in: 1, layers, heads and neurons of all layers, and the rank of the embedding.

    Args:
      config: the architecture.
      last_layer_share: share of the tokens whose queries and neurons the last layer computes. Its keys and values are
        those of all tokens, which is half of its attention.
    """
    layers = config.num_layers - 1
    rank = config.embedding_size if config.embedding_projection == "factors" else 0
    return np.array(
        [
            1.0,
            layers + last_layer_share,
            (layers + (1 + last_layer_share) / 2) * config.num_attention_heads,
            (layers + last_layer_share) * config.intermediate_size,
            rank / config.hidden_size,
        ]
    )


def fitted_structures(teacher: EncoderConfig, *, small_embedding: bool) -> list[Structure]:
    """Structures that span depth and width, to be measured.

    Args:
      teacher: architecture of the teacher.
      small_embedding: also one with a factored word embedding.
    """
    count, heads, neurons = teacher.num_layers, teacher.num_attention_heads, teacher.intermediate_size
    middle = max(count // 2, 1)
    sizes: list[tuple[int, int, int, int | None]] = [(count, heads, neurons, None), (1, heads, neurons, None)]
    if can_be_pruned(teacher):
        half, few = max(heads // 2, 1), max(neurons // 4, 1)
        sizes += [
            (count, half, neurons, None),
            (count, heads, few, None),
            (middle, half, few, None),
            (1, half, few, None),
        ]
    else:
        sizes.append((middle, heads, neurons, None))
    sizes += [(middle, heads, neurons, SMALL_RANK)] if small_embedding and can_be_pruned(teacher) else []
    return [
        Structure(layers=tuple(range(1, layers + 1)), heads=of_heads, intermediate_size=of_neurons, embedding_rank=rank)
        for layers, of_heads, of_neurons, rank in sizes
    ]


def fit(configs: Sequence[EncoderConfig], costs: Sequence[Cost], setting: Setting) -> CostModel:
    """Fits the model; relative errors count, so that cheap networks fit as well as dear ones.

    Args:
      configs: architectures of measured networks.
      costs: their costs.
      setting: their task, recipe and length.
    """
    share = 1 / setting.length if get_task(setting.task).first_token_only else 1.0
    latency = _coefficients([terms(config, share) for config in configs], [cost.latency_ms for cost in costs])
    size = _coefficients([terms(config, 1.0) for config in configs], [cost.size_mb for cost in costs])
    return CostModel(latency=latency, size=size, last_layer_share=share)


def fit_to_measurements(teacher: EncoderConfig, setting: Setting, *, small_embedding: bool, threads: int) -> CostModel:
    """Measures some structures and fits the model.

    Args:
      teacher: architecture of the teacher.
      setting: task, recipe and length.
      small_embedding: also measure a factored word embedding.
      threads: threads of a call.

    Raises:
      UserError: a network cannot be measured.
    """
    configs = [structure.config(teacher) for structure in fitted_structures(teacher, small_embedding=small_embedding)]
    microseconds, sizes = measure_here(configs, setting, _SCHEDULE, threads=threads)
    costs = [
        Cost(latency_ms=latency / 1e3, size_mb=size / 1e6) for latency, size in zip(microseconds, sizes, strict=True)
    ]
    return fit(configs, costs, setting)


def write_costs(model: CostModel, path: Path) -> None:
    """Writes the model for later attempts."""
    write_json(path, dataclasses.asdict(model))


def read_costs(path: Path) -> CostModel:
    """Reads the model of an earlier attempt."""
    return CostModel(**read_record(path, [field.name for field in dataclasses.fields(CostModel)]))


def _coefficients(rows: Sequence[np.ndarray], values: Sequence[float]) -> list[float]:
    scale = np.array(values)
    coefficients, *_ = np.linalg.lstsq(np.stack(rows) / scale[:, None], np.ones(len(values)), rcond=None)
    return [float(coefficient) for coefficient in coefficients]
