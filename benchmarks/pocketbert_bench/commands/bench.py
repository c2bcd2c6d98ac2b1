"""Time bundles on this machine, or on phones, and print the results.

Each bundle must reproduce its golden outputs before it is timed. If one fails, the others are still measured and the
exit code is 1. If other processes, the host or heat slow the run, you get a warning and the table marks the latencies
with *.

--baselines adds other exports of the same weights as baselines: TensorFlow's converter at one length and, if onnx and
onnxruntime are installed, ONNX Runtime. Pass your bundles' model directory as --model.

--runtime=litert-compiled runs LiteRT's CompiledModel. --weight-cache keeps packed weights in a file shared by all
lengths: memory and opening time then hardly grow with the number of lengths.

--device measures on all listed phones in parallel. It installs the app if needed (--apk), copies the bundles, runs each
configuration --repeats times in shuffled rounds, and removes its copies. --output is then a folder with one result file
per phone. Rerun the same command to measure the rest, for example after a cable was unplugged.

Example:
  pocketbert bench runs/quickstart/bundles/student/float32 bundles/sst2 --lengths=32,128 --threads=1,2
  pocketbert bench runs/sst2_int8 --output=runs/sst2_int8.json
  pocketbert bench runs/sst2_int8 --weight-cache=runs/weight_cache
  pocketbert bench runs/sst2_int8 --device=9A231FFAZ00123 --threads=1,4 --repeats=3 --output=runs/phones
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pocketbert.commands.command_line import Options
from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import check_absent
from pocketbert.hub.names import short_name
from pocketbert.options import AnyPath, BundlePath, FilePath, ModelPath, option
from pocketbert_bench import phone_app


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Measurement options.

    Attributes:
      bundles: bundle folders.
      lengths: sequence lengths (default: all in the bundle).
      threads: numbers of threads.
      output: result file for pocketbert report; with --device, a folder.
      overwrite: replace the result file.
      name: the network's name (default: the bundle folder's name).
      weights: whether weights are trained or random; recorded in the result.
      baselines: also time other exports of --model, as baselines.
      model: model directory for the baselines.
      runtime: LiteRT's interpreter, its CompiledModel, or both (default: litert; with --weight-cache: litert-compiled).
      weight_cache: folder for XNNPACK's weight caches, kept for later runs.
      quick: shortened run for a first look.
      json: print the result file instead of a table.
    """

    GROUP: ClassVar = "Measurement"

    bundles: tuple[BundlePath, ...] = option(positional="BUNDLE…")
    lengths: tuple[int, ...] = ()
    threads: tuple[int, ...] = (1,)
    output: AnyPath | None = None
    overwrite: bool = False
    name: str | None = None
    weights: Literal["trained", "random"] | None = None
    baselines: bool = False
    model: ModelPath | None = None
    runtime: tuple[Literal["litert", "litert-compiled"], ...] | None = None
    weight_cache: AnyPath | None = None
    quick: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        if self.weight_cache and self.runtime and "litert-compiled" not in self.runtime:
            received = ",".join(self.runtime)
            raise UserError(f"--weight-cache needs --runtime=litert-compiled; received {received}; add litert-compiled")
        if self.runtime and len(set(self.runtime)) != len(self.runtime):
            raise UserError(f"--runtime takes different runtimes; received {','.join(self.runtime)}; name each once")
        for name in ("lengths", "threads"):
            numbers = getattr(self, name)
            if any(number < 1 for number in numbers) or len(set(numbers)) != len(numbers):
                received = ",".join(map(str, numbers))
                raise UserError(f"--{name} takes different positive numbers, as in --{name}=1,2; received {received}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhoneOptions:
    """Options for measurements on phones.

    Attributes:
      device: serial numbers of phones, as listed by adb devices.
      apk: with --device: APK to install if the phone has none or another build.
      delegate: with --device: processor to use.
      affinity: with --device: cores to use.
      phone_weight_cache: with --device: keep packed weights in a file on the phone.
      repeats: with --device: processes per configuration, 1 to 100.
      seed: with --device: seed for the measuring order.
    """

    GROUP: ClassVar = "Phones"
    COMMON: ClassVar = ("device", "apk", "delegate")

    device: tuple[str, ...] = ()
    apk: FilePath | None = None
    delegate: Literal["cpu", "gpu"] = "cpu"
    affinity: Literal["any", "big", "little"] = "any"
    phone_weight_cache: bool = False
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.repeats <= phone_app.MOST_REPEATS:
            raise UserError(f"--repeats must lie in 1 to {phone_app.MOST_REPEATS}; received {self.repeats}")


OPTIONS = (BenchOptions, PhoneOptions)


def check(options: Options) -> None:
    """Raises a `UserError` if the options contradict each other."""
    chosen, phone = options[BenchOptions], options[PhoneOptions]
    if phone.device:
        _check_phones(chosen, phone)
        return
    if phone_names := options.changed("apk", "delegate", "affinity", "phone_weight_cache", "repeats", "seed"):
        raise UserError(f"{phone_names[0]} is for phones; received it without --device; name a phone or leave it out")
    if chosen.baselines and not chosen.model:
        raise UserError("--baselines needs --model, the model directory that the bundles were exported from")


def run(options: Options) -> int:
    """Runs the command."""
    chosen, phone = options[BenchOptions], options[PhoneOptions]
    paths = [Path(path) for path in chosen.bundles]
    if phone.device:
        return _run_on_phones(chosen, phone, paths)
    if chosen.output:
        check_absent(chosen.output, overwrite=chosen.overwrite)

    from pocketbert_bench import baselines, results
    from pocketbert_bench.benchmark import benchmark

    name = chosen.name or (short_name(chosen.model) if chosen.model else None)
    with tempfile.TemporaryDirectory() as folder:
        others = []
        if chosen.baselines and chosen.model:
            longest = max(chosen.lengths or [128])
            others = baselines.all_exports(
                Path(chosen.model), Path(folder), model=name, length=longest, threads=chosen.threads
            )
        measured = benchmark(
            paths,
            lengths=chosen.lengths or None,
            threads=chosen.threads,
            quick=chosen.quick,
            weights=chosen.weights,
            name=name,
            baselines=others,
            runtimes=chosen.runtime or (("litert-compiled",) if chosen.weight_cache else ("litert",)),
            weight_cache=chosen.weight_cache,
        )
    if chosen.output:
        measured.save(chosen.output, overwrite=chosen.overwrite)
    print(json.dumps(results.to_json(measured.result), indent=2) if chosen.json else measured)
    return int(any(measurement.status == "failed" for measurement in measured.result.measurements))


def _check_phones(chosen: BenchOptions, phone: PhoneOptions) -> None:
    serials, apk = phone.device, Path(phone.apk) if phone.apk else None
    problems = [
        f"--{name.replace('_', '-')} is for this machine; leave it out with --device"
        for name in ("baselines", "model", "runtime", "weight_cache", "quick", "json")
        if getattr(chosen, name)
    ]
    if not chosen.output:
        problems.append("--device needs --output, the folder for the measurements")
    if len(set(serials)) != len(serials) or not all(serials):
        problems.append(f"--device takes different serial numbers, as adb devices lists them; received {list(serials)}")
    if max(chosen.threads) > phone_app.MOST_THREADS:
        problems.append(
            f"the app takes at most {phone_app.MOST_THREADS} threads; received {','.join(map(str, chosen.threads))}"
        )
    if apk and not apk.is_file():
        problems.append(f"--apk must be a file that make android built; received {apk}")
    raise_if_any(problems, "bench")


def _run_on_phones(chosen: BenchOptions, phone: PhoneOptions, paths: Sequence[Path]) -> int:
    serials, apk = phone.device, Path(phone.apk) if phone.apk else None
    from pocketbert_bench import configurations, device, report
    from pocketbert_bench.benchmark import labels_of
    from pocketbert_bench.phone_plan import PhonePlan

    subjects = configurations.from_bundles(
        paths,
        chosen.lengths or None,
        chosen.threads,
        weights=chosen.weights,
        models=dict.fromkeys(paths, chosen.name) if chosen.name else {},
        labels=labels_of(paths),
    )
    plan = PhonePlan(
        configurations=tuple(subjects),
        delegate=phone.delegate,
        affinity=phone.affinity,
        weight_cache=phone.phone_weight_cache,
        repeats=phone.repeats,
        seed=phone.seed,
    )
    outcomes = device.bench_phones(serials, plan, Path(chosen.output or ""), apk=apk, overwrite=chosen.overwrite)
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.problem or outcome.path}")
        if outcome.result:
            print(report.table(outcome.result))
    measurements = [
        measurement for outcome in outcomes if outcome.result for measurement in outcome.result.measurements
    ]
    lost = any(outcome.problem for outcome in outcomes)
    return int(lost or any(measurement.status == "failed" for measurement in measurements))
