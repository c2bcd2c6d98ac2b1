"""Phones over the real adb client, which talks to a server of ours: what is measured, kept, and taken up again."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import bundle_folders
import pytest
from fake_adb import APK, FILES, FakePhone, ending
from phone_runs import BUNDLE, LENGTHS, SERIAL, Changes, asked, good, joined, result

from pocketbert import files
from pocketbert_bench import phone_app, report, results
from pocketbert_bench.results import Delegate, DeviceConditions
from pocketbert_export.bundles import goldens
from pocketbert_export.bundles.bundle import Bundle


def test_configurations_run_in_rounds_and_join(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    code, out, _ = bench("--threads=2", "--affinity=big", "--name=net", "--weights=random")
    assert code == 0 and SERIAL not in out and "ms@9/2t" in out
    # Rounds of all, each shuffled by the seed; every run with options of the closed sets.
    assert [repeat for repeat, _ in asked(phone)] == sorted(str(number) for number in (1, 2, 3) for _ in LENGTHS)
    assert sorted(asked(phone)) == sorted((str(n), str(length)) for n in (1, 2, 3) for length in LENGTHS)
    assert {(start["threads"], start["delegate"], start["affinity"]) for start in phone.starts} == {("2", "cpu", "big")}
    assert len({start["run"] for start in phone.starts}) == 6
    for length, measured in joined(tmp_path).items():
        assert (measured.label, measured.model, measured.status) == ("dynamic_wi8", "net", "ok")
        assert measured.weights == "random"
        assert measured.round_sizes == (12,) * 3 and measured.model_sha256 == files.sha256(BUNDLE / "model.tflite")
        assert measured.latency_us[::12] == tuple(1e3 * length + 100 * repeat for repeat in (1, 2, 3))
        assert measured.init_us == 200.0 and measured.warm_up_runs == 21 and measured.warmed_up is True
    # The phone is left as it was, with the app; nothing names its serial number.
    assert list(phone.files) == [APK]
    assert not phone.running
    for path in (tmp_path / "out").rglob("*"):
        assert SERIAL not in str(path.relative_to(tmp_path)) and (
            path.is_dir() or SERIAL not in path.read_text("utf-8")
        )
    file = next(path for path in (tmp_path / "out").glob("pixel_4_*.json"))
    assert "the big cores" in results.read(file).notes[0] and results.read(file).measured_on == "device"
    assert results.RANDOM_WEIGHTS_NOTE in results.read(file).notes


def conditions(repeat: int) -> DeviceConditions:
    """Each repeat is the worst in something else."""
    return DeviceConditions(
        affinity="any",
        processors_allowed="0-7" if repeat < 3 else "0-3",
        processors_khz={"0": 1_800_000 - repeat, "7": 2_800_000 + repeat} if repeat > 1 else None,
        processors_highest_khz={"0": 1_800_000, "7": 2_850_000},
        battery_percent=(80, None, 78)[repeat - 1],
        charging=repeat == 2,
        power_save=False,
        thermal_headroom=(0.4, 0.7, 0.6)[repeat - 1],
        repeat=repeat,
    )


def test_joined_repeats_keep_worst_conditions(connect: Any, bench: Any, tmp_path: Path) -> None:
    def app(phone: FakePhone, extras: dict[str, str]) -> Changes:
        repeat = int(extras["repeat"])
        memory = {"base_memory_bytes": 1000 * repeat, "peak_memory_bytes": 9000 - 1000 * repeat}
        return result(phone, extras, device=conditions(repeat), warmed_up=repeat != 2, **memory)

    connect(FakePhone(SERIAL, ending(app)))
    code, out, _ = bench("--lengths=9")
    assert code == 0
    measured = joined(tmp_path)[9]
    assert measured.device == DeviceConditions(
        affinity="any",
        processors_allowed="0-7; 0-3",
        processors_khz={"0": 1_799_997, "7": 2_800_002},
        processors_highest_khz={"0": 1_800_000, "7": 2_850_000},
        battery_percent=78,
        charging=True,
        power_save=False,
        thermal_headroom=0.7,
        repeat=3,
    )
    assert (measured.base_memory_bytes, measured.peak_memory_bytes) == (3000, 8000)
    # One repeat that never became steady is in the figure.
    assert measured.warmed_up is False
    assert re.search(r"^dynamic_wi8 .*\d†", out, re.MULTILINE) and "† 1 of " in out


def one_length(folder: Path) -> Path:
    """The bundle with its length 9 alone."""
    bundle = Path(shutil.copytree(BUNDLE, folder / "short"))
    examples, lines = Bundle.open(bundle).goldens, bundle_folders.golden_lines(bundle)
    short = [row for row, golden in enumerate(examples) if golden.length == 9]
    (bundle / bundle_folders.GOLDENS).write_bytes(goldens.outputs_file([examples[row] for row in short]))
    bundle_folders.write_lines(bundle, [lines[row] for row in short])
    return bundle_folders.describe_again(bundle, signatures=[{"name": "length_9", "length": 9}])


def on(delegate: Delegate | None) -> Any:
    """An app that names what computed."""
    runtime = results.Runtime(name="tflite-aar", version="2.16.1")
    return ending(lambda phone, extras: result(phone, extras, runtime=runtime, delegate=delegate))


@pytest.mark.usefixtures("without_plots")
def test_gpu_is_requested_and_named(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, on(Delegate(name="GPU", delegated_ops=17, total_ops=20)))
    connect(phone)
    assert bench("--delegate=gpu", bundle=one_length(tmp_path))[0] == 0
    assert [start["delegate"] for start in phone.starts] == ["gpu"] * 3
    (path,) = (tmp_path / "out").glob("pixel_4_*.json")
    file = results.read(path)
    assert file.title == "Latency of exported bundles on the GPU of a Pixel 4"
    assert file.measurements[0].delegate == Delegate(name="GPU", delegated_ops=17, total_ops=20)
    page = report.build_report([file], tmp_path / "page").read_text(encoding="utf-8")
    assert "GPU 85 %" in page and "tflite-aar 2.16.1" in page


@pytest.mark.one_of_each("delegate1")
@pytest.mark.parametrize("delegate", [None, Delegate(name="XNNPACK", delegated_ops=19, total_ops=20)])
def test_result_without_gpu_is_rejected(connect: Any, bench: Any, tmp_path: Path, delegate: Delegate | None) -> None:
    connect(FakePhone(SERIAL, on(delegate)))
    code, out, _ = bench("--delegate=gpu", "--repeats=1", bundle=one_length(tmp_path))
    assert code == 1 and "it must be a time of the GPU; the result names none" in out
    assert not list((tmp_path / "out").glob("pixel_4_*.json"))


def test_weight_cache_is_requested(connect: Any, bench: Any, tmp_path: Path) -> None:
    def written(phone: Any, extras: dict[str, str]) -> Any:
        # The app reports no memory for the run that packs the weights.
        fields = {"base_memory_bytes": 30_000_000, "resident_memory_bytes": 41_000_000}
        memory = dict.fromkeys(fields) if extras["repeat"] == "1" else fields
        return result(phone, extras, weight_cache_bytes=1_234, **memory)

    phone = FakePhone(SERIAL, ending(written))
    connect(phone)
    assert bench("--phone-weight-cache", "--lengths=9")[0] == 0
    assert [start["weight_cache"] for start in phone.starts] == ["on"] * 3
    measurement = joined(tmp_path)[9]
    assert (measurement.weight_cache_bytes, measurement.base_memory_bytes, measurement.resident_memory_bytes) == (
        1_234,
        30_000_000,
        41_000_000,
    )
    connect(FakePhone(SERIAL, good))
    code, out, _ = bench("--phone-weight-cache", "--lengths=9", "--repeats=1", "--overwrite")
    assert code == 1 and "its weight cache must be on; it is not" in out
    code, _, err = bench("--phone-weight-cache", "--delegate=gpu", "--output=other", bundle=one_length(tmp_path))
    assert code == 2 and "--phone-weight-cache is for the CPU" in err


def test_gpu_requires_bundles_with_one_length(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    code, _, err = bench("--delegate=gpu", "--lengths=9")
    assert code == 2 and "must have one length" in err and f"{BUNDLE} has more" in err and not phone.starts


def test_the_same_command_measures_nothing_twice(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    assert bench()[0] == 0
    before = len(phone.commands)
    assert bench()[0] == 0
    # Only what is asked of every phone before anything: its properties.
    assert [command.split()[0] for command in phone.commands[before:]] == ["getprop"]
    code, _, err = bench("--seed=1")
    assert code == 2 and "results of one plan" in err
    assert bench("--seed=1", "--overwrite")[0] == 0
    assert len(phone.starts) == 12 and asked(phone)[:6] != asked(phone)[6:]


@pytest.mark.one_of_each("push", "logcat", "sha256sum")
@pytest.mark.parametrize("service", ["push", "logcat", "pull", "pm", "sha256sum", "pidof"])
def test_broken_connection_is_retried(connect: Any, bench: Any, tmp_path: Path, service: str) -> None:
    def slow(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        # Longer than one waits for a line before asking whether the process is still there.
        time.sleep(0.5 if len(phone.starts) == 1 else 0.0)
        return good(phone, extras, say)

    phone = FakePhone(SERIAL, slow)
    phone.drops = {service: 2}
    connect(phone)
    assert bench("--repeats=1")[0] == 0
    assert phone.drops[service] == 0 and len(phone.starts) == 2
    assert all(measurement.status == "ok" for measurement in joined(tmp_path).values())


@pytest.mark.one_of_each("pull")
@pytest.mark.parametrize("service", ["push", "logcat", "pull"])
def test_command_resumes_after_pulled_cable(connect: Any, bench: Any, tmp_path: Path, service: str) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    if service != "push":
        # After the first round, so that something is kept.
        def unplugging(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
            if len(phone.starts) == 3:
                phone.unplug_at = service
            return good(phone, extras, say)

        phone.app = unplugging
    else:
        phone.unplug_at = service
    code, out, err = bench()
    assert code == 1 and "the phone is gone" in out and "Traceback" not in err
    num_files = len(list((tmp_path / "out").glob("*/configuration_*.json")))
    assert num_files == (0 if service == "push" else 2)
    if num_files:
        assert all(
            "of 3 repeats are measured" in (measurement.error or "") for measurement in joined(tmp_path).values()
        )
    code, out, err = bench()
    assert code == 2 and f"{SERIAL} must be connected; adb lists nothing" in err
    phone.state, phone.app = "device", good
    started = len(phone.starts)
    assert bench()[0] == 0
    assert len(phone.starts) - started == 6 - num_files
    assert all(
        measurement.status == "ok" and len(measurement.round_sizes) == 3 for measurement in joined(tmp_path).values()
    )
    # What was left behind when the cable went is gone too.
    assert list(phone.files) == [APK]


def test_only_missing_files_are_pushed(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    from pocketbert_bench.device import folder_name

    there = f"{FILES}/bundles/{folder_name(BUNDLE)}"
    phone.files[f"{there}/model.tflite"] = (BUNDLE / "model.tflite").read_bytes()
    phone.files[f"{there}/vocab.txt"] = b"half of it"
    assert bench("--repeats=1", "--lengths=9")[0] == 0
    assert sorted(path.rpartition("/")[2] for path in phone.pushed) == [
        "answers.jsonl", "bundle.json", "goldens.safetensors", "labels.txt", "verification.json", "vocab.txt",
    ]  # fmt: skip


def test_corrupted_transfers_are_not_measured(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    phone.spoils = True
    connect(phone)
    code, out, _ = bench()
    assert code == 1 and "did not arrive as sent" in out and not phone.starts


def test_run_may_exceed_the_silence_limit(connect: Any, bench: Any) -> None:
    def slow(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        # 1.2 s in all.
        for done in range(3):
            say("cooling", done, 3)
            time.sleep(0.4)
        return good(phone, extras, say)

    connect(FakePhone(SERIAL, slow))
    assert bench("--repeats=1", "--lengths=9")[0] == 0


def test_late_last_line_still_counts(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    phone.log_delay = 1.0
    connect(phone)
    assert bench("--repeats=1", "--lengths=9")[0] == 0


def test_too_many_threads_are_refused(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    code, _, err = bench("--threads=1,32")
    assert code == 2 and "the app takes at most 16 threads; received 1,32" in err and not phone.starts


def test_the_bounds_are_the_apps() -> None:
    source = (
        Path(__file__).parents[2] / "android_app/core/src/main/java/org/pocketbert/device/RunRequest.java"
    ).read_text("utf-8")
    assert f"MOST_THREADS = {phone_app.MOST_THREADS};" in source


@pytest.mark.nightly
@pytest.mark.usefixtures("without_plots")
def test_the_report_takes_a_phones_file(connect: Any, bench: Any, tmp_path: Path) -> None:
    connect(FakePhone(SERIAL, good))
    assert bench("--repeats=1")[0] == 0
    (path,) = (tmp_path / "out").glob("pixel_4_*.json")
    page = report.build_report([results.read(path)], tmp_path / "page").read_text(encoding="utf-8")
    assert "Latency of exported bundles on a Pixel 4" in page and json.loads(path.read_text("utf-8"))["quick"] is False
