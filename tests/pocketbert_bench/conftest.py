"""Fixtures for phones: the real adb client with a server of ours, and the command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_adb import FakePhone, FakeServer
from phone_runs import BUNDLE, REPEATS, SERIAL

from pocketbert import cli
from pocketbert_bench import phone_app


@pytest.fixture(scope="session")
def compression_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `tiny_compression.write_inputs`, and exports of its compressions."""
    import tiny_compression

    return tiny_compression.write_inputs(tmp_path_factory.mktemp("compression"))


@pytest.fixture(scope="session")
def cost_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def own_cache(cost_cache: Path) -> Iterator[None]:
    """A cache of measured costs for all modules that use it; measurements take little time, and all are kept."""
    import bench_subjects

    from pocketbert_bench.compression import costs, inputs

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("POCKETBERT_CACHE", str(cost_cache))
        patched.setattr(inputs, "SCHEDULE", bench_subjects.BRIEF)
        bench_subjects.measure_briefly(patched)
        # Other tests run beside it.
        patched.setattr(costs, "_MOST_OTHERS", 100.0)
        yield


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., FakeServer]]:
    """Connects phones to a server that the adb client asks; phones on which nobody waits long."""
    if not shutil.which("adb"):
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("CI=true and adb is not installed (Debian's package adb)", pytrace=False)
        pytest.skip("adb is not installed (Debian's package adb): NOTHING about phones is tested")
    monkeypatch.setattr(phone_app, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(phone_app, "SILENCE_SECONDS", 1.0)
    servers: list[FakeServer] = []

    def connect(*phones: FakePhone) -> FakeServer:
        servers.append(FakeServer(*phones))
        servers[-1].__enter__()
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(servers[-1].port))
        return servers[-1]

    yield connect
    for server in servers:
        server.__exit__()


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command on one configuration a length; (exit code, stdout, stderr)."""

    def bench(*more: str, serials: str = SERIAL, bundle: Path = BUNDLE) -> tuple[int, str, str]:
        arguments = ["bench", str(bundle), f"--device={serials}", f"--output={tmp_path / 'out'}"]
        if not any(argument.startswith("--repeats") for argument in more):
            arguments.append(f"--repeats={REPEATS}")
        code = cli.main([*arguments, *more])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return bench
