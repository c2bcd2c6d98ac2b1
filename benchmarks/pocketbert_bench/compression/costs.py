"""Predict structures' latency and size from a few measured networks with random weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.data.assets import cache_folder
from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.progress import log_info
from pocketbert.pruning.config import can_be_narrowed
from pocketbert.tasks.registry import get_task
from pocketbert_bench import host, machine
from pocketbert_bench.compression.constraints import Cost
from pocketbert_bench.compression.structures import SMALL_RANK, Structure
from pocketbert_bench.network_latency import Device, NetworkCost, RandomNetwork, Setting
from pocketbert_runtime.json_reading import from_json, read_json

# Smaller networks have this part of the vocabulary: one in four tokens.
_VOCABULARY_PART = 4
# Half of so few layers is a single one.
_SHALLOW = 3
# As many as in `terms`.
_LATENCY_TERMS = 7
SCHEDULE = dataclasses.replace(host.QUICK, rounds=12, runs=64, seconds=1.0)
# Measurements are cached if other programs use at most this percentage of the CPU.
_MOST_OTHERS = 25.0


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Costs as linear functions of a structure's terms; see `terms` and `size_terms`.

    Attributes:
      first_token: whether the task's head reads the first token only.
      latency: the latency at each length.
      size: each term's coefficient, in MB.
      memory: each term's coefficient, in MB, for a file with the measured lengths.
      length_memory: memory for one more length, in MB: a constant, and a factor for the layers' size; empty if unknown.
    """

    first_token: bool
    latency: list[LengthModel]
    size: list[float]
    memory: list[float]
    length_memory: list[float] = dataclasses.field(default_factory=list)

    def predict(
        self,
        config: EncoderConfig,
        shares: Mapping[int, float],
        *,
        first_token: bool = False,
        lengths: int | None = None,
    ) -> Cost:
        """Predicts an architecture's costs.

        Args:
          config: the architecture.
          shares: length in tokens → share in the mean latency.
          first_token: whether its head reads only the first token, although the task reads the tokens' mean.
          lengths: the file's number of lengths; None for the number in the measured files.
        """
        of_size, of_latency = (
            size_terms(config, config.num_stored_layers),
            terms(config, first_token=first_token or self.first_token),
        )
        latencies = {of_length.length: np.dot(of_length.coefficients, of_latency) for of_length in self.latency}
        memory_mb = float(np.dot(self.memory, size_terms(config, config.num_layers)))
        if lengths is not None and self.length_memory:
            memory_mb += (lengths - len(self.latency)) * float(np.dot(self.length_memory, self._length_terms(config)))
        return Cost(
            latency_ms=float(sum(share * latencies[length] for length, share in shares.items())),
            size_mb=float(np.dot(self.size, of_size)),
            memory_mb=memory_mb,
        )

    def _length_terms(self, config: EncoderConfig) -> np.ndarray:
        """Terms of a length's memory: 1, and the layers' size, because each length packs their weights again."""
        # The first term is the file's rest, the last one the word embedding, which all lengths share.
        return np.array([1.0, np.dot(self.size[1:-1], size_terms(config, config.num_layers)[1:-1])])

    def with_length_memory(
        self, networks: Sequence[RandomNetwork], costs: Sequence[NetworkCost], others: Sequence[NetworkCost], more: int
    ) -> CostModel:
        """Adds the memory for one more length.

        Args:
          networks: some networks.
          costs: their costs with the measured lengths.
          others: their costs with another number of lengths.
          more: number of additional lengths in `others`; negative for fewer.
        """
        differences = [
            max((other.memory_bytes - cost.memory_bytes) / more / 1e6, 0.0)
            for cost, other in zip(costs, others, strict=True)
        ]
        rows = [self._length_terms(config) for config, _ in networks]
        return dataclasses.replace(self, length_memory=_coefficients(rows, differences))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthModel:
    """A text's latency at one length.

    Attributes:
      length: number of tokens.
      coefficients: each term's coefficient, in milliseconds.
    """

    length: int
    coefficients: list[float]


