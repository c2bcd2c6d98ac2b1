"""Phones over the real adb client, which talks to a server of ours: what is measured, kept, and taken up again."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bundle_folders
import pytest
from fake_adb import APK, FILES, FakePhone, ending
from phone_runs import BUNDLE, LENGTHS, SERIAL, Changes, good, result

from pocketbert import cli, files
from pocketbert_bench import phone_app, phone_plan, report, results
from pocketbert_bench.results import Delegate, DeviceConditions
from pocketbert_export import goldens
from pocketbert_export.bundle import Bundle


def joined(folder: Path) -> dict[int, results.Measurement]:
    """Length → measurement, of the one phone's joined file."""
    (path,) = [each for each in (folder / "out").glob("*.json") if each.name != "plan.json"]
    return {each.length: each for each in results.read(path).measurements if each.length}


def asked(phone: FakePhone) -> list[tuple[str, str]]:
    return [(each["repeat"], each["length"]) for each in phone.starts]


def test_configurations_run_in_rounds_and_join(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, good)
    connect(phone)
    code, out, _ = bench("--threads=2", "--affinity=big", "--name=net", "--weights=random")
    assert code == 0 and SERIAL not in out and "ms@9/2t" in out
    # Rounds of all, each shuffled by the seed; every run with options of the closed sets.
    assert [repeat for repeat, _ in asked(phone)] == sorted(str(each) for each in (1, 2, 3) for _ in LENGTHS)
    assert sorted(asked(phone)) == sorted((str(n), str(length)) for n in (1, 2, 3) for length in LENGTHS)
    assert {(each["threads"], each["delegate"], each["affinity"]) for each in phone.starts} == {("2", "cpu", "big")}
    assert len({each["run"] for each in phone.starts}) == 6
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
    assert "unsteady: dynamic_wi8: calls of 9 tokens, 1 thread, had not become steady" in out


def one_length(folder: Path) -> Path:
    """The bundle with its length 9 alone."""
    bundle = Path(shutil.copytree(BUNDLE, folder / "short"))
    kept = [golden for golden in Bundle.open(bundle).goldens if golden.length == 9]
    (bundle / bundle_folders.GOLDENS).write_bytes(goldens.answers_file(kept))
    signatures = [{"name": "length_9", "length": 9}]
    return bundle_folders.describe_again(bundle, signatures=signatures, goldens=goldens.entries(kept))


def on(delegate: Delegate | None) -> Any:
    """An app that names what computed."""
    runtime = results.Runtime(name="tflite-aar", version="2.16.1")
    return ending(lambda phone, extras: result(phone, extras, runtime=runtime, delegate=delegate))


def test_gpu_is_requested_and_named(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, on(Delegate(name="GPU", delegated_ops=17, total_ops=20)))
    connect(phone)
    assert bench("--delegate=gpu", bundle=one_length(tmp_path))[0] == 0
    assert [each["delegate"] for each in phone.starts] == ["gpu"] * 3
    (path,) = (tmp_path / "out").glob("pixel_4_*.json")
    file = results.read(path)
    assert file.title == "Latency of exported bundles on the GPU of a Pixel 4"
    assert file.measurements[0].delegate == Delegate(name="GPU", delegated_ops=17, total_ops=20)
    page = report.build_report([file], tmp_path / "page").read_text(encoding="utf-8")
    assert "GPU 85 %" in page and "tflite-aar 2.16.1" in page


@pytest.mark.parametrize("delegate", [None, Delegate(name="XNNPACK", delegated_ops=19, total_ops=20)])
def test_result_without_gpu_is_rejected(connect: Any, bench: Any, tmp_path: Path, delegate: Delegate | None) -> None:
    connect(FakePhone(SERIAL, on(delegate)))
    code, out, _ = bench("--delegate=gpu", "--repeats=1", bundle=one_length(tmp_path))
    assert code == 1 and "it must be a time of the GPU; the result names none" in out
    assert not list((tmp_path / "out").glob("pixel_4_*.json"))


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
    assert [each.split()[0] for each in phone.commands[before:]] == ["getprop"]
    code, _, err = bench("--seed=1")
    assert code == 2 and "results of one plan" in err
    assert bench("--seed=1", "--overwrite")[0] == 0
    assert len(phone.starts) == 12 and asked(phone)[:6] != asked(phone)[6:]


