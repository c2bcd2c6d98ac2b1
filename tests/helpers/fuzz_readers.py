"""Damages the valid files of every reader in `READERS`, and counts what the reader accepts, refuses and raises.

A reader must accept a file or refuse it with a `UserError` of one line, in a limited time; anything else is raised.
Faults are drawn from a seed, so that a failure comes again. All runs in one process.

  python tests/helpers/fuzz_readers.py --inputs=10000 --seed=7
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import damage
import numpy as np
from sample_files import READERS

from pocketbert.errors import UserError

# A busy machine is slow: this is what a hang or a blow-up exceeds.
MOST_SECONDS, HANG_SECONDS = 4.0, 20
_MOST_MESSAGE = 5000


@dataclasses.dataclass
class Counts:
    """What a reader did with damaged files.

    Attributes:
      inputs: number of damaged files.
      accepted: number of files that it read.
      refused: number of files that it refused in one line.
      raised: one line for each other end.
    """

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    raised: list[str] = dataclasses.field(default_factory=list)


class TooSlow(BaseException):
    """A reader took too long; no reader catches it."""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {HANG_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
    started = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if time.process_time() - started > MOST_SECONDS:
        raise TooSlow(f"more than {MOST_SECONDS} s of processor time")


class Sample:
    """The valid files of a reader.

    Args:
      name: name of the reader.
      folder: an empty folder for them.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._reader = name, READERS[name]
        self.target = self._reader.make(folder)
        self._reader.read(self.target)
        files = [self.target] if self.target.is_file() else sorted(self.target.rglob("*"))
        self._contents = {path: path.read_bytes() for path in files if path.is_file()}

    def fuzz(self, inputs: int, seed: int) -> Counts:
        """Reads the files with one fault at a time.

        Args:
          inputs: number of faults.
          seed: seed of the faults.
        """
        counts, files = Counts(), [*self._contents]
        # JSON and YAML decide what all the others mean.
        weights = np.array([4.0 if path.suffix in (".json", ".yaml", ".toml") else 1.0 for path in files])
        for fault in range(inputs):
            random = np.random.default_rng([zlib.crc32(self.name.encode()), seed, fault])
            path = files[random.choice(len(files), p=weights / weights.sum())]
            content = self._contents[path]
            damaged = damage.swapped(content, random) if random.random() < 0.5 else None
            damaged = damage.damaged(content, random) if damaged is None else damaged
            self._read(path, damaged, counts, f"seed {seed}, fault {fault}")
        return counts

    def exhaust(self) -> Counts:
        """Reads the files with each value of their JSON in turn removed and replaced; see `damage.every_swap`."""
        counts = Counts()
        for path, content in self._contents.items():
            for number, damaged in enumerate(damage.every_swap(content)):
                self._read(path, damaged, counts, f"swap {number}")
        return counts

    def _read(self, path: Path, damaged: bytes, counts: Counts, fault: str) -> None:
        path.write_bytes(damaged)
        if self._reader.sign is not None:
            # A file that nobody could sign stays as it is.
            with contextlib.suppress(Exception):
                self._reader.sign(self.target)
        self._count(counts, f"{self.name}, {fault}, in {path.name}")
        for copy, valid in self._contents.items():
            if copy == path or not copy.is_file() or copy.stat().st_size != len(valid) or self._reader.sign:
                copy.write_bytes(valid)

    def _count(self, counts: Counts, where: str) -> None:
        counts.inputs += 1
        try:
            with _limited():
                self._reader.read(self.target)
            counts.accepted += 1
        except UserError as error:
            message = str(error)
            if "\n" in message or len(message) > _MOST_MESSAGE:
                counts.raised.append(f"{where}: a message must be one line; received {message[:200]!r}")
            else:
                counts.refused += 1
        except (Exception, TooSlow) as error:
            counts.raised.append(f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def main(arguments: Sequence[str]) -> int:
    """Prints the counts of each reader; returns 1 if anything was raised."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000, help="damaged files in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", action="store_true", help="instead, each JSON value with each replacement")
    parser.add_argument("--readers", default=",".join(READERS), help="names with commas")
    parsed = parser.parse_args(arguments)
    names = parsed.readers.split(",")
    total = Counts()
    print(f"{'reader':<28}{'inputs':>8}{'accepted':>10}{'refused':>9}{'raised':>8}")
    for number, name in enumerate(names):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            share = parsed.inputs // len(names) + (number < parsed.inputs % len(names))
            sample = Sample(name, Path(folder))
            counts = sample.exhaust() if parsed.every else sample.fuzz(share, parsed.seed)
        _print(name, counts)
        for line in counts.raised:
            print(f"  {line}", flush=True)
        total.inputs, total.accepted = total.inputs + counts.inputs, total.accepted + counts.accepted
        total.refused, total.raised = total.refused + counts.refused, total.raised + counts.raised
    _print(f"{len(names)} readers", total)
    return int(bool(total.raised))


def _print(name: str, counts: Counts) -> None:
    print(f"{name:<28}{counts.inputs:>8}{counts.accepted:>10}{counts.refused:>9}{len(counts.raised):>8}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
