"""Latency of networks on a phone, and on a machine with other work; `test_latency_model` measures them here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import phone_runs
import pytest
import tiny
import tiny_finetuning
from fake_adb import FakePhone, ending

from pocketbert.errors import UserError
from pocketbert.feedforward import FeedForwardConfig
from pocketbert_bench import host, network_latency
from pocketbert_bench.network_latency import Host, PhoneDevice, RandomNetwork, Setting

FEEDFORWARDS = [FeedForwardConfig(expressions=(f"linear{n}_1(gelu(linear{n}_1(x)))",)) for n in (2, 1)]
NETWORKS = [
    RandomNetwork(tiny.BERT.replace(num_layers=1, feedforward=feedforward), tiny_finetuning.TASK)
    for feedforward in FEEDFORWARDS
]
SETTING = Setting(task=tiny_finetuning.TASK, recipe="dynamic_wi8", lengths=(13,))


@pytest.mark.nightly
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
        phone.measure(NETWORKS, SETTING, tmp_path / "kept")
    good.state = "device"
    latencies = phone.measure(NETWORKS, SETTING, tmp_path / "kept")
    sizes = [(tmp_path / "kept" / "networks" / f"network-{n}" / "model.tflite").stat().st_size for n in (0, 1)]
    assert [network.latency_us[0] for network in latencies] == pytest.approx(sizes, rel=1e-9) and sizes[0] > sizes[1]
    assert len(starts) == 7 and {start["length"] for start in starts} == {"13"}


def test_rounds_on_a_slow_machine_change_the_ratios_little(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    errors: list[list[float]] = [[], []]
    for _ in range(50):
        # Speeds differ by about 30 % between rounds, and by 5 % between the turns of a round.
        true, slowness = np.array([900.0, 1700.0, 2600.0, 400.0, 3100.0]), random.normal(0, 0.3, 12)
        rounds = true[:, None] * np.exp(slowness + random.normal(0, 0.05, (5, 12)))
        measurements = [
            SimpleNamespace(
                error=None, latency_us=row, round_sizes=12 * [1], size_bytes=1, peak_memory_bytes=1, load=None
            )
            for row in rounds
        ]
        monkeypatch.setattr(host, "measure", lambda *_, measurements=measurements: measurements)
        monkeypatch.setattr(network_latency, "_write_network", lambda *_: None)
        costs = Host().measure(5 * [NETWORKS[0]], SETTING, Path())
        measured = [network.latency_us[0] for network in costs], np.median(rounds, axis=1)
        for of_way, latencies in zip(errors, measured, strict=True):
            logarithms = np.log(np.array(latencies) / true)
            of_way += list(logarithms - logarithms.mean())
    assert np.std(errors[0]) < 0.75 * np.std(errors[1])


def test_missing_phone_is_named(connect: Callable[..., Any], tmp_path: Path) -> None:
    connect(FakePhone("OTHER", phone_runs.good))
    phone = PhoneDevice(serial="PIXEL9", vocabulary=tmp_path)
    with pytest.raises(UserError, match="PIXEL9 must be connected; adb lists OTHER"):
        phone.check()
    assert "PIXEL9" not in phone.name
