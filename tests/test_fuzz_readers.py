"""Every reader, given 200 damaged files: each is read, or refused in one line, and in no time.

A new reader is a row of `READERS`. Faults are drawn from a seed, so that a failure comes again.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
from sample_files import READERS, sign_pretraining

from pocketbert.errors import UserError

FAULTS, SLOW_FAULTS = 200, 2000
# A busy machine is slow: this is what a hang or a blow-up exceeds.
MOST_SECONDS, HANG_SECONDS = 2.0, 20


@contextlib.contextmanager
def _limited(what: str) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(what)

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    started = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert time.process_time() - started < MOST_SECONDS, what


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], Path]:
    """What copies a reader's valid files into a folder; those of two readers are made once."""
    originals: dict[Any, tuple[Path, Path]] = {}

    def copy(name: str, folder: Path) -> Path:
        make = READERS[name].make
        if make not in originals:
            root = tmp_path_factory.mktemp("made")
            originals[make] = root, make(root)
        root, target = originals[make]
        shutil.copytree(root, folder, dirs_exist_ok=True)
        return folder / target.relative_to(root)

    return copy


def _check(name: str, target: Path, faults: int) -> None:
    reader = READERS[name]
    reader.read(target)
    files = sorted(path for path in ([target] if target.is_file() else target.rglob("*")) if path.is_file())
    contents = {path: path.read_bytes() for path in files}
    # JSON decides what all the others mean.
    weights = np.array([4.0 if path.suffix == ".json" else 1.0 for path in files])
    refused = 0
    for fault in range(faults):
        random = np.random.default_rng([zlib.crc32(name.encode()), fault])
        path = files[random.choice(len(files), p=weights / weights.sum())]
        damaged = damage.swapped(contents[path], random) if random.random() < 0.5 else None
        path.write_bytes(damage.damaged(contents[path], random) if damaged is None else damaged)
        if reader.sign is not None:
            # A file that nobody could sign stays as it is.
            with contextlib.suppress(Exception):
                reader.sign(target)
        what = f"{name}, fault {fault}, in {path.name}"
        try:
            with _limited(what):
                reader.read(target)
        except UserError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 5000, f"{what}: {error}"
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        finally:
            for changed, content in contents.items():
                if changed == path or reader.sign is not None:
                    changed.write_bytes(content)
    assert refused > faults / 20, f"{name}: only {refused} of {faults} faults were refused"


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_refused_in_one_line(name: str, made: Callable[[str, Path], Path], tmp_path: Path) -> None:
    _check(name, made(name, tmp_path), FAULTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_refused_in_one_line(
    name: str, made: Callable[[str, Path], Path], tmp_path: Path
) -> None:
    _check(name, made(name, tmp_path), SLOW_FAULTS)


def test_records_of_another_format_are_refused(made: Callable[[str, Path], Path], tmp_path: Path) -> None:
    from pocketbert.data.pretraining_data import PretrainingData

    folder = made("pretraining-data", tmp_path)
    shard = next(folder.glob("*.tfrecord"))
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    sign_pretraining(folder)
    data = PretrainingData.open(folder)
    with pytest.raises(UserError, match="the records must be examples; received other content; copy the folder again"):
        data.dataset(data.plan(batch_size=2, seed=0, epoch=0), seed=0, epoch=0)
