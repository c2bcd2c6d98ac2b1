"""Latency and size of structures, predicted from a few measured networks with random weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.configs import EncoderConfig
from pocketbert.data.assets import cache_folder
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.json_reading import from_json, read_json
from pocketbert.progress import log_info
from pocketbert.pruning.config import can_be_narrowed
from pocketbert.tasks.registry import get_task
from pocketbert_bench import host, machine
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.structures import SMALL_RANK, Structure
from pocketbert_bench.network_latency import Device, NetworkCost, Setting

# The vocabulary of smaller networks, as a part of the whole.
_VOCABULARY_PART = 4
# Half of so few layers is a single one.
_SHALLOW = 3
SCHEDULE = dataclasses.replace(host.QUICK, rounds=12, runs=64, seconds=1.0)


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Costs as linear functions of a structure's terms; see `terms` and `size_terms`.

    Attributes:
      latency: the latency at each length.
      size: coefficient of each term, in MB.
      memory: coefficient of each term, in MB.
    """

    latency: list[LengthModel]
    size: list[float]
    memory: list[float]

    def predict(self, config: EncoderConfig, shares: Mapping[int, float], *, first_token: bool = False) -> Cost:
        """The costs of an architecture.

        Args:
          config: the architecture.
          shares: length in tokens → share in the mean latency.
          first_token: whether its head reads only the first token, unlike those of the measured networks.
        """
        of_size = size_terms(config)
        latencies = {of_length.length: of_length.predict(config, first_token=first_token) for of_length in self.latency}
        return Cost(
            latency_ms=sum(shares[length] * latency for length, latency in latencies.items()),
            size_mb=float(np.dot(self.size, of_size)),
            memory_mb=float(np.dot(self.memory, of_size)),
        )


@dataclasses.dataclass(frozen=True)
class LengthModel:
    """Latency of a text with a length.

    Attributes:
      length: number of tokens.
      coefficients: coefficient of each term, in milliseconds.
      last_layer_share: share of the tokens that the last layer computes.
    """

    length: int
    coefficients: list[float]
    last_layer_share: float

    def predict(self, config: EncoderConfig, *, first_token: bool) -> float:
        """Milliseconds."""
        share = 1 / self.length if first_token else self.last_layer_share
        return float(np.dot(self.coefficients, terms(config, share)))


