"""Schema for measured results, on this machine and on phones: version 1.

A result file is a `ResultFile` as JSON. The dataclasses below are the only source for `results.schema.json` and the
documentation page (`pocketbert_bench.schema`). Latencies are stored raw.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pocketbert import files
from pocketbert.errors import UserError, raise_if_any
from pocketbert_bench import machine, schema, statistics
from pocketbert_bench.bundle_outcomes import BundleOutcome
from pocketbert_bench.load import Load
from pocketbert_bench.machine import Machine, Thermal
from pocketbert_runtime.json_reading import read_json

SCHEMA_TITLE = "PocketBERT result file, version 1"
# Enough for calls in 500 configurations; validating more would take minutes.
MOST_BYTES = 1 << 23
RANDOM_WEIGHTS_NOTE = "Weights are random: latency and size are meaningful, outputs are not."

Weights = Literal["trained", "random"]

_note = schema.note
_optional_note = schema.optional_note


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Runtime that executed the model."""

    name: Literal["litert", "litert-compiled", "tflite", "tflite-aar", "onnxruntime"] = _note(
        "the interpreter; litert-compiled is LiteRT's CompiledModel, "
        "tflite is TensorFlow Lite from the JavaCPP presets, tflite-aar its last archive for Android"
    )
    version: str = _note("version of the runtime")


@dataclass(frozen=True, kw_only=True)
class Delegate:
    """The part of a graph that runs on a delegate."""

    name: str = _note("for example XNNPACK, or GPU, which computes in half precision")
    delegated_ops: int = _note(
        "number of operators in the delegate, in the file's first subgraph; a lower bound with tflite-aar", minimum=0
    )
    total_ops: int = _note("number of operators in that subgraph", minimum=1)
    left: dict[str, int] | None = _optional_note("operator outside the delegate → number of uses; null if not counted")
    source: str | None = _optional_note("documented rules of an estimate; null if the runtime counted")

    def __str__(self) -> str:
        return f"{self.name} {100 * self.delegated_ops / self.total_ops:.0f} %"

    @property
    def is_gpu(self) -> bool:
        """Whether the graphics processor computes."""
        return self.name == "GPU"


@dataclass(frozen=True, kw_only=True)
class GoldenCheck:
    """Comparison with the golden examples before timing."""

    examples: int = _note("number of examples", minimum=1)
    max_absolute_difference: float = _note("largest difference from the recorded outputs", minimum=0)
    tolerance: float = _note("largest allowed difference", minimum=0)


