"""The workers of `pocketbert pretrain-data`: equal bytes for any number of them, and how they end."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, ClassVar

import forks
import killing
import pytest
from pretraining_text import command, tree

from pocketbert import cli
from pocketbert.data.pretraining import run as pretraining_run
from pocketbert.data.pretraining import shards as pretraining_shards
from pocketbert.processes import begin_worker


class PickledCalls:
    """A pool of processes whose calls are made here, with copies of what they are given."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, size: int, context: Any, initializer: object, initargs: tuple[Any, ...]) -> None:
        self.asked += [size, context.get_start_method(), initializer, initargs]

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))
        future.set_result(function(*arguments))
        return future

    def shutdown(self, **options: object) -> None:
        pass


def test_workers_share_the_shards(
    folder: Path, tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining_run, "ProcessPoolExecutor", PickledCalls)
    monkeypatch.setattr(PickledCalls, "asked", [])
    assert cli.main(command(folder, tmp_path / "data", "--workers=2")) == 0
    assert tree(tmp_path / "data") == expected
    *asked, (parent, threads) = PickledCalls.asked
    # `begin_worker` ends a worker with its parent; see test_killed_parent_ends_its_processes in trials/test_workers.py.
    assert asked == [2, "spawn", begin_worker] and threads == 1
    assert parent.in_main_thread and Path(parent.temporary).parent == Path(tempfile.gettempdir())


def test_temporary_files_are_in_the_runs_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    made: list[Path] = []

    def noted(job: pretraining_shards.ShardJob, shard: int) -> None:
        made.append(Path(tempfile.mkdtemp()))
        pretraining_shards.write_shard(job, shard)

    monkeypatch.setattr(pretraining_run, "write_shard", noted)
    assert cli.main(command(folder, tmp_path / "data")) == 0
    (of_run,) = {path.parent for path in made}
    assert of_run.parent == tmp_path / "temporary" and not of_run.exists()


def test_several_processes_write_the_same_bytes(folder: Path, tmp_path: Path, expected: dict[str, bytes]) -> None:
    assert cli.main(command(folder, tmp_path / "data", "--workers=2")) == 0
    assert tree(tmp_path / "data") == expected


@pytest.fixture
def busy(folder: Path, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run with two workers, which take long, and its folder for temporary files."""
    text, temporary = tmp_path / "text.txt", tmp_path / "temporary"
    text.write_text((folder / "text.txt").read_text("utf-8") * 3000, encoding="utf-8")
    temporary.mkdir()
    line = command(folder, tmp_path / "data", f"--text={text}", "--workers=2", "--duplicates=9")
    process = subprocess.Popen(
        [sys.executable, "-m", "pocketbert", *line],
        env=environment_of(temporary),
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A shell that starts tests in the background has them ignore SIGINT, and what they start too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    yield process, temporary
    process.kill()
    process.communicate()


def environment_of(temporary: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(forks.SOURCES), "TMPDIR": str(temporary)}


# From the start of the workers until they make their shards: in these seconds they import TensorFlow.
@pytest.mark.nightly
@pytest.mark.parametrize("delay", [0.5, 4.0])
def test_workers_end_with_a_killed_parent(busy: tuple[subprocess.Popen[str], Path], delay: float) -> None:
    parent = busy[0]
    killing.seconds_until(lambda: len(killing.workers_of(parent.pid)) == 2)
    workers = killing.workers_of(parent.pid)
    time.sleep(delay)
    assert parent.poll() is None and all(map(killing.is_alive, workers))
    parent.kill()
    seconds = killing.seconds_until(lambda: not any(map(killing.is_alive, workers)))
    print(f"killed after {delay} s: the workers ended {seconds:.2f} s later")
    assert seconds < 2


@pytest.mark.nightly
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGKILL,
        *(pytest.param(signal_number, marks=pytest.mark.slow) for signal_number in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_temporary_files_go_with_the_run(busy: tuple[subprocess.Popen[str], Path], number: int) -> None:
    process, temporary = busy
    killing.seconds_until(lambda: len(killing.workers_of(process.pid)) == 2)
    workers = killing.workers_of(process.pid)
    (abandoned,) = temporary.iterdir()
    (abandoned / "model").mkdir()
    (abandoned / "model" / "weights").touch()
    process.send_signal(number)
    lines = process.communicate(timeout=60)[1].strip().splitlines()
    killing.seconds_until(lambda: not any(map(killing.is_alive, workers)))
    if number == signal.SIGKILL:
        # The next command removes it.
        assert abandoned.exists()
        subprocess.run([sys.executable, "-m", "pocketbert", "presets"], env=environment_of(temporary), check=True)
    else:
        assert process.returncode == 128 + number and "Traceback" not in "".join(lines)
        assert lines[-1].endswith("run the same command to resume, if it supports that")
    assert list(temporary.iterdir()) == []


@pytest.mark.nightly
def test_ended_worker_is_one_line(busy: tuple[subprocess.Popen[str], Path]) -> None:
    """As when the system ends a process because memory is full."""
    process = busy[0]
    killing.seconds_until(lambda: len(killing.workers_of(process.pid)) == 2)
    os.kill(killing.workers_of(process.pid)[0], signal.SIGKILL)
    output = process.communicate(timeout=60)[1]
    assert process.returncode == 2 and "Traceback" not in output
    assert "the system ended one of 2; run the same command with fewer --workers to resume (" in output.splitlines()[-1]
