"""Latency for networks with random weights, on this machine or on a phone."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.errors import UserError
from pocketbert.files import write_bytes
from pocketbert.progress import bar
from pocketbert.work_list import WorkList
from pocketbert_bench.adb import HOST
from pocketbert_bench.results import Measurement, Weights
from pocketbert_bench.statistics import round_medians

if TYPE_CHECKING:
    from pocketbert_bench import configurations, host

# Processes per network and per trained bundle on a phone; the order differs in each.
_REPEATS, _REPEATS_OF_BUNDLES = 3, 5
_MOST = 1e9


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How networks are exported and called.

    Attributes:
      task: the networks' task, unless they have others.
      recipe: the exported files' recipe.
      lengths: tokens per text, ascending; each is measured.
      threads: threads per call.
    """

    task: TaskConfig
    recipe: str
    lengths: tuple[int, ...]
    threads: int = 1

    @property
    def length(self) -> int:
        """The longest length."""
        return self.lengths[-1]


class RandomNetwork(NamedTuple):
    """A network with random weights: its architecture, and its head's task."""

    config: EncoderConfig
    task: TaskConfig


class NetworkCost(NamedTuple):
    """A network's costs.

    Attributes:
      latency_us: median latency at each length, in microseconds.
      file_bytes: file size.
      memory_bytes: its processes' peak resident memory; 0 where the system does not tell.
      others_cpu_percent: other programs' processor time meanwhile; 0 where the system does not tell.
    """

    latency_us: tuple[float, ...]
    file_bytes: int
    memory_bytes: int
    others_cpu_percent: float = 0.0


class Device(Protocol):
    """A machine to run networks on.

    Attributes:
      name: name in messages and records; empty for this machine.
    """

    @property
    def name(self) -> str:
        """See the class."""

    def check(self) -> None:
        """Raises a `UserError` if the device cannot measure."""

    def measure(self, networks: Sequence[RandomNetwork], setting: Setting, folder: Path) -> list[NetworkCost]:
        """Measures networks with random weights in the same rounds.

        Args:
          networks: the networks.
          setting: how they are exported and called.
          folder: keeps an interrupted call's measurements; not used by this machine.
        Raises:
          UserError: a network does not run.
        """

    def bench(
        self, bundles: Mapping[Path, str], lengths: Sequence[int], threads: int, folder: Path
    ) -> Sequence[Measurement]:
        """Measures bundles with trained weights in the same rounds.

        Args:
          bundles: folder → name in the measurements.
          lengths: tokens per text.
          threads: threads per call.
          folder: see `measure`.
        Raises:
          UserError: the device does not finish; the same call resumes.
        """


class Host:
    """This machine.

    Args:
      schedule: duration at one length; None for a quick one.
    """

    name = ""

    def __init__(self, schedule: host.Schedule | None = None) -> None:
        self._schedule = schedule

    def check(self) -> None:
        """See `Device`."""

    def measure(self, networks: Sequence[RandomNetwork], setting: Setting, folder: Path) -> list[NetworkCost]:
        """See `Device`."""
        from pocketbert_bench import host

        with tempfile.TemporaryDirectory() as temporary:
            paths = [Path(temporary, f"network-{number}.tflite") for number in range(len(networks))]
            with bar(len(networks), "converting networks", "network") as progress:
                for path, network in zip(paths, networks, strict=True):
                    _write_network(network, setting, path)
                    progress.update()
            # At one length after another: every configuration has a process.
            measurements = [
                host.measure(
                    [
                        _configuration(path, setting, length, network.config)
                        for path, network in zip(paths, networks, strict=True)
                    ],
                    self._schedule or host.QUICK,
                )
                for length in setting.lengths
            ]
            return _costs(zip(*measurements, strict=True))

    def bench(
        self, bundles: Mapping[Path, str], lengths: Sequence[int], threads: int, folder: Path
    ) -> Sequence[Measurement]:
        """See `Device`."""
        from pocketbert_bench import host

        return host.bench_bundles(
            list(bundles), lengths=lengths, threads=[threads], weights="trained", names=bundles
        ).measurements


def _write_network(network: RandomNetwork, setting: Setting, path: Path) -> None:
    """Converts a network with random weights, and for separate pairs its head; no cost depends on the weights."""
    from pocketbert import from_preset
    from pocketbert_export.bundles.pair_head import head_content, text_encoder
    from pocketbert_export.conversion.convert import to_tflite
    from pocketbert_export.conversion.graph_optimization import optimize_graph
    from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
    from pocketbert_export.recipes import get_recipe
    from pocketbert_runtime.bundles.pair_forward import is_separate

    recipe = get_recipe(setting.recipe)
    model = from_preset(network.config, [network.task])
    if is_separate(network.task):
        write_bytes(_head_path(path), head_content(model))
        model = text_encoder(model)
    model = optimize_graph(model, GraphOptimizations().for_recipe(recipe))
    write_bytes(path, to_tflite(model, setting.lengths, recipe))


def _head_path(path: Path) -> Path:
    return path.with_suffix(".head.tflite")


def _configuration(path: Path, setting: Setting, length: int, config: EncoderConfig) -> configurations.Configuration:
    """How to call a file: one text without padding, or two for separate pairs."""
    from pocketbert_bench import configurations
    from pocketbert_runtime.bundles.description import signature_name

    ids = [1 + number % (config.vocab_size - 1) for number in range(length)]
    inputs = {"input_word_ids": ids, "input_mask": [1] * length, "input_type_ids": [0] * length}
    return configurations.Configuration(
        label=path.stem,
        model="network",
        recipe=setting.recipe,
        model_path=path,
        length=length,
        threads=setting.threads,
        head_path=_head_path(path) if _head_path(path).exists() else None,
        calls=(configurations.Call(signature=signature_name(length), inputs=inputs, expected=None),),
    )