def terms(config: EncoderConfig, last_layer_share: float) -> np.ndarray:
    """What the latency is linear in: 1, layers, heads and neurons of all layers, and the rank of the embedding.

    A call also takes a time that depends on the width but not on the depth, for which the neurons of a layer stand.

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
            config.intermediate_size,
            rank / config.hidden_size,
        ]
    )


def size_terms(config: EncoderConfig) -> np.ndarray:
    """What size and memory are linear in: 1, layers, heads and neurons of all layers, and the word embedding.

    Each row of the embedding has a scale of four bytes.
    """
    width = config.embedding_size if config.embedding_projection == "factors" else config.hidden_size
    return np.array([*terms(config, 1.0)[:-2], config.vocab_size * (width + 4) / 1e6])


def fitted_configs(
    teacher: EncoderConfig, *, small_embedding: bool, part_of_vocabulary: bool = True
) -> list[EncoderConfig]:
    """Architectures that span depth and width, to be measured: the teacher's, and smaller ones, which convert faster.

    Args:
      teacher: architecture of the teacher.
      small_embedding: also one with a factored word embedding.
      part_of_vocabulary: whether the smaller ones have a part of the vocabulary: they convert still faster, and trimmed
        files are predicted.
    """
    count, heads, neurons = teacher.num_layers, teacher.num_attention_heads, teacher.intermediate_size
    middle = count // 2 if count > _SHALLOW else count
    sizes: list[tuple[int, int, int, int | None]] = [(count, heads, neurons, None), (1, heads, neurons, None)]
    if can_be_narrowed(teacher):
        half, few = max(heads // 2, 1), max(neurons // 4, 1)
        sizes += [(middle, half, neurons, None), (middle, heads, few, None)]
        sizes += [(middle, half, few, None), (1, half, few, None)]
    else:
        sizes.append((middle, heads, neurons, None))
    sizes += [(middle, heads, neurons, SMALL_RANK)] if small_embedding and can_be_narrowed(teacher) else []
    configs = [
        Structure(
            layers=tuple(range(1, layers + 1)), heads=of_heads, intermediate_size=of_neurons, embedding_rank=rank
        ).config(teacher)
        for layers, of_heads, of_neurons, rank in sizes
    ]
    if part_of_vocabulary:
        part = teacher.vocab_size // _VOCABULARY_PART
        return [configs[0], *(config.replace(vocab_size=part) for config in configs[1:])]
    return configs


def fit(configs: Sequence[EncoderConfig], networks: Sequence[NetworkCost], setting: Setting) -> CostModel:
    """Fits the model; relative errors count, so that cheap networks fit as well as dear ones.

    Args:
      configs: architectures of measured networks.
      networks: their costs.
      setting: their task, recipe and lengths.
    """
    latency = []
    for number, length in enumerate(setting.lengths):
        share = 1 / length if get_task(setting.task).first_token_only else 1.0
        rows = [terms(config, share) for config in configs]
        coefficients = _coefficients(rows, [network.latency_us[number] / 1e3 for network in networks])
        latency.append(LengthModel(length=length, coefficients=coefficients, last_layer_share=share))
    rows = [size_terms(config) for config in configs]
    return CostModel(
        latency=latency,
        size=_coefficients(rows, [network.file_bytes / 1e6 for network in networks]),
        memory=_coefficients(rows, [network.memory_bytes / 1e6 for network in networks]),
    )


def fitted_model(teacher: EncoderConfig, setting: Setting, *, small_embedding: bool, device: Device) -> CostModel:
    """The model of a device: an earlier one of the same networks, otherwise a new one.

    It is kept in the cache of `pocketbert.data.assets` for each device, runtime, exporter and teacher.

    Args:
      teacher: architecture of the teacher.
      setting: task, recipe and lengths.
      small_embedding: also measure a factored word embedding.
      device: where they run.

    Raises:
      UserError: a network cannot be measured.
    """
    # A phone's networks have the whole tokenizer.
    part = not device.name
    configs = fitted_configs(teacher, small_embedding=small_embedding, part_of_vocabulary=part)
    return _kept(configs, setting, device)


def measured_model(config: EncoderConfig, setting: Setting, *, device: Device) -> CostModel:
    """The model of a single network: its measured costs; see `fitted_model`."""
    return _kept([config], setting, device)


def _kept(configs: Sequence[EncoderConfig], setting: Setting, device: Device) -> CostModel:
    path = cache_folder() / "costs" / f"{_identity(configs, setting, device)}.json"
    if path.exists():
        with contextlib.suppress(UserError, KeyError):
            model = read_costs(path)[setting.recipe]
            log_info(
                f"{setting.recipe}: costs are predicted from earlier measurements on {device.name or 'this machine'}"
            )
            return model
    folder = path.with_suffix("")
    model = fit(configs, device.measure(configs, setting, folder), setting)
    shutil.rmtree(folder, ignore_errors=True)
    # A cache that cannot be written costs only time.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_costs({setting.recipe: model}, path)
    return model


def write_costs(models: Mapping[str, CostModel], path: Path) -> None:
    """Writes the model of each recipe for later attempts."""
    write_json(path, {recipe: dataclasses.asdict(model) for recipe, model in models.items()})


def read_costs(path: Path) -> dict[str, CostModel]:
    """Reads the models of an earlier attempt.

    Raises:
      UserError: the file is damaged.
    """
    return from_json(dict[str, CostModel], read_json(path), str(path))


def _identity(configs: Sequence[EncoderConfig], setting: Setting, device: Device) -> str:
    """What the measurements depend on, as a file name."""
    networks = [dataclasses.asdict(config) for config in configs]
    here = dataclasses.replace(machine.machine(), load_average=())
    content = [networks, dataclasses.asdict(setting), device.name, dataclasses.asdict(here), machine.commit()]
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]


def _coefficients(rows: Sequence[np.ndarray], values: Sequence[float]) -> list[float]:
    if not all(values):
        # Not reported.
        return [0.0] * len(rows[0])
    scale = np.array(values)
    coefficients, *_ = np.linalg.lstsq(np.stack(rows) / scale[:, None], np.ones(len(values)), rcond=None)
    return [float(coefficient) for coefficient in coefficients]
