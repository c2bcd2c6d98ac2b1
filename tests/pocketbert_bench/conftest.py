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
from pocketbert_bench import charts, phone_app


@pytest.fixture(scope="session")
def compression_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `tiny_compression.write_inputs`, and exports of its compressions."""
    import tiny_compression

    return tiny_compression.write_inputs(tmp_path_factory.mktemp("compression"))


@pytest.fixture(scope="module", params=["untrained", pytest.param("trained", marks=pytest.mark.nightly)])
def training(request: pytest.FixtureRequest, compression_inputs: Path) -> Iterator[str]:
    """What a module's compressions do: they train briefly, or take over the first weights of each candidate."""
    import tiny_compression

    from pocketbert_bench.compression import candidates

    cut = candidates.structures
    with pytest.MonkeyPatch.context() as patched:
        tiny_compression.train_briefly(patched)
        if request.param == "untrained":
            # A head that reads the first token instead would have to train.
            patched.setattr(candidates, "structures", lambda *args, **options: cut(*args, small_embedding=False))
            tiny_compression.finetune_once(compression_inputs / "teachers", patched)
            tiny_compression.compress_fast(compression_inputs, patched)
        yield request.param


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
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have no plots, which take longer to draw than all else."""
    monkeypatch.setattr(charts, "draw", lambda rows: {})


@pytest.fixture(scope="session")
def plain_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A float32 bundle for 9 and 17 tokens; its network is beside it, as `network`. Copy what you change."""
    import bench_subjects

    from pocketbert_export.exporter import export

    folder = tmp_path_factory.mktemp("plain")
    network = bench_subjects.write_network(folder / "network", bench_subjects.bert_config(num_layers=1))
    return export(network, folder / "whole", recipe="float32", lengths=(9, 17)).directory


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
