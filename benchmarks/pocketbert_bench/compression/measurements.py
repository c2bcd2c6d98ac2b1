"""Measure bundles' costs beside the teacher's, and keep them for a later run that repeats the choice."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.notation import argument
from pocketbert.progress import log_info
from pocketbert.training.run_folder import OPTIONS_FILE, RESULT_FILE, read_record
from pocketbert_bench.compression.constraints import Constraints, Cost
from pocketbert_bench.compression.lengths import padded_shares
from pocketbert_bench.network_latency import Device
from pocketbert_bench.results import Measurement
from pocketbert_bench.statistics import bootstrap_median, pair_ratios, round_medians
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from pocketbert_runtime.json_reading import from_json, read_json

# Costs predicted for structures from measured networks; and costs measured for exported candidates.
COSTS_FILE, MEASURED_FILE = "costs.json", "measurements.json"
MEASUREMENTS_FOLDER = "measurements"
# A busy machine may miss the limit by this part of it.
_NEAR = 0.1
# A latency is certain if its interval is at most this part of it. Otherwise it is measured again, at most so many
# times, and for this part of the time; winner and runner-up together take a tenth.
_CERTAIN, _MOST_MEASURED, _MEASURING_SHARE = 0.1, 4, 0.05
# A smaller difference from the predicted latency may be a prediction error.
_SLOWER = 1.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Median latency with its 95 % interval, the teacher's latency by the ratio of both, size, memory, and runtime."""

    latency_ms: tuple[float, float, float]
    teacher_ms: float
    size_mb: float
    memory_mb: float
    runtime: str = ""

    @property
    def doubt(self) -> str:
        """A remark if the latency's interval is wide; otherwise empty."""
        median, low, high = self.latency_ms
        if high - low <= _CERTAIN * median:
            return ""
        return f"the machine is busy: latencies lie between {low:.3g} and {high:.3g} ms, so the latency is not certain"

    @property
    def upper(self) -> Cost:
        """The costs, with the upper end of the latency's interval."""
        return Cost(latency_ms=self.latency_ms[2], size_mb=self.size_mb, memory_mb=self.memory_mb)


class BundleMeasurements:
    """Measures bundles beside the teacher's, again if other programs disturb.

    Args:
      folder: the compression's folder, to keep the measurements.
      shares: see `measure`.
      limits: the limits.
      device: where they run.
      minutes: time for the compression, or None.
      teacher_ms: the teacher bundle's latency, measured for predictions; infinite for another recipe.
    """

    def __init__(
        self,
        folder: Path,
        shares: Mapping[int, float],
        limits: Constraints,
        *,
        device: Device,
        minutes: float | None,
        teacher_ms: float,
    ) -> None:
        self._folder, self._shares, self._limits, self._device = folder, shares, limits, device
        self.teacher_ms = teacher_ms
        self._most_seconds = math.inf if minutes is None else 60 * minutes * _MEASURING_SHARE

    def of(self, name: str, bundle: Bundle, teacher: Bundle) -> Measured:
        """Returns a bundle's costs, perhaps measured by an earlier attempt.

        Other programs only add time, so the fastest measurement counts. Limits choose a file's recipe, vocabulary and
        lengths, so a run with other limits may have measured another file for this candidate; its size tells them
        apart.
        """
        measured = read_measured(self._folder)
        if name in measured and measured[name].size_mb == size_mb(bundle):
            return measured[name]
        if name in measured:
            log_info(f"{name}: the kept costs are those of another file, so it is measured")
        began, limits = time.monotonic(), self._limits
        costs = self._measure(f"{name}-0", bundle, teacher)
        for number in range(1, _MOST_MEASURED):
            of_latency = dataclasses.replace(costs.upper, size_mb=0.0, memory_mb=0.0)
            near_miss, slower = 0 < limits.excess(of_latency) < _NEAR, self.misses_only_now(costs)
            late = time.monotonic() - began > self._most_seconds
            if late or not (near_miss or slower or (limits.max_latency_ms is not None and costs.doubt)):
                break
            log_info(f"{name}: {costs.latency_ms[2]:.3g} ms is not certain: measuring again")
            costs = min(costs, self._measure(f"{name}-{number}", bundle, teacher), key=lambda one: one.latency_ms)
            if near_miss and not slower:
                break
        write_measured(measured | {name: costs}, self._folder)
        return costs

    def misses_only_now(self, costs: Measured) -> str:
        """Explains why costs beyond the limits would be within them at the machine's usual speed; otherwise empty."""
        slowdown = max(costs.teacher_ms / self.teacher_ms, 1.0)
        usual = dataclasses.replace(costs.upper, latency_ms=costs.upper.latency_ms / slowdown)
        if slowdown < _SLOWER or not self._limits.excess(costs.upper) or self._limits.excess(usual):
            return ""
        return (
            f"the limit of {self._limits.max_latency_ms:g} ms is not certain, since the machine has become slower: "
            f"the teacher took {self.teacher_ms:.3g} ms by measurements for predictions, and takes "
            f"{costs.teacher_ms:.3g} ms now"
        )

    def _measure(self, name: str, bundle: Bundle, teacher: Bundle) -> Measured:
        folder = self._folder / MEASUREMENTS_FOLDER / name
        # The file may have fewer lengths than the teacher's.
        shares = padded_shares(self._shares, bundle.lengths)
        return measure(bundle, teacher, shares, device=self._device, threads=self._limits.threads, folder=folder)