@pytest.mark.parametrize("service", ["push", "logcat", "pull", "pm", "sha256sum", "pidof"])
def test_broken_connection_is_retried(connect: Any, bench: Any, tmp_path: Path, service: str) -> None:
    def slow(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        # Longer than one waits for a line before asking whether the process is still there.
        time.sleep(0.5 if len(phone.starts) == 1 else 0.0)
        return good(phone, extras, say)

    phone = FakePhone(SERIAL, slow)
    phone.drops = {service: 2}
    connect(phone)
    assert bench()[0] == 0
    assert phone.drops[service] == 0 and len(phone.starts) == 6
    assert all(each.status == "ok" for each in joined(tmp_path).values())


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
    kept = len(list((tmp_path / "out").glob("*/configuration_*.json")))
    assert kept == (0 if service == "push" else 2)
    if kept:
        assert all("of 3 repeats are measured" in (each.error or "") for each in joined(tmp_path).values())
    code, out, err = bench()
    assert code == 2 and f"{SERIAL} must be connected; adb lists nothing" in err
    phone.state, phone.app = "device", good
    started = len(phone.starts)
    assert bench()[0] == 0
    assert len(phone.starts) - started == 6 - kept
    assert all(each.status == "ok" and len(each.round_sizes) == 3 for each in joined(tmp_path).values())
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
    assert sorted(each.rpartition("/")[2] for each in phone.pushed) == [
        "bundle.json", "goldens.safetensors", "labels.txt", "verification.json", "vocab.txt",
    ]  # fmt: skip


def test_corrupted_transfers_are_not_measured(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    phone.spoils = True
    connect(phone)
    code, out, _ = bench()
    assert code == 1 and "did not arrive as sent" in out and not phone.starts


def test_run_may_exceed_the_silence_limit(connect: Any, bench: Any) -> None:
    def slow(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        for done in range(5):
            say("cooling", done, 5)
            time.sleep(0.4)
        return good(phone, extras, say)

    connect(FakePhone(SERIAL, slow))
    assert bench("--repeats=1", "--lengths=9")[0] == 0


def test_late_last_line_still_counts(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    phone.log_delay = 1.0
    connect(phone)
    assert bench("--repeats=1", "--lengths=9")[0] == 0


def died(phone: FakePhone, extras: dict[str, str], say: Any) -> None:
    say("started")


def refused(phone: FakePhone, extras: dict[str, str], say: Any) -> None:
    say("refused", reason="affinity must be any")


def silent(phone: FakePhone, extras: dict[str, str], say: Any) -> None:
    threading.Event().wait(3.0)


def strange(phone: FakePhone, extras: dict[str, str], say: Any) -> None:
    say("measuring", colour="red")


def wrong(phone: FakePhone, extras: dict[str, str]) -> Changes:
    nothing = {"status": "failed", "error": "it does not answer as at export", "latency_us": (), "round_sizes": ()}
    return result(phone, extras, **nothing)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (died, "the app's process ended without a result"),
        (refused, "affinity must be any"),
        (silent, "the app logged nothing for 1 s"),
        (strange, "must have the form of this version"),
        (ending(wrong), "it does not answer as at export"),
        (ending(lambda phone, extras: "{"), "this must be JSON"),
        (ending(lambda phone, extras: result(phone, extras, model_sha256="00" * 32)), "model_sha256 must be"),
        (ending(lambda phone, extras: result(phone, extras, threads=7)), "threads must be 1; it is 7"),
        (
            ending(lambda phone, extras: {**result(phone, extras), "measured_on": "host"}),
            "must be measured on a device; received host",
        ),
        (ending(lambda phone, extras: {**result(phone, extras), "measurements": []}), "one measurement; received 0"),
    ],
)
def test_failed_run_is_reported_and_retried(connect: Any, bench: Any, tmp_path: Path, app: Any, said: str) -> None:
    def second_fails(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        return (app if len(phone.starts) == 2 else good)(phone, extras, say)

    phone = FakePhone(SERIAL, second_fails)
    connect(phone)
    code, out, err = bench("--repeats=2")
    assert code == 1 and said in out and said in err and "Traceback" not in err
    unwell = next(each for each in joined(tmp_path).values() if each.status == "failed")
    assert unwell.error and said in unwell.error and unwell.error.startswith("1 of 2 repeats are measured")
    assert [each.status for each in joined(tmp_path).values()].count("ok") == 1
    assert bench("--repeats=2")[0] == 0
    assert len(phone.starts) == 5 and asked(phone)[4] == asked(phone)[1]
    assert all(each.status == "ok" for each in joined(tmp_path).values())


def test_repeated_failures_stop_a_phone(connect: Any, bench: Any, tmp_path: Path) -> None:
    phone = FakePhone(SERIAL, refused)
    connect(phone)
    code, out, _ = bench()
    assert code == 1 and "5 runs failed one after another; the last: affinity must be any" in out
    assert len(phone.starts) == 5 and list(phone.files) == [APK]
    assert [path.name for path in (tmp_path / "out").glob("*.json")] == ["plan.json"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    # A shell that starts tests in the background has them ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_command_cleans_up_and_resumes(
    connect: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupting(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        if len(phone.starts) == 2:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return good(phone, extras, say)

    phone = FakePhone(SERIAL, interrupting)
    connect(phone)
    arguments = ["bench", str(BUNDLE), f"--device={SERIAL}", f"--output={tmp_path / 'out'}", "--repeats=3"]
    assert cli.main(arguments) == 130
    # What was running came to its end; nothing after it began.
    assert 2 <= len(phone.starts) <= 3 and list(phone.files) == [APK]
    capsys.readouterr()
    assert cli.main(arguments) == 0
    assert len(phone.starts) == 6 and len(joined(tmp_path)[9].round_sizes) == 3


def test_phone_without_results_fails(connect: Any, bench: Any) -> None:
    connect(FakePhone(SERIAL, refused))
    code, out, _ = bench("--repeats=1", "--lengths=9")
    assert code == 1 and "nothing was measured: affinity must be any" in out


def test_full_disk_stops_one_phone_only(
    connect: Any, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones = [FakePhone(serial, good) for serial in ("one", "two")]
    connect(*phones)
    keep = phone_plan.Kept.keep

    def failing(kept: phone_plan.Kept, *arguments: Any) -> Any:
        # The first to keep anything finds no room.
        if failed_for.setdefault("folder", kept) is kept:
            raise OSError(errno.ENOSPC, "No space left on device")
        return keep(kept, *arguments)

    failed_for: dict[str, Any] = {}
    monkeypatch.setattr(phone_plan.Kept, "keep", failing)
    code, out, err = bench(serials="one,two")
    assert code == 1 and out.count("No space left on device") == 1 and "Traceback" not in err
    assert len(list((tmp_path / "out").glob("pixel_4_*.json"))) == 1


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


def test_full_phone_is_reported_and_cleaned(connect: Any, bench: Any) -> None:
    phone = FakePhone(SERIAL, good)
    phone.room = 50_000
    connect(phone)
    code, out, _ = bench()
    assert code == 1 and "the phone's storage is full" in out
    assert list(phone.files) == [APK] and not phone.starts


def test_other_phones_survive_a_lost_one(connect: Any, bench: Any, tmp_path: Path) -> None:
    meeting = threading.Barrier(2, timeout=20)

    def together(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        # Nobody gets past this alone.
        if len(phone.starts) == 1:
            meeting.wait()
        return good(phone, extras, say)

    one, two = FakePhone("A", together), FakePhone("B", together, **{"ro.product.model": "SM-S911B"})
    two.unplug_at = "pull"
    connect(one, two)
    code, out, err = bench("--repeats=1", serials="A,B")
    assert code == 1 and "the phone is gone" in out and "pixel_4_" in out
    (path,) = (tmp_path / "out").glob("pixel_4_*.json")
    assert all(each.status == "ok" for each in results.read(path).measurements)
    assert not list((tmp_path / "out").glob("sm_s911b_*.json"))
    assert "sm_s911b_" in err


def test_the_report_takes_a_phones_file(connect: Any, bench: Any, tmp_path: Path) -> None:
    connect(FakePhone(SERIAL, good))
    assert bench("--repeats=1")[0] == 0
    (path,) = (tmp_path / "out").glob("pixel_4_*.json")
    page = report.build_report([results.read(path)], tmp_path / "page").read_text(encoding="utf-8")
    assert "Latency of exported bundles on a Pixel 4" in page and json.loads(path.read_text("utf-8"))["quick"] is False


def test_separate_failures_stop_nothing(connect: Any, bench: Any) -> None:
    def every_second(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        return (refused if len(phone.starts) % 2 else good)(phone, extras, say)

    phone = FakePhone(SERIAL, every_second)
    connect(phone)
    assert bench("--repeats=6")[0] == 1
    assert len(phone.starts) == 12
