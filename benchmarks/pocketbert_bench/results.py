"""The one form of a measured result, for this machine and for phones: schema version 1.

A result file is a `ResultFile` as JSON. The dataclasses below are the only source of `results.schema.json` and of
the page in the docs (`pocketbert_bench.schema`). Latencies are kept raw.
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

from pocketbert import files, json_reading
from pocketbert.errors import UserError, raise_if_any
from pocketbert_bench import machine, schema, statistics
from pocketbert_bench.load import Load
from pocketbert_bench.machine import Machine, Thermal

SCHEMA_TITLE = "PocketBERT result file, version 1"
# Room for the calls of 500 configurations; checking more would take minutes.
MOST_BYTES = 1 << 23
RANDOM_WEIGHTS_NOTE = "Weights are random: latency and size mean something, answers do not."

Weights = Literal["trained", "random"]

_note = schema.note
_optional_note = schema.optional_note


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Runtime that executed the model."""

    name: Literal["litert", "tflite", "tflite-aar", "onnxruntime"] = _note(
        "the interpreter; tflite is the JavaCPP presets' TensorFlow Lite, tflite-aar its last archive for Android"
    )
    version: str = _note("its release")


@dataclass(frozen=True, kw_only=True)
class Delegate:
    """The part of a graph that an accelerating library took over."""

    name: str = _note("for example XNNPACK, or GPU where the graphics processor computes, in half precision")
    delegated_ops: int = _note(
        "operators inside the delegate, of the file's first subgraph; at least so many with tflite-aar", minimum=0
    )
    total_ops: int = _note("operators of that subgraph", minimum=1)

    @property
    def is_gpu(self) -> bool:
        """Whether the graphics processor computes."""
        return self.name == "GPU"


@dataclass(frozen=True, kw_only=True)
class GoldenCheck:
    """The check before the clock starts: the model answers known examples as it did when it was exported."""

    examples: int = _note("how many were run", minimum=1)
    max_absolute_difference: float = _note("largest difference of an output from what was recorded", minimum=0)
    tolerance: float = _note("the most that was allowed", minimum=0)