def terms(config: EncoderConfig, *, first_token: bool) -> np.ndarray:
    """Returns the latency's terms; it is linear in them.

    1; whole layers, and their heads and neurons; the embedding's rank; heads and neurons in a last layer for one token.

    Args:
      config: the architecture.
      first_token: whether the last layer computes queries and neurons for the first token only.
    """
    last = 1 if first_token else 0
    layers, heads, neurons = config.num_layers - last, config.num_attention_heads, config.intermediate_size
    rank = config.embedding_size if config.embedding_projection == "factors" else 0
    sums = [1.0, layers, layers * heads, layers * neurons, rank / config.hidden_size]
    return np.array([*sums, last * heads, last * neurons])


def size_terms(config: EncoderConfig, layers: int) -> np.ndarray:
    """Returns the terms for size and memory: 1, layers, all heads and neurons, and embedding with row scales.

    Args:
      config: the architecture.
      layers: number of stored layers for the size; of all layers for the memory, because a runtime packs each one.
    """
    width = config.embedding_size if config.embedding_projection == "factors" else config.hidden_size
    heads, neurons = config.num_attention_heads, config.intermediate_size
    return np.array([1.0, layers, layers * heads, layers * neurons, config.vocab_size * (width + 4) / 1e6])


def fitted_networks(
    teacher: EncoderConfig, task: TaskConfig, *, small_embedding: bool, part_of_vocabulary: bool = True
) -> list[RandomNetwork]:
    """Returns networks with different depths and widths to measure: the teacher's, and smaller ones for speed.

    Args:
      teacher: the teacher's architecture.
      task: the task. If its head reads the tokens' mean, some networks have a head for the first token.
      small_embedding: also one with a factored word embedding.
      part_of_vocabulary: shrink the smaller ones' vocabularies: they convert still faster, and trimmed files are
        predicted.
    """
    count, heads, neurons = teacher.num_layers, teacher.num_attention_heads, teacher.intermediate_size
    middle = count // 2 if count > _SHALLOW else count
    half, few = (max(heads // 2, 1), max(neurons // 4, 1)) if can_be_narrowed(teacher) else (heads, neurons)
    part = teacher.vocab_size // _VOCABULARY_PART if part_of_vocabulary else teacher.vocab_size

    def network(
        layers: int, of_heads: int, of_neurons: int, of_task: TaskConfig = task, *, rank: int | None = None
    ) -> RandomNetwork:
        structure = Structure(
            layers=tuple(range(1, layers + 1)), heads=of_heads, intermediate_size=of_neurons, embedding_rank=rank
        )
        return RandomNetwork(structure.config(teacher).replace(vocab_size=part), of_task)

    networks = [RandomNetwork(teacher, task), network(1, heads, neurons), network(middle, half, neurons)]
    networks += [network(middle, heads, few), network(middle, half, few), network(1, half, few)]
    if get_task(task).first_token_only:
        # Otherwise heads and neurons of whole layers could be those of the last one. More networks than terms average
        # the error of each: the largest was in narrow ones, deep or with a single layer.
        networks += [network(1, half, neurons), network(1, heads, few), network(count, half, few)]
    if small_embedding and can_be_narrowed(teacher):
        networks.append(network(middle, heads, neurons, rank=SMALL_RANK))
    if task.pooling == "mean":
        first = dataclasses.replace(task, pooling=None)
        networks += [network(1, heads, neurons, first), network(1, half, few, first)]
    # A teacher that cannot be narrowed gives equal ones.
    return list(dict.fromkeys(networks))


def fit(networks: Sequence[RandomNetwork], costs: Sequence[NetworkCost], setting: Setting) -> CostModel:
    """Fits the model; relative errors count, so cheap networks fit as well as dear ones.

    Args:
      networks: measured networks.
      costs: their costs.
      setting: the data's task, recipe and lengths.
    """
    rows = [terms(config, first_token=get_task(task).first_token_only) for config, task in networks]
    latency = [
        LengthModel(length=length, coefficients=_coefficients(rows, [cost.latency_us[number] / 1e3 for cost in costs]))
        for number, length in enumerate(setting.lengths)
    ]
    stored = [size_terms(config, config.num_stored_layers) for config, _ in networks]
    run = [size_terms(config, config.num_layers) for config, _ in networks]
    return CostModel(
        first_token=get_task(setting.task).first_token_only,
        latency=latency,
        size=_coefficients(stored, [cost.file_bytes / 1e6 for cost in costs]),
        memory=_coefficients(run, [cost.memory_bytes / 1e6 for cost in costs]),
    )


def fitted_model(
    teacher: EncoderConfig,
    setting: Setting,
    *,
    small_embedding: bool,
    device: Device,
    other_lengths: tuple[int, ...] = (),
) -> CostModel:
    """Returns a device's model: a cached one for the same networks, otherwise a new one.

    The cache from `pocketbert.data.assets` has one for each device, runtime, exporter and teacher.

    Args:
      teacher: the teacher's architecture.
      setting: task, recipe and lengths.
      small_embedding: also measure a factored word embedding.
      device: where they run.
      other_lengths: more or fewer lengths than in `setting`, to measure the memory for one more; empty to leave it out.
    Raises:
      UserError: a network cannot be measured.
    """
    # A phone's networks have the whole tokenizer.
    part = not device.name
    networks = fitted_networks(teacher, setting.task, small_embedding=small_embedding, part_of_vocabulary=part)
    return _kept(networks, setting, device, other_lengths)


def measured_model(
    config: EncoderConfig, setting: Setting, *, device: Device, other_lengths: tuple[int, ...] = ()
) -> CostModel:
    """Returns a model for a single network: its measured costs; see `fitted_model`."""
    return _kept([RandomNetwork(config, setting.task)], setting, device, other_lengths)


def _kept(
    networks: Sequence[RandomNetwork], setting: Setting, device: Device, other_lengths: tuple[int, ...]
) -> CostModel:
    path = cache_folder() / "costs" / f"{_identity(networks, setting, device, other_lengths)}.json"
    if path.exists():
        with contextlib.suppress(UserError, KeyError):
            model = read_costs(path)[setting.recipe]
            log_info(
                f"{setting.recipe}: costs are predicted from earlier measurements on {device.name or 'this machine'}"
            )
            return model
    folder = path.with_suffix("")
    costs = device.measure(networks, setting, folder)
    model = fit(networks, costs, setting)
    if other_lengths:
        # The deepest and the shallowest.
        few, more = networks[:2], len(other_lengths) - len(setting.lengths)
        differing = device.measure(few, dataclasses.replace(setting, lengths=other_lengths), folder / "lengths")
        model = model.with_length_memory(few, costs[: len(few)], differing, more)
    shutil.rmtree(folder, ignore_errors=True)
    others = float(np.median([cost.others_cpu_percent for cost in costs]))
    if others > _MOST_OTHERS:
        log_info(f"other programs used {others:.0f} % of the CPU, so these costs are not kept for the next run")
        return model
    # A cache that cannot be written costs only time.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_costs({setting.recipe: model}, path)
    return model


def write_costs(models: Mapping[str, CostModel], path: Path) -> None:
    """Writes each recipe's model for later attempts."""
    write_json(path, {recipe: dataclasses.asdict(model) for recipe, model in models.items()})


def read_costs(path: Path) -> dict[str, CostModel]:
    """Reads an earlier attempt's models; raises a `UserError` if the file is damaged or has other terms."""
    models = from_json(dict[str, CostModel], read_json(path), str(path))
    counts = {len(of_length.coefficients) for model in models.values() for of_length in model.latency}
    if counts - {_LATENCY_TERMS}:
        raise UserError(
            f"{path} must have {_LATENCY_TERMS} coefficients for each length; received {max(counts)}, from another "
            "version; compress into a new folder"
        )
    return models


def _identity(
    networks: Sequence[RandomNetwork], setting: Setting, device: Device, other_lengths: tuple[int, ...]
) -> str:
    """Everything behind the measurements, as a file name."""
    described = [[dataclasses.asdict(part) for part in network] for network in networks]
    here = dataclasses.replace(machine.machine(), load_average=())
    measured = [described, dataclasses.asdict(setting), other_lengths]
    content = [*measured, device.name, dataclasses.asdict(here), machine.commit()]
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]


def _coefficients(rows: Sequence[np.ndarray], values: Sequence[float]) -> list[float]:
    if not all(values):
        # Not reported.
        return [0.0] * len(rows[0])
    scale = np.array(values)
    coefficients, *_ = np.linalg.lstsq(np.stack(rows) / scale[:, None], np.ones(len(values)), rcond=None)
    return [float(coefficient) for coefficient in coefficients]