@dataclass(frozen=True, kw_only=True)
class DeviceConditions:
    """State of a phone during the measurement; the worst over its repeats."""

    affinity: Literal["any", "big", "little"] = _note("requested processors: all, all but the slowest, or the slowest")
    processors_allowed: str | None = _note("processors available to the measuring thread, in Linux's form: 4-7")
    processors_khz: dict[str, int] | None = _note("processor → frequency after the last call; null if unknown")
    processors_highest_khz: dict[str, int] | None = _note("processor → maximum frequency; null if unknown")
    battery_percent: int | None = _note("charge; null if unknown", minimum=0, maximum=100)
    charging: bool | None = _note("whether the phone was connected to power; null if unknown")
    power_save: bool = _note("whether power saving was on")
    thermal_headroom: float | None = _note(
        "distance to throttling; 1 means that it throttles; null if unknown", minimum=0
    )
    repeat: int = _note("number of the repeat, from 1; the last one if several are joined", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One configuration: a model, a length, a number of threads and a runtime, in its own process."""

    label: str = _note("name in tables; differs between our exports and the baselines' of one network")
    model: str = _note("name of the network, shared by all its measurements")
    recipe: str = _note("number formats: float32, dynamic_wi8, …")
    # `peer` and `peer_samples` are keys of committed result files.
    peer: bool = _note("whether this is a baseline: another tool's export of the same network")
    weights: Weights | None = _note(
        "whether weights are trained or random; outputs of random weights are meaningless; null if unknown"
    )
    model_file: str = _note("file name, without folders")
    model_sha256: str | None = _note("digest of the file; null if it could not be read", pattern="^[0-9a-f]{64}$")
    size_bytes: int | None = _note("size of the model file; null if it could not be read", minimum=0)
    signature: str | None = _note("name of the called signature; null if the format has none")
    length: int | None = _note("tokens per call, including padding; null if the bundle could not be read", minimum=1)
    threads: int = _note("number of runtime threads", minimum=1)
    runtime: Runtime | None = _note("null if it never started")
    delegate: Delegate | None = _note("null if there is none, or if the runtime does not report it")
    expected_delegates: tuple[Delegate, ...] | None = _optional_note(
        "upper bounds for GPU and NPU by documented rules; null on phones and for other formats"
    )
    status: Literal["ok", "failed"] = _note("a failed configuration has no latency")
    error: str | None = _note("one sentence; null if ok")
    golden: GoldenCheck | None = _note("null without expected outputs (a baseline's file with random weights)")
    init_us: float | None = _note("time from the file's path to an open runner", minimum=0)
    first_inference_us: float | None = _note("duration of the first call, which also allocates", minimum=0)
    warm_up_runs: int = _note("number of unrecorded calls before the first round", minimum=0)
    warmed_up: bool | None = _optional_note(
        "whether these calls became steady; false if the warm-up reached its limit first; null if not checked"
    )
    latency_us: tuple[float, ...] = _note("all recorded calls in order, including copies of inputs and outputs")
    round_sizes: tuple[int, ...] = _note("number of calls in each interleaved round, in order")
    peak_memory_bytes: int | None = _note("peak resident memory of the process, including the runtime", minimum=0)
    base_memory_bytes: int | None = _note("resident memory before the model was opened", minimum=0)
    resident_memory_bytes: int | None = _optional_note(
        "resident memory after the golden check; null on phones and in earlier files", minimum=0
    )
    weight_cache_bytes: int | None = _optional_note("size of XNNPACK's weight cache; null without one", minimum=0)
    thermal_start: Thermal | None = _note("null if not read")
    thermal_end: Thermal | None = _note("null if not read")
    device: DeviceConditions | None = _optional_note("null unless a phone was measured")
    load: Load | None = _optional_note(
        "null if not measured: on phones, in the Java host's runs, and for failed configurations"
    )

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegate that ran, and estimates for others."""
        return (*((self.delegate,) if self.delegate else ()), *(self.expected_delegates or ()))

    @functools.cached_property
    def summary(self) -> statistics.Summary | None:
        """Statistics over the latencies; None if the measurement failed."""
        return statistics.summarize(self.latency_us) if self.latency_us else None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A model's score on labelled examples."""

    label: str = _note("label of the same file's measurements")
    model: str = _note("name of the network")
    recipe: str = _note("number formats; float32 for a model directory")
    model_sha256: str | None = _note("digest of the scored model file; null if unknown", pattern="^[0-9a-f]{64}$")
    task: str = _note("name of the task")
    split: str = _note("description of the examples")
    metric: str = _note("for example accuracy or matthews")
    value: float = _note("the score; 1 is perfect", minimum=-1, maximum=1)
    examples: int = _note("number of scored examples", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A comparison of two alternating measurements in one run."""

    name: str = _note("short and unique in the file")
    description: str = _note("numerator and denominator, in a sentence")
    ours: str = _note("name of the numerators")
    peer: str = _note("name of the denominators")
    unit: str = _note("unit of both, for example us or examples/s")
    ours_samples: tuple[float, ...] = _note("one value per pair, in order", minItems=1)
    peer_samples: tuple[float, ...] = _note("the other value of each pair", minItems=1)
    better: Literal["lower", "higher"] = _note("better direction")
    target: float | None = _note("target of the ratio; null without one", exclusiveMinimum=0)

    @functools.cached_property
    def _estimate(self) -> tuple[float, tuple[float, float]]:
        return statistics.paired_ratio(self.ours_samples, self.peer_samples)

    @property
    def value(self) -> float:
        """Median of ours ÷ baseline over the pairs."""
        return self._estimate[0]

    @property
    def interval(self) -> tuple[float, float]:
        """The median's 95 % bootstrap interval."""
        return self._estimate[1]

    @property
    def met(self) -> bool | None:
        """Whether the interval's worse end reaches the target; None without a target."""
        if self.target is None:
            return None
        return self.interval[1] <= self.target if self.better == "lower" else self.interval[0] >= self.target


@dataclass(frozen=True, kw_only=True)
class ResultFile:
    """One run on one machine."""

    schema_version: Literal[1] = _note("version of this schema")
    title: str = _note("purpose of the run")
    created: str = _note("start of the run, ISO 8601 in UTC")
    measured_on: Literal["device", "host", "qemu"] = _note("a phone, a computer, or a phone's code in an emulator")
    commit: str | None = _note("commit of the code; `-dirty` if tracked files differed; null outside a checkout")
    quick: bool = _note("shortened run, unsuitable for comparisons")
    machine: Machine = _note("the measured machine")
    measurements: tuple[Measurement, ...] = _note("latencies, one entry per configuration")
    accuracies: tuple[Accuracy, ...] = _note("scores")
    ratios: tuple[Ratio, ...] = _note("comparisons")
    notes: tuple[str, ...] = _note("notes for the reader, one sentence each")
    outcomes: tuple[BundleOutcome, ...] | None = _optional_note(
        "scores in the measured bundles; null in the Java host's runs"
    )


def ratio(
    *, ours_samples: Sequence[float], peer_samples: Sequence[float], target: float | None = None, **fields: Any
) -> Ratio:
    """Creates a `Ratio` from samples in any form, taken alternately."""
    our_samples, baseline = (tuple(float(sample) for sample in samples) for samples in (ours_samples, peer_samples))
    return Ratio(ours_samples=our_samples, peer_samples=baseline, target=target, **fields)


def latency_ratio(name: str, ours: Measurement, baseline: Measurement, description: str, target: float | None) -> Ratio:
    """Creates a `Ratio` from round medians in one run; raises a `UserError` if a measurement failed."""
    for measurement in (ours, baseline):
        if measurement.status != "ok":
            raise UserError(f"a ratio needs two measured configurations; {measurement.label}: {measurement.error}")
    return Ratio(
        name=name,
        description=description,
        ours=ours.label,
        peer=baseline.label,
        unit="us",
        ours_samples=tuple(statistics.round_medians(ours.latency_us, ours.round_sizes).tolist()),
        peer_samples=tuple(statistics.round_medians(baseline.latency_us, baseline.round_sizes).tolist()),
        better="lower",
        target=target,
    )


def result_file(
    title: str,
    *,
    quick: bool,
    measurements: Sequence[Measurement] = (),
    accuracies: Sequence[Accuracy] = (),
    outcomes: Sequence[BundleOutcome] = (),
    ratios: Sequence[Ratio] = (),
    notes: Sequence[str] = (),
    on: Machine | None = None,
    created: str | None = None,
) -> ResultFile:
    """Creates a `ResultFile` for a host run, with this machine, commit and time.

    Args:
      title: the run's purpose.
      quick: whether the run was shortened.
      measurements: latencies.
      accuracies: scores.
      outcomes: scores in the measured bundles.
      ratios: comparisons.
      notes: notes for the reader.
      on: the machine before the run; None describes it now.
      created: start of the run; None uses the current time.
    """
    return ResultFile(
        schema_version=1,
        title=title,
        created=created or now(),
        measured_on="host",
        commit=machine.commit(),
        quick=quick,
        machine=on or machine.machine(),
        measurements=tuple(measurements),
        accuracies=tuple(accuracies),
        outcomes=tuple(outcomes),
        ratios=tuple(ratios),
        notes=tuple(notes),
    )


def now() -> str:
    """Returns the current time in UTC, ISO 8601, to the second."""
    import datetime

    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def to_json(value: Any) -> Any:
    """Converts a dataclass in this module to plain JSON values."""
    # A round trip turns tuples into lists, JSON Schema's arrays.
    return json.loads(json.dumps(dataclasses.asdict(value), allow_nan=False))


def write(path: str | os.PathLike[str], content: ResultFile, *, overwrite: bool = True) -> None:
    """Validates and writes a result file; fails if one exists, unless `overwrite`."""
    document = to_json(content)
    raise_if_any(problems(document), str(path))
    files.write_json(path, document, overwrite=overwrite)


def read(path: str | os.PathLike[str]) -> ResultFile:
    """Reads a result file; a `UserError` lists schema violations, or if it is missing, no JSON or over `MOST_BYTES`."""
    document = read_json(path, most_bytes=MOST_BYTES)
    raise_if_any(problems(document), str(path))
    return typing.cast(ResultFile, schema.from_json(ResultFile, document))


def json_schema() -> dict[str, Any]:
    """Returns the schema for result files, as in `results.schema.json`."""
    return schema.schema(ResultFile, SCHEMA_TITLE)


def page() -> str:
    """Returns the schema as a documentation page, in Markdown."""
    return schema.page(ResultFile, "Result files")


def problems(document: Any) -> list[str]:
    """Lists a result file's problems: schema violations, otherwise broken further rules."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    problems = [
        f"at {'/'.join(map(str, error.absolute_path)) or 'the top'}: {error.message[:200]}"
        for error in sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
    ]
    if problems:
        return problems
    names = set()
    for measurement in document["measurements"]:
        problems += _measurement_problems(measurement)
        name = tuple(measurement[key] for key in ("model", "label", "length", "threads"))
        if name in names:
            problems.append(
                f"measurement {name[1]} at {name[2]}: another one of this network has that name; rename one"
            )
        names.add(name)
        if document["measured_on"] == "qemu" and measurement["latency_us"]:
            problems.append(f"measurement {name[1]} at {name[2]}: an emulator's time is no latency; leave it out")
    for entry in document["ratios"]:
        try:
            statistics.pair_ratios(entry["ours_samples"], entry["peer_samples"])
        except ValueError as error:
            problems.append(f"ratio {entry['name']}: {error}; measure again")
    return problems


def _measurement_problems(measurement: Mapping[str, Any]) -> list[str]:
    name = f"measurement {measurement['label']} at {measurement['length']}"
    if measurement["status"] == "failed":
        if measurement["latency_us"] or not measurement["error"]:
            return [f"{name}: a failed one has an error and no latency"]
        return []
    problems = []
    for key in ("runtime", "model_sha256", "size_bytes", "init_us", "first_inference_us"):
        if measurement[key] is None:
            problems.append(f"{name}: a measured one has {key}")
    if measurement["error"]:
        problems.append(f"{name}: a measured one has no error")
    if not measurement["latency_us"] or sum(measurement["round_sizes"]) != len(measurement["latency_us"]):
        problems.append(f"{name}: round_sizes must add up to the number of latencies, which is not 0")
    return problems


def main() -> None:
    """Writes `results.schema.json` next to this module, for other languages."""
    files.write_json(Path(__file__).with_name("results.schema.json"), json_schema())


if __name__ == "__main__":
    main()