def measure(
    bundle: Bundle, teacher: Bundle, shares: Mapping[int, float], *, device: Device, threads: int, folder: Path
) -> Measured:
    """Measures a bundle and the teacher's in interleaved rounds.

    Args:
      bundle: the bundle.
      teacher: the teacher's bundle.
      shares: length in tokens → share in the mean latency. Both ends of its interval are means over the lengths, so the
        interval is rather too wide.
      device: where they run.
      threads: threads per call.
      folder: keeps an interrupted call's measurements on a phone.
    Raises:
      UserError: a bundle does not run.
    """
    paths = {bundle.directory: "candidate", teacher.directory: "teacher"}
    measurements = device.bench(paths, list(shares), threads, folder)
    if problems := [measurement.error for measurement in measurements if measurement.error]:
        raise UserError(f"the bundles must run to be measured; received: {problems[0]}")
    of = {(measurement.model, measurement.length): measurement for measurement in measurements}
    latency, teacher_ms, memory, runtime = np.zeros(3), 0.0, 0, ""
    for length, share in shares.items():
        candidate = of["candidate", length]
        samples = np.array(candidate.latency_us) / 1e3
        latency += share * np.array([np.median(samples), *bootstrap_median(samples)])
        # Other programs slow down both networks in a round.
        teacher_ms += share * float(np.median(samples)) / round_ratio(candidate, of["teacher", length])
        memory = max(memory, candidate.peak_memory_bytes or 0)
        runtime = f"{candidate.runtime.name} {candidate.runtime.version}" if candidate.runtime else ""
    median, low, high = map(float, latency)
    return Measured(
        latency_ms=(median, low, high),
        teacher_ms=teacher_ms,
        size_mb=size_mb(bundle),
        memory_mb=memory / 1e6,
        runtime=runtime,
    )


def size_mb(bundle: Bundle) -> float:
    """Returns a bundle's file size, in MB of 10⁶ bytes."""
    return (bundle.directory / MODEL_FILE).stat().st_size / 1e6


def round_ratio(first: Measurement, second: Measurement) -> float:
    """Returns the median ratio between two latencies over their common rounds."""
    rounds = [round_medians(one.latency_us, one.round_sizes) for one in (first, second)]
    count = min(map(len, rounds))
    return float(np.median(pair_ratios(*(latencies[:count].tolist() for latencies in rounds))))


def check_measurements(run: Path, networks: Mapping[str, Any]) -> None:
    """Checks that another run has measured this run's networks.

    Args:
      run: the earlier run's folder.
      networks: everything the networks depend on, as the run records it.
    Raises:
      UserError: it has not finished, is a run of another command, or has other networks.
    """
    name, files = argument("measurements", str(run)), (OPTIONS_FILE, RESULT_FILE, COSTS_FILE, MEASURED_FILE)
    if missing := [file for file in files if not (run / file).is_file()]:
        raise UserError(f"{name} must be a finished run of pocketbert compress; it has no {', '.join(missing)}")
    record = read_record(run / OPTIONS_FILE)
    if other := [key for key, value in networks.items() if record.get(key) != value]:
        raise UserError(
            f"{name} must have the networks of this run; it has other {', '.join(other)}; leave it out to measure them"
        )


def read_measured(folder: Path) -> dict[str, Measured]:
    """Reads the exported candidates' costs by name; raises a `UserError` if the file is damaged."""
    path = folder / MEASURED_FILE
    return from_json(dict[str, Measured], read_json(path), str(path)) if path.exists() else {}


def write_measured(measured: Mapping[str, Measured], folder: Path) -> None:
    """Writes the exported candidates' costs."""
    write_json(folder / MEASURED_FILE, {name: dataclasses.asdict(costs) for name, costs in measured.items()})