@dataclass(frozen=True, kw_only=True)
class DeviceConditions:
    """State of a phone while it was measured; the worst over its repeats."""

    affinity: Literal["any", "big", "little"] = _note("requested processors: all, all but the slowest, those")
    processors_allowed: str | None = _note("processors that the measuring thread had, as Linux lists them: 4-7")
    processors_khz: dict[str, int] | None = _note("processor to its frequency after the last call; null where unknown")
    processors_highest_khz: dict[str, int] | None = _note("processor to the most it can do; null where unknown")
    battery_percent: int | None = _note("charge; null where unknown", minimum=0, maximum=100)
    charging: bool | None = _note("whether power came in; null where unknown")
    power_save: bool = _note("whether the system saved power")
    thermal_headroom: float | None = _note("how near throttling it was, 1 being there; null where unknown", minimum=0)
    repeat: int = _note("which repetition of the configuration this is, from 1; of several, the last", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One configuration in a process of its own: a model, a length, a number of threads, a runtime."""

    label: str = _note("what it is called in tables; ours and a baseline's export of one network differ here")
    model: str = _note("the network's name; measurements of one network share it")
    recipe: str = _note("number formats: float32, dynamic_wi8, …")
    peer: bool = _note("somebody else's way to export the same network, for comparison")
    weights: Weights | None = _note(
        "random weights are good for latency and for nothing else; null where nobody said, since a bundle does not tell"
    )
    model_file: str = _note("file name, without folders")
    model_sha256: str | None = _note("of the file; null if it could not be read", pattern="^[0-9a-f]{64}$")
    size_bytes: int | None = _note("of the model file alone; null if it could not be read", minimum=0)
    signature: str | None = _note("the called signature; null where a format has none")
    length: int | None = _note("tokens in a call, padding included; null if the bundle could not be read", minimum=1)
    threads: int = _note("threads that the runtime was given", minimum=1)
    runtime: Runtime | None = _note("null if it never started")
    delegate: Delegate | None = _note("null where there is none, or where the runtime does not tell")
    status: Literal["ok", "failed"] = _note("a failed configuration has no latency")
    error: str | None = _note("one sentence; null if ok")
    golden: GoldenCheck | None = _note("null where no expected answers exist (a baseline's file with random weights)")
    init_us: float | None = _note("from the file's path to a runner in hand", minimum=0)
    first_inference_us: float | None = _note("the first call, which also allocates", minimum=0)
    warm_up_runs: int = _note("calls that were not recorded, before the first round", minimum=0)
    warmed_up: bool | None = _optional_note(
        "whether those calls became steady; false where the longest warm-up ended first; null where nobody looked"
    )
    latency_us: tuple[float, ...] = _note("every recorded call, inputs copied in and outputs copied out, in order")
    round_sizes: tuple[int, ...] = _note("number of calls in each interleaved round, in order")
    peak_memory_bytes: int | None = _note("the process' largest resident memory, runtime included", minimum=0)
    base_memory_bytes: int | None = _note("resident memory before the model was opened", minimum=0)
    thermal_start: Thermal | None = _note("null where not read")
    thermal_end: Thermal | None = _note("null where not read")
    device: DeviceConditions | None = _optional_note("null unless a phone was measured")
    load: Load | None = _optional_note("null where not measured: on phones, in the Java host's runs, if failed")

    @functools.cached_property
    def summary(self) -> statistics.Summary | None:
        """What the latencies say; None if it failed."""
        return statistics.summarize(self.latency_us) if self.latency_us else None


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """A model's score on labelled examples."""

    label: str = _note("as in the measurements of the same file")
    model: str = _note("the network's name")
    recipe: str = _note("number formats; float32 for a model directory")
    model_sha256: str | None = _note("of the model file that was scored; null if unknown", pattern="^[0-9a-f]{64}$")
    task: str = _note("the task's name")
    split: str = _note("which examples, in words")
    metric: str = _note("for example accuracy or matthews")
    value: float = _note("the score, 1 being perfect", minimum=-1, maximum=1)
    examples: int = _note("how many were scored", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A comparison of two things that took turns in one run."""

    name: str = _note("short and unique in the file")
    description: str = _note("what is divided by what, in a sentence")
    ours: str = _note("what the numerators are")
    peer: str = _note("what the denominators are")
    unit: str = _note("of both, for example us or examples/s")
    ours_samples: tuple[float, ...] = _note("one value a pair, in order", minItems=1)
    peer_samples: tuple[float, ...] = _note("the other value of each pair", minItems=1)
    better: Literal["lower", "higher"] = _note("which way is good")
    target: float | None = _note("what was to be reached; null if nothing was set", exclusiveMinimum=0)

    @functools.cached_property
    def _estimate(self) -> tuple[float, tuple[float, float]]:
        return statistics.paired_ratio(self.ours_samples, self.peer_samples)

    @property
    def value(self) -> float:
        """Median of ours ÷ baseline over the pairs."""
        return self._estimate[0]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of that median."""
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

    schema_version: Literal[1] = _note("this form")
    title: str = _note("what the run was for")
    created: str = _note("start of the run, ISO 8601 in UTC")
    measured_on: Literal["device", "host", "qemu"] = _note("a phone, a computer, or a phone's code under emulation")
    commit: str | None = _note("of the code; `-dirty` if tracked files differed; null outside a checkout")
    quick: bool = _note("a shortened run: good for a look, not for a comparison")
    machine: Machine = _note("what was measured on")
    measurements: tuple[Measurement, ...] = _note("latencies, one entry a configuration")
    accuracies: tuple[Accuracy, ...] = _note("scores")
    ratios: tuple[Ratio, ...] = _note("comparisons")
    notes: tuple[str, ...] = _note("what a reader has to know, a sentence each")


def ratio(
    *, ours_samples: Sequence[float], peer_samples: Sequence[float], target: float | None = None, **fields: Any
) -> Ratio:
    """A `Ratio` of samples in any form; the pairs were taken in turns."""
    ours, peer = (tuple(float(sample) for sample in samples) for samples in (ours_samples, peer_samples))
    return Ratio(ours_samples=ours, peer_samples=peer, target=target, **fields)


def latency_ratio(name: str, ours: Measurement, peer: Measurement, description: str, target: float | None) -> Ratio:
    """`Ratio` of two measurements' round medians; both took part in every round of one run.

    Raises:
      UserError: one of them failed.
    """
    for measurement in (ours, peer):
        if measurement.status != "ok":
            raise UserError(f"a ratio needs two measured configurations; {measurement.label}: {measurement.error}")
    return Ratio(
        name=name,
        description=description,
        ours=ours.label,
        peer=peer.label,
        unit="us",
        ours_samples=tuple(statistics.round_medians(ours.latency_us, ours.round_sizes).tolist()),
        peer_samples=tuple(statistics.round_medians(peer.latency_us, peer.round_sizes).tolist()),
        better="lower",
        target=target,
    )


def result_file(
    title: str,
    *,
    quick: bool,
    measurements: Sequence[Measurement] = (),
    accuracies: Sequence[Accuracy] = (),
    ratios: Sequence[Ratio] = (),
    notes: Sequence[str] = (),
    on: Machine | None = None,
    created: str | None = None,
) -> ResultFile:
    """A host run's `ResultFile`, with this machine, commit and time filled in.

    Args:
      title: what the run was for.
      quick: whether it was shortened.
      measurements: latencies.
      accuracies: scores.
      ratios: comparisons.
      notes: what a reader has to know.
      on: the machine as it was before the run; now, if None.
      created: the run's start; now, if None.
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
        ratios=tuple(ratios),
        notes=tuple(notes),
    )


def now() -> str:
    """This second in UTC, ISO 8601."""
    import datetime

    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def to_json(value: Any) -> Any:
    """A dataclass of this module as plain JSON values."""
    # A round trip turns tuples into lists, which is what JSON Schema calls an array.
    return json.loads(json.dumps(dataclasses.asdict(value), allow_nan=False))


def write(path: str | os.PathLike[str], content: ResultFile, *, overwrite: bool = True) -> None:
    """Writes a result file, in place of one that is there unless `overwrite` is False; it is checked first."""
    document = to_json(content)
    raise_if_any(problems(document), str(path))
    files.write_json(path, document, overwrite=overwrite)


def read(path: str | os.PathLike[str]) -> ResultFile:
    """Reads and checks a result file.

    Raises:
      UserError: the file is absent, is not JSON, is larger than `MOST_BYTES`, or breaks the schema; every problem is
        listed.
    """
    document = json_reading.read_json(path, most_bytes=MOST_BYTES)
    raise_if_any(problems(document), str(path))
    return typing.cast(ResultFile, schema.from_json(ResultFile, document))


def json_schema() -> dict[str, Any]:
    """The schema of a result file, as `results.schema.json` holds it."""
    return schema.schema(ResultFile, SCHEMA_TITLE)


def page() -> str:
    """The schema as a page of the docs, in Markdown."""
    return schema.page(ResultFile, "Result files")


def problems(document: Any) -> list[str]:
    """Lists problems of a result file: by the schema first, then by further rules."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json_schema())
    found = [
        f"at {'/'.join(map(str, error.absolute_path)) or 'the top'}: {error.message[:200]}"
        for error in sorted(validator.iter_errors(document), key=lambda error: list(map(str, error.absolute_path)))
    ]
    if found:
        return found
    names = set()
    for measurement in document["measurements"]:
        found += _measurement_problems(measurement)
        name = tuple(measurement[key] for key in ("model", "label", "length", "threads"))
        if name in names:
            found.append(f"measurement {name[1]} at {name[2]}: another one of this network has that name; rename one")
        names.add(name)
        if document["measured_on"] == "qemu" and measurement["latency_us"]:
            found.append(f"measurement {name[1]} at {name[2]}: an emulator's time is no latency; leave it out")
    for entry in document["ratios"]:
        try:
            statistics.pair_ratios(entry["ours_samples"], entry["peer_samples"])
        except ValueError as error:
            found.append(f"ratio {entry['name']}: {error}; measure again")
    return found


def _measurement_problems(measurement: Mapping[str, Any]) -> list[str]:
    name = f"measurement {measurement['label']} at {measurement['length']}"
    if measurement["status"] == "failed":
        if measurement["latency_us"] or not measurement["error"]:
            return [f"{name}: a failed one has an error and no latency"]
        return []
    found = []
    for key in ("runtime", "model_sha256", "size_bytes", "init_us", "first_inference_us"):
        if measurement[key] is None:
            found.append(f"{name}: a measured one has {key}")
    if measurement["error"]:
        found.append(f"{name}: a measured one has no error")
    if not measurement["latency_us"] or sum(measurement["round_sizes"]) != len(measurement["latency_us"]):
        found.append(f"{name}: round_sizes must add up to the number of latencies, which is not 0")
    return found


def main() -> None:
    """Writes `results.schema.json`, which other languages read, beside this module."""
    files.write_json(Path(__file__).with_name("results.schema.json"), json_schema())


if __name__ == "__main__":
    main()
