"""What the fake phones of `fake_adb` measure: a real bundle, with latencies that say which run they are of."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import bench_subjects
from fake_adb import FILES, FakePhone, ending

from pocketbert_bench import results
from pocketbert_bench.results import Runtime

BUNDLE = Path(__file__).parents[2] / "android_app/core/src/test/resources/bundles/dynamic_wi8"
LENGTHS = (9, 17)
REPEATS = 3
SERIAL = "PIXEL1"
Changes = dict[str, Any]


def result(phone: FakePhone, extras: dict[str, str], **changes: Any) -> Changes:
    """What the app writes: the pushed file's digest, and latencies that tell runs apart."""
    model = phone.files[f"{FILES}/bundles/{extras['bundle']}/model.tflite"]
    length = int(extras["length"])
    measured = bench_subjects.measurement(
        extras["bundle"], length, length + int(extras["repeat"]) / 10, recipe="dynamic_wi8",
        threads=int(extras["threads"]), model_sha256=hashlib.sha256(model).hexdigest(), size_bytes=len(model),
        runtime=Runtime(name="tflite", version="2.21.0"), round_sizes=(12,),
        warm_up_runs=20 + int(extras["repeat"]), warmed_up=True, init_us=100.0 * int(extras["repeat"]),
    )  # fmt: skip
    content = bench_subjects.result(dataclasses.replace(measured, **changes), measured_on="device")
    return results.to_json(content)


good = ending(result)


def slower_for_larger_files(phone: FakePhone, extras: dict[str, str]) -> Any:
    """The app's result; the latency is the size of the file."""
    content = result(phone, extras)
    (measured,) = content["measurements"]
    measured["latency_us"] = [float(measured["size_bytes"])] * len(measured["latency_us"])
    return content


def joined(folder: Path) -> dict[int, results.Measurement]:
    """Length → measurement, of the one phone's joined file."""
    (path,) = [path for path in (folder / "out").glob("*.json") if path.name != "plan.json"]
    return {measurement.length: measurement for measurement in results.read(path).measurements if measurement.length}


def asked(phone: FakePhone) -> list[tuple[str, str]]:
    return [(start["repeat"], start["length"]) for start in phone.starts]
