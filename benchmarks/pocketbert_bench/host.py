"""Measure latency on this machine: one process per configuration, in shuffled rounds."""

from __future__ import annotations

import dataclasses
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pocketbert import files, progress
from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_bench import configurations, load, machine
from pocketbert_bench import weight_cache as caches
from pocketbert_bench.bundle_outcomes import outcomes_of
from pocketbert_bench.configurations import Configuration, LiteRT
from pocketbert_bench.results import (
    RANDOM_WEIGHTS_NOTE,
    Delegate,
    GoldenCheck,
    Measurement,
    ResultFile,
    Runtime,
    Weights,
    now,
    result_file,
)
from pocketbert_bench.worker_process import WorkerFailed, WorkerProcess

# The state is steady when the medians of two consecutive warm-up batches differ by less.
STEADY = 0.05
WARM_UP_BATCH = 5
LONGEST_WARM_UP_SECONDS = 10.0
# Between turns a worker loses its caches; these unrecorded calls refill them.
CALLS_BEFORE_A_ROUND = 3
# More calls would make result files long without narrowing the intervals, which depend on the rounds.
MOST_RUNS = 1000


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Measurement durations.

    Attributes:
      rounds: number of turns per configuration.
      runs: minimum number of recorded calls in all rounds together.
      seconds: target duration for the recorded calls in all rounds together, if that is more calls than `runs`.
      longest_seconds: limit on this duration, even if it allows fewer calls than `runs`.
      warm_up_runs: minimum number of calls before the first round.
      warm_up_seconds: minimum warm-up duration.
    """

    rounds: int
    runs: int
    seconds: float
    longest_seconds: float
    warm_up_runs: int = 5
    warm_up_seconds: float = 1.0


FULL = Schedule(rounds=10, runs=50, seconds=2.0, longest_seconds=10.0)
QUICK = Schedule(rounds=5, runs=25, seconds=0.5, longest_seconds=3.0, warm_up_seconds=0.2)


class Worker(WorkerProcess):
    """A process with one configuration's model.

    Raises:
      WorkerFailed: the model cannot be opened or run.
    """

    def __init__(self, configuration: Configuration) -> None:
        super().__init__([sys.executable, "-m", "pocketbert_bench.worker"])
        job = {
            "runtime": configuration.runtime,
            # The worker is a separate program and does not know its caller.
            "other_runtime": argument("runtime", "litert"),
            "model_path": str(configuration.model_path),
            "head_path": configuration.head_path and str(configuration.head_path),
            "threads": configuration.threads,
            "weight_cache": configuration.weight_cache and str(configuration.weight_cache),
            "calls": [vars(call) for call in configuration.calls],
        }
        try:
            self.started: dict[str, Any] = self.ask(job)
        except BaseException:
            self.close()
            raise

    def run(self, calls: Sequence[int]) -> list[float]:
        """Makes calls by number; returns latencies in microseconds."""
        self.last = self.ask(list(calls))
        return [float(value) for value in self.last["latency_us"]]


def bench_bundles(
    bundles: Sequence[Path],
    *,
    lengths: Sequence[int] | None = None,
    threads: Sequence[int] = (1,),
    quick: bool = False,
    baselines: Sequence[Configuration] = (),
    weights: Weights | None = None,
    names: Mapping[Path, str] | None = None,
    labels: Mapping[Path, str] | None = None,
    runtimes: Sequence[LiteRT] = ("litert",),
    weight_cache: Path | None = None,
    title: str = "Latency of exported bundles",
    seed: int = 0,
) -> ResultFile:
    """Times bundles and baselines on this machine.

    A damaged or crashing bundle gets `status` failed and a reason in the result; the others continue.

    Args:
      bundles: folders made by `pocketbert export`.
      lengths: sequence lengths in tokens; None uses all in the bundle.
      threads: numbers of threads.
      quick: shortened run; the result records this.
      baselines: baselines to time in the same rounds.
      weights: whether the weights are trained or random; None if unknown.
      names: bundle → the network's name (default: the folder's name).
      labels: bundle → name in tables (default: the recipe).
      runtimes: `litert` (the interpreter), `litert-compiled` (CompiledModel) or both.
      weight_cache: folder for XNNPACK's weight caches, with `litert-compiled`; None runs without.
      title: the run's title.
      seed: seed for the order.
    Raises:
      UserError: a folder does not exist or cannot be written to, lengths or numbers of threads are invalid, or none of
        the bundles has one of the lengths.
    """
    if weight_cache:
        caches.check_folder(weight_cache)
    if any(number < 1 for number in [*threads, *(lengths or ())]) or not threads:
        raise UserError(f"lengths and threads must be positive; received {lengths} and {list(threads)}")
    everything = configurations.from_bundles(
        bundles, lengths, threads, weights=weights, models=names or {}, labels=labels or {}
    )
    everything = configurations.on_runtimes(everything, runtimes)
    if weight_cache:
        everything = [with_weight_cache(configuration, weight_cache) for configuration in everything]
    everything += [dataclasses.replace(baseline, weights=weights) for baseline in baselines]
    created, before = now(), machine.machine()
    measurements = measure(everything, QUICK if quick else FULL, seed=seed)
    notes = configurations.pair_notes(everything)
    for line in notes:
        progress.log_info(line)
    notes += [RANDOM_WEIGHTS_NOTE] if weights == "random" else []
    fields: dict[str, Any] = {"measurements": measurements, "outcomes": outcomes_of(everything), "notes": notes}
    return result_file(title, quick=quick, **fields, on=before, created=created)


def measure(configurations: Sequence[Configuration], schedule: Schedule, seed: int = 0) -> list[Measurement]:
    """Measures configurations in shuffled, interleaved rounds; returns one measurement for each, in the given order.

    Args:
      configurations: each gets its own process; all stay open together. Failed ones have a sentence.
      schedule: duration.
      seed: seed for the order.
    """
    generator = random.Random(seed)
    subjects = [_Subject(configuration) for configuration in configurations]
    try:
        with progress.bar(len(subjects) * (schedule.rounds + 1), "measuring", "turn") as turns:
            for subject in generator.sample(subjects, len(subjects)):
                subject.guard(subject.start, schedule)
                turns.update()
            for _ in range(schedule.rounds):
                for subject in generator.sample(subjects, len(subjects)):
                    subject.guard(subject.take_turn)
                    turns.update()
        fastest = min((min(turn.calibration_us) for subject in subjects for turn in subject.turns), default=1.0)
        measurements = [subject.measurement(fastest) for subject in subjects]
        if warning := load.warning([measurement.load for measurement in measurements if measurement.load]):
            progress.log_info(warning)
        return measurements
    finally:
        for subject in subjects:
            if subject.worker:
                subject.worker.close()


def with_weight_cache(configuration: Configuration, folder: Path) -> Configuration:
    """Builds a compiled model's weight cache in a folder, if there is none; other configurations stay as they are."""
    if configuration.runtime != "litert-compiled" or configuration.problem:
        return configuration

    def build(path: Path) -> None:
        Worker(dataclasses.replace(configuration, weight_cache=path)).close()

    try:
        path = caches.prepare(folder, configuration.model_path, build)
    except WorkerFailed as failure:
        return dataclasses.replace(configuration, problem=str(failure))
    return dataclasses.replace(configuration, weight_cache=path)