@dataclass(frozen=True, kw_only=True)
class PhoneDevice:
    """A phone with the benchmark app.

    Attributes:
      serial: serial number as listed by `adb devices`.
      vocabulary: model directory with the bundles' vocabulary.
      apk: the app, for a phone without it; None if it has it.
    """

    serial: str
    vocabulary: Path
    apk: Path | None = None

    @property
    def name(self) -> str:
        """See `Device`; no file contains the serial number."""
        return f"phone {hashlib.sha256(self.serial.encode()).hexdigest()[:6]}"

    def check(self) -> None:
        """See `Device`."""
        from pocketbert_bench import adb, device

        device.find_phones(adb.find(), [self.serial])

    def measure(self, networks: Sequence[RandomNetwork], setting: Setting, folder: Path) -> list[NetworkCost]:
        """See `Device`; if the phone does not finish, the same call resumes."""
        bundles = [folder / "networks" / f"network-{number}" for number in range(len(networks))]
        work = WorkList(zip(bundles, networks, strict=True), lambda network: network[0].exists())
        with bar(len(networks), "exporting networks", "network", initial=len(work.finished)) as progress:
            for path, network in work.pending:
                self._export(path, network, setting)
                progress.update()
        names = {path: path.name for path in bundles}
        measured = self.bench(
            names, setting.lengths, setting.threads, folder / "measurements", weights="random", repeats=_REPEATS
        )
        count = len(setting.lengths)
        return _costs(zip(*(measured[number::count] for number in range(count)), strict=True))

    def bench(
        self,
        bundles: Mapping[Path, str],
        lengths: Sequence[int],
        threads: int,
        folder: Path,
        weights: Weights = "trained",
        repeats: int = _REPEATS_OF_BUNDLES,
    ) -> Sequence[Measurement]:
        """See `Device`; `repeats` is the number of processes per bundle."""
        from pocketbert_bench import configurations, device
        from pocketbert_bench.phone_plan import PhonePlan

        plan = PhonePlan(
            configurations=tuple(
                configurations.from_bundles(list(bundles), lengths, [threads], weights=weights, models=bundles)
            ),
            repeats=repeats,
        )
        (outcome,) = device.bench_phones([self.serial], plan, folder, apk=self.apk)
        if outcome.problem or outcome.result is None:
            raise UserError(f"{outcome.name}: {outcome.problem}; run the same command to resume")
        return outcome.result.measurements

    def _export(self, path: Path, network: RandomNetwork, setting: Setting) -> None:
        from pocketbert import from_preset
        from pocketbert.recipes import Bounds
        from pocketbert.tokenizers.opening import open_tokenizer
        from pocketbert.training.initialization import vocabulary_of
        from pocketbert_export.exporter import export

        vocabulary = vocabulary_of(self.vocabulary)
        assert vocabulary is not None
        # Accuracy does not matter: the weights are random.
        bounds = Bounds(
            largest_difference=_MOST,
            rms_difference=_MOST,
            label_agreement=0.0,
            metric_drop_points=_MOST,
            metric_drop_deviations=_MOST,
            length_difference=_MOST,
            own_difference=_MOST,
            mean_cosine=-1.0,
        )
        model = from_preset(network.config, [network.task], open_tokenizer(vocabulary))
        path.parent.mkdir(parents=True, exist_ok=True)
        export(model, path, recipe=setting.recipe, lengths=setting.lengths, bounds=bounds)


def open_device(name: str, apk: str | None, vocabulary: Path, schedule: host.Schedule | None = None) -> Device:
    """Opens this machine, or a phone.

    Args:
      name: `adb.HOST`, or a phone's serial number.
      apk: see `PhoneDevice`.
      vocabulary: see `PhoneDevice`.
      schedule: see `Host`.
    """
    if name == HOST:
        return Host(schedule)
    return PhoneDevice(serial=name, vocabulary=vocabulary, apk=Path(apk) if apk else None)


def _costs(networks: Iterable[tuple[Measurement, ...]]) -> list[NetworkCost]:
    """The networks' costs, from each one's measurements at all lengths."""
    measured = list(networks)
    if problems := [one.error for at_lengths in measured for one in at_lengths if one.error]:
        raise UserError(f"networks must run to be measured; received: {problems[0]}")
    # One column for each length.
    latencies = zip(*map(_latencies, zip(*measured, strict=True)), strict=True)
    return [
        NetworkCost(
            latency_us=of_network,
            file_bytes=at_lengths[0].size_bytes or 0,
            memory_bytes=max(one.peak_memory_bytes or 0 for one in at_lengths),
            others_cpu_percent=max((one.load.others_cpu_percent or 0.0) if one.load else 0.0 for one in at_lengths),
        )
        for of_network, at_lengths in zip(latencies, measured, strict=True)
    ]


def _latencies(measurements: Sequence[Measurement]) -> list[float]:
    """Each network's median latency, as if the machine had been equally fast in all rounds.

    A round's slowness is the median over the networks, each against its median over the rounds.
    """
    rounds = [round_medians(one.latency_us, one.round_sizes) for one in measurements]
    logarithms = np.log(np.stack(rounds))
    slowness = np.median(logarithms - np.median(logarithms, axis=1, keepdims=True), axis=0)
    return [float(latency) for latency in np.exp(np.median(logarithms - slowness, axis=1))]
