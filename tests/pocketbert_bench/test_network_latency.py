"""Latency of networks on a phone; `test_latency_model` measures them on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import phone_runs
import pytest
import tiny
import tiny_finetuning
from fake_adb import FakePhone, ending

from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert_bench.network_latency import PhoneDevice, Setting

CONFIGS = [
    tiny.BERT.replace(num_layers=1, feedforward=FeedForwardConfig(expressions=(f"linear{n}_1(gelu(linear{n}_1(x)))",)))
    for n in (2, 1)
]
SETTING = Setting(task=tiny_finetuning.TASK, recipe="dynamic_wi8", lengths=(13,))


def test_interrupted_measurements_resume(connect: Callable[..., Any], tmp_path: Path) -> None:
    vocabulary = tiny_finetuning.write_model(tmp_path / "teacher")
    good = FakePhone(phone_runs.SERIAL, ending(phone_runs.slower_for_larger_files))
    phone = PhoneDevice(serial=phone_runs.SERIAL, vocabulary=vocabulary)
    connect(good)
    # The phone leaves before the last of two networks in three repeats.
    finish, starts = good.app, []

    def leaving(phone: FakePhone, extras: dict[str, str], say: Any) -> Any:
        starts.append(extras)
        if len(starts) == 6:
            phone.state = None
            return None
        return finish(phone, extras, say)

    good.app = leaving
    with pytest.raises(UserError, match="run the same command to resume"):
        phone.measure(CONFIGS, SETTING, tmp_path / "kept")
    good.state = "device"
    latencies = phone.measure(CONFIGS, SETTING, tmp_path / "kept")
    sizes = [(tmp_path / "kept" / "networks" / f"network-{n}" / "model.tflite").stat().st_size for n in (0, 1)]
    assert [network.latency_us for network in latencies] == [(size,) for size in sizes] and sizes[0] > sizes[1]
    assert len(starts) == 7 and {start["length"] for start in starts} == {"13"}


def test_missing_phone_is_named(connect: Callable[..., Any], tmp_path: Path) -> None:
    connect(FakePhone("OTHER", phone_runs.good))
    phone = PhoneDevice(serial="PIXEL9", vocabulary=tmp_path)
    with pytest.raises(UserError, match="PIXEL9 must be connected; adb lists OTHER"):
        phone.check()
    assert "PIXEL9" not in phone.name