def _expected_delegates(model_path: Path) -> tuple[Delegate, ...]:
    # Imports TensorFlow's schema; --help needs none.
    from pocketbert_export.tflite.delegates import documented_shares

    shares = [dataclasses.asdict(share) for share in documented_shares(model_path)]
    return tuple(Delegate(**share) for share in shares if share["total_ops"])


class _Subject:
    """One configuration during the measurement."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.worker: Worker | None = None
        self.error = configuration.problem
        self.latency_us: list[float] = []
        self.round_sizes: list[int] = []
        self.turns: list[load.Turn] = []
        self._warm_up_runs = 0
        self._warmed_up: bool | None = None
        self._runs_in_a_round = 0
        self._golden: GoldenCheck | None = None
        self._thermal_start = machine.thermal()
        self._next_call = 0

    def guard(self, step: Any, *arguments: Any) -> None:
        """Takes a step unless an earlier one failed; a failure becomes the configuration's result."""
        if self.error:
            return
        try:
            step(*arguments)
        except WorkerFailed as failure:
            self.error = str(failure)
            progress.log_info(f"{self.configuration.label} at {self.configuration.length} tokens: {self.error}")

    def start(self, schedule: Schedule) -> None:
        """Opens the model, checks its outputs, and warms it up."""
        self.worker = Worker(self.configuration)
        self._check(self.worker.started["golden_differences"])
        self._runs_in_a_round = self._warm_up(schedule)

    def take_turn(self) -> None:
        """Runs one round's calls."""
        meter = load.Meter()
        meter.start()
        latencies = self._run(CALLS_BEFORE_A_ROUND + self._runs_in_a_round)[CALLS_BEFORE_A_ROUND:]
        assert self.worker
        self.turns.append(meter.stop(self.worker.last["process_seconds"], self.worker.last["waiting_seconds"]))
        self.latency_us += [round(value, 1) for value in latencies]
        self.round_sizes.append(len(latencies))

    def measurement(self, fastest_calibration_us: float) -> Measurement:
        """Builds the result; `fastest_calibration_us` is the fixed calculation's minimum duration in the run."""
        configuration, failed = self.configuration, bool(self.error)
        started = self.worker.started if self.worker else {}
        path = configuration.model_path
        delegate = started.get("delegate")
        signatures = {call.signature for call in configuration.calls} - {""}
        return Measurement(
            label=configuration.label,
            model=configuration.model,
            recipe=configuration.recipe,
            peer=configuration.is_baseline,
            weights=configuration.weights,
            model_file=path.name,
            model_sha256=files.sha256(path) if path.is_file() else None,
            size_bytes=path.stat().st_size if path.is_file() else None,
            signature=signatures.pop() if len(signatures) == 1 else None,
            length=configuration.length,
            threads=configuration.threads,
            runtime=Runtime(name=configuration.runtime, version=started["version"]) if started else None,
            delegate=Delegate(**delegate) if delegate else None,
            expected_delegates=_expected_delegates(path) if "litert" in configuration.runtime and not failed else None,
            status="failed" if failed else "ok",
            error=self.error,
            golden=self._golden,
            init_us=started.get("init_us"),
            first_inference_us=started.get("first_inference_us"),
            warm_up_runs=self._warm_up_runs,
            warmed_up=self._warmed_up,
            latency_us=() if failed else tuple(self.latency_us),
            round_sizes=() if failed else tuple(self.round_sizes),
            peak_memory_bytes=None if failed or not self.worker else self.worker.last["peak_memory_bytes"],
            base_memory_bytes=started.get("base_memory_bytes"),
            resident_memory_bytes=None if failed else started.get("resident_memory_bytes"),
            weight_cache_bytes=configuration.weight_cache.stat().st_size if configuration.weight_cache else None,
            thermal_start=self._thermal_start,
            thermal_end=machine.thermal(),
            load=None
            if failed
            else load.summarize(self.turns, fastest_calibration_us, self.latency_us, self.round_sizes),
        )

    def _check(self, differences: Sequence[float]) -> None:
        if not differences:
            return
        tolerance = self.configuration.tolerance()
        self._golden = GoldenCheck(
            examples=len(differences), max_absolute_difference=max(differences), tolerance=tolerance
        )
        if self._golden.max_absolute_difference > tolerance:
            raise WorkerFailed(
                f"its outputs must be those recorded at export; an output is off by "
                f"{self._golden.max_absolute_difference:.3g}, but only {tolerance:.3g} is allowed; export it again"
            )

    def _warm_up(self, schedule: Schedule) -> int:
        """Runs until steady; returns the number of calls per round."""
        seconds, before = 0.0, float("inf")
        while True:
            batch = self._run(WARM_UP_BATCH)
            self._warm_up_runs += len(batch)
            seconds += sum(batch) / 1e6
            median = statistics.median(batch)
            steady = abs(median - before) < STEADY * before
            enough = self._warm_up_runs >= schedule.warm_up_runs and seconds >= schedule.warm_up_seconds
            self._warmed_up = enough and steady
            if self._warmed_up or seconds > LONGEST_WARM_UP_SECONDS:
                break
            before = median
        median_seconds = max(median / 1e6, 1e-6)
        runs = min(max(schedule.runs, schedule.seconds / median_seconds), MOST_RUNS)
        return max(1, round(min(runs, schedule.longest_seconds / median_seconds) / schedule.rounds))

    def _run(self, count: int) -> list[float]:
        assert self.worker
        number = len(self.configuration.calls)
        calls = [(self._next_call + index) % number for index in range(count)]
        self._next_call = (self._next_call + count) % number
        return self.worker.run(calls)
