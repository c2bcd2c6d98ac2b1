"""Times bundles on this machine, or on phones, and prints the figures.

Every bundle has to answer its golden examples before it is timed. One that does not, is damaged or dies is named
in a sentence, the others are measured all the same, and the exit code is 1. If other processes, a virtual machine's
host or heat slowed the run, a warning says so and the table marks the latencies with *.

--peers adds other people's exports of the same weights: the plain converter at one length and, where onnx and
onnxruntime are installed, ONNX Runtime. They are made from the model directory that the bundles came from.

--device measures on phones instead, all of those named at the same time: it installs the app where it is missing or
another build (--apk), copies the bundles, runs each configuration --repeats times in a process of its own, in shuffled
rounds, and takes its copies away again. --output is then a folder, with a result file for each phone; when a cable is
pulled, the same command measures what is missing.

Example:
  pocketbert bench runs/quickstart/bundles/student/float32 bundles/sst2 --lengths=32,128 --threads=1,2
  pocketbert bench runs/sst2_int8 --output=runs/sst2_int8.json
  pocketbert bench runs/sst2_int8 --device=9A231FFAZ00123 --threads=1,4 --repeats=3 --output=runs/phones
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import check_absent
from pocketbert_bench import phone_app

POSITIONAL = "BUNDLE…"
_PHONE_ONLY = ("apk", "delegate", "affinity", "repeats", "seed")
_HOST_ONLY = ("peers", "model", "quick", "json")


def define(flag_values: flags.FlagValues) -> None:
    """Declares the flags."""
    flags.DEFINE_list("lengths", None, "tokens; all that a bundle has if absent", flag_values=flag_values)
    flags.DEFINE_list("threads", ["1"], "numbers of threads", flag_values=flag_values)
    flags.DEFINE_string(
        "output", None, "result file to write, for pocketbert report; with --device a folder", flag_values=flag_values
    )
    flags.DEFINE_bool("overwrite", False, "replace the result file", flag_values=flag_values)
    flags.DEFINE_string("name", None, "the network's name; the bundle folder's if absent", flag_values=flag_values)
    flags.DEFINE_enum(
        "weights", None, ["trained", "random"], "what they are; a bundle does not tell", flag_values=flag_values
    )
    flags.DEFINE_bool("peers", False, "time other people's exports of --model beside", flag_values=flag_values)
    flags.DEFINE_string("model", None, "model directory that the peers are made from", flag_values=flag_values)
    flags.DEFINE_bool("quick", False, "a shortened run, good for a look", flag_values=flag_values)
    flags.DEFINE_bool("json", False, "print the result file instead of a table", flag_values=flag_values)
    flags.DEFINE_list("device", None, "phones' serial numbers, as adb devices lists them", flag_values=flag_values)
    flags.DEFINE_string(
        "apk", None, "with --device: the app, for phones that lack it or have another build", flag_values=flag_values
    )
    flags.DEFINE_enum("delegate", "cpu", phone_app.DELEGATES, "with --device: what computes", flag_values=flag_values)
    flags.DEFINE_enum("affinity", "any", phone_app.AFFINITIES, "with --device: which cores", flag_values=flag_values)
    flags.DEFINE_integer(
        "repeats", 5, "with --device: processes for each configuration", 1, phone_app.MOST_REPEATS,
        flag_values=flag_values,
    )  # fmt: skip
    flags.DEFINE_integer("seed", 0, "with --device: of the order", flag_values=flag_values)


def run(flag_values: flags.FlagValues, positional: Sequence[str]) -> int:
    """Runs the command."""
    lengths = _numbers("lengths", flag_values.lengths) if flag_values.lengths else None
    threads = _numbers("threads", flag_values.threads)
    if not positional:
        raise UserError("bench needs at least one bundle; received none; for example pocketbert bench runs/bundle")
    paths = [Path(path) for path in positional]
    if missing := [str(path) for path in paths if not path.is_dir()]:
        raise UserError(f"a bundle is a folder that pocketbert export made; received {', '.join(missing)}")
    if flag_values.device:
        return _run_on_phones(flag_values, paths, lengths, threads)
    if given := [name for name in _PHONE_ONLY if flag_values[name].present]:
        raise UserError(f"--{given[0]} is for phones; received it without --device; name a phone or leave it out")
    if flag_values.peers and not flag_values.model:
        raise UserError("--peers needs --model, the model directory that the bundles were exported from")
    if flag_values.output:
        check_absent(flag_values.output, overwrite=flag_values.overwrite)

    from pocketbert_bench import host, peers, report, results

    name = flag_values.name or (Path(flag_values.model).resolve().name if flag_values.model else None)
    with tempfile.TemporaryDirectory() as folder:
        others = []
        if flag_values.peers:
            longest = max(lengths or [128])
            others = peers.all_exports(
                Path(flag_values.model), Path(folder), model=name, length=longest, threads=threads
            )
        result = host.bench_bundles(
            paths,
            lengths=lengths,
            threads=threads,
            quick=flag_values.quick,
            peers=others,
            weights=flag_values.weights,
            names={path: name for path in paths} if name else None,
            labels=_labels(paths),
        )
    if flag_values.output:
        results.write(flag_values.output, result, overwrite=flag_values.overwrite)
    print(json.dumps(results.to_json(result), indent=2) if flag_values.json else report.table(result))
    return int(any(measurement.status == "failed" for measurement in result.measurements))


def _run_on_phones(
    flag_values: flags.FlagValues, paths: Sequence[Path], lengths: Sequence[int] | None, threads: Sequence[int]
) -> int:
    serials, apk = flag_values.device, Path(flag_values.apk) if flag_values.apk else None
    problems = [f"--{name} is for this machine; leave it out with --device" for name in _HOST_ONLY
                if flag_values[name].present]  # fmt: skip
    if not flag_values.output:
        problems.append("--device needs --output, the folder that keeps what was measured")
    if len(set(serials)) != len(serials) or not all(serials):
        problems.append(f"--device takes different serial numbers, as adb devices lists them; received {serials}")
    if max(threads) > phone_app.MOST_THREADS:
        problems.append(
            f"the app takes at most {phone_app.MOST_THREADS} threads; received {','.join(map(str, threads))}"
        )
    if apk and not apk.is_file():
        problems.append(f"--apk must be a file that make android built; received {apk}")
    raise_if_any(problems, "bench")

    from pocketbert_bench import configurations, device, report
    from pocketbert_bench.phone_plan import Plan

    labels = _labels(paths)
    plan = Plan(
        configurations=tuple(
            each
            for path in paths
            for each in configurations.from_bundle(
                path, lengths, threads, weights=flag_values.weights, model=flag_values.name, label=labels[path]
            )
        ),
        delegate=flag_values.delegate,
        affinity=flag_values.affinity,
        repeats=flag_values.repeats,
        seed=flag_values.seed,
    )
    outcomes = device.bench_phones(serials, plan, Path(flag_values.output), apk=apk, overwrite=flag_values.overwrite)
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.problem or outcome.path}")
        if outcome.result:
            print(report.table(outcome.result))
    measurements = [each for outcome in outcomes if outcome.result for each in outcome.result.measurements]
    lost = any(outcome.problem for outcome in outcomes)
    return int(lost or any(measurement.status == "failed" for measurement in measurements))


def _numbers(name: str, values: Sequence[str]) -> list[int]:
    if not all(value.strip().isdecimal() and int(value) > 0 for value in values) or len(set(values)) != len(values):
        raise UserError(f"--{name} takes different positive numbers, as in --{name}=1,2; received {','.join(values)}")
    return [int(value) for value in values]


def _labels(paths: Sequence[Path]) -> dict[Path, str]:
    """Folder names tell several bundles apart better than recipes, which they may share."""
    names = [path.resolve().name for path in paths]
    if len(set(names)) != len(names):
        names = [str(path) for path in paths]
    return dict(zip(paths, names, strict=True))
