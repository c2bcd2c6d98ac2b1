"""`pocketbert compress --device`: costs and limits on a phone."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import phone_runs
import pytest
from fake_adb import FakePhone, ending
from tiny_compression import compress_fast

import pocketbert as pb
from pocketbert.cli import main
from pocketbert_bench.compression import costs
from pocketbert_bench.compression.measurements import round_ratio
from pocketbert_export import exporter

PEAK = 87_000_000


def result(phone: FakePhone, extras: dict[str, str], peak: int | None = PEAK) -> Any:
    """A file takes as many microseconds as it has kilobytes, and thrice as long for 32 tokens."""
    content = phone_runs.slower_for_larger_files(phone, extras)
    (measured,) = content["measurements"]
    factor = {"16": 1, "32": 3}[extras["length"]]
    measured["latency_us"] = [factor * value / 1e3 for value in measured["latency_us"]]
    return {**content, "measurements": [{**measured, "peak_memory_bytes": peak}]}


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@pytest.fixture
def command(
    compression_inputs: Path, networks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eager: None
) -> list[str]:
    """The command for two networks, which are exported once for all tests."""
    monkeypatch.setenv("POCKETBERT_CACHE", str(tmp_path / "cache"))
    compress_fast(compression_inputs, monkeypatch)
    few = costs.fitted_networks
    monkeypatch.setattr(costs, "fitted_networks", lambda *arguments, **options: few(*arguments, **options)[:2])
    real = exporter.export

    def export(model: Any, path: Path, **options: Any) -> Any:
        if not isinstance(model, pb.Model):
            return real(model, path, **options)
        if not (networks / path.name).exists():
            real(model, networks / path.name, **options)
        return shutil.copytree(networks / path.name, path)

    monkeypatch.setattr(exporter, "export", export)
    start = ["compress", f"--model={compression_inputs / 'teacher'}", "--length=16", "--trials=1"]
    start += [f"--train-file={compression_inputs / 'train.csv'}", "--max-latency-ms=100"]
    return [*start, f"--device={phone_runs.SERIAL}"]


def test_a_phone_measures_networks_and_winner(command: list[str], connect: Callable[..., Any], tmp_path: Path) -> None:
    phone = FakePhone(phone_runs.SERIAL, ending(result))
    connect(phone)
    out = tmp_path / "out"
    assert main([*command, "--threads=2", "--max-memory-mb=87.1", f"--output={out}"]) == 0
    content = json.loads((out / "result.json").read_text())
    size = (out / "bundle" / "model.tflite").stat().st_size
    assert content["latency_ms"] == pytest.approx([size / 1e6] * 3)
    assert content["teacher_latency_ms"] == pytest.approx((out / "teacher_bundle/model.tflite").stat().st_size / 1e6)
    assert content["memory_mb"] == pytest.approx(PEAK / 1e6)
    assert {start["threads"] for start in phone.starts} == {"2"} and {start["length"] for start in phone.starts} == {
        "16"
    }
    assert " at 16 tokens on phone " in content["sentence"]
    assert content["sentence"].split(" on phone ")[1][:6] in (out / "report.html").read_text()
    # Two networks in three repeats, then winner and teacher in five.
    assert len(phone.starts) == 2 * 3 + 2 * 5
    for path in (*out.rglob("*"), *(tmp_path / "cache").rglob("*")):
        assert phone_runs.SERIAL not in str(path)
        assert not path.is_file() or phone_runs.SERIAL.encode() not in path.read_bytes()
    # A finished run needs no phone.
    assert main([*command, "--threads=2", "--max-memory-mb=87.1", f"--output={out}"]) == 0
    assert len(phone.starts) == 16


def test_memory_that_a_phone_does_not_report(
    command: list[str], connect: Callable[..., Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    connect(FakePhone(phone_runs.SERIAL, ending(functools.partial(result, peak=None))))
    assert main([*command, "--max-memory-mb=87.1", f"--output={tmp_path / 'out'}"]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "--max-memory-mb needs a device that reports the memory of its processes; phone " in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("serial", "message"), [("OTHER", "PIXEL1 must be connected; adb lists OTHER"), (None, "app must be on")]
)
def test_phones_that_cannot_measure(
    serial: str | None,
    message: str,
    command: list[str],
    connect: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    connect(FakePhone(serial or phone_runs.SERIAL, phone_runs.good, installed=b"an apk" if serial else None))
    assert main([*command, f"--output={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_an_app_without_a_phone(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command[:-1], f"--apk={__file__}", "--dry-run"]) == 2
    assert "--apk is for phones; received it without --device" in capsys.readouterr().err


def test_latencies_are_compared_within_rounds() -> None:
    # Other programs double the times of four rounds, but of one of them only for the first network.
    slowness = ([1, 1, 2, 2, 2, 2, 1], [1, 1, 2, 2, 2, 1, 1])
    first, second = (
        SimpleNamespace(
            latency_us=[time * factor for factor in factors for _ in range(calls)], round_sizes=7 * (calls,)
        )
        for factors, time, calls in zip(slowness, (200.0, 600.0), (4, 3), strict=True)
    )
    assert round_ratio(first, second) == pytest.approx(1 / 3)  # type: ignore[arg-type]
