"""Runs on phones that fail, end early or are interrupted."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_adb import APK, FakePhone, ending
from phone_runs import BUNDLE, SERIAL, Changes, asked, good, joined, result

from pocketbert import cli
from pocketbert_bench import phone_plan, results


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


@pytest.mark.one_of_each(
    "died-the app's process ended without a result",
    "silent-the app logged nothing for 1 s",
    "app-it does not answer as at export",
    "app-model_sha256 must be",
)
@pytest.mark.parametrize(
    ("app", "message"),
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
def test_failed_run_is_reported_and_retried(connect: Any, bench: Any, tmp_path: Path, app: Any, message: str) -> None:
    def second_fails(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        return (app if len(phone.starts) == 2 else good)(phone, extras, say)

    phone = FakePhone(SERIAL, second_fails)
    connect(phone)
    code, out, err = bench("--repeats=2")
    assert code == 1 and message in out and message in err and "Traceback" not in err
    unwell = next(measurement for measurement in joined(tmp_path).values() if measurement.status == "failed")
    assert unwell.error and message in unwell.error and unwell.error.startswith("1 of 2 repeats are measured")
    assert [measurement.status for measurement in joined(tmp_path).values()].count("ok") == 1
    assert bench("--repeats=2")[0] == 0
    assert len(phone.starts) == 5 and asked(phone)[4] == asked(phone)[1]
    assert all(measurement.status == "ok" for measurement in joined(tmp_path).values())


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


@pytest.mark.nightly
def test_full_disk_stops_one_phone_only(
    connect: Any, bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones = [FakePhone(serial, good) for serial in ("one", "two")]
    connect(*phones)
    keep = phone_plan.Kept.keep

    def failing(results: phone_plan.Kept, *arguments: Any) -> Any:
        # The first to keep anything finds no room.
        if failed_for.setdefault("folder", results) is results:
            raise OSError(errno.ENOSPC, "No space left on device")
        return keep(results, *arguments)

    failed_for: dict[str, Any] = {}
    monkeypatch.setattr(phone_plan.Kept, "keep", failing)
    code, out, err = bench(serials="one,two")
    assert code == 1 and out.count("No space left on device") == 1 and "Traceback" not in err
    assert len(list((tmp_path / "out").glob("pixel_4_*.json"))) == 1


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
    assert all(measurement.status == "ok" for measurement in results.read(path).measurements)
    assert not list((tmp_path / "out").glob("sm_s911b_*.json"))
    assert "sm_s911b_" in err


@pytest.mark.nightly
def test_separate_failures_stop_nothing(connect: Any, bench: Any) -> None:
    def every_second(phone: FakePhone, extras: dict[str, str], say: Any) -> str | None:
        return (refused if len(phone.starts) % 2 else good)(phone, extras, say)

    phone = FakePhone(SERIAL, every_second)
    connect(phone)
    assert bench("--repeats=6")[0] == 1
    assert len(phone.starts) == 12
