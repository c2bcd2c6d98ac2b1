"""Memory and opening time of several lengths, with and without XNNPACK's weight cache.

A 6x384 classifier in dynamic int8, 1 thread, exported at 128 tokens only and at seven lengths, with random weights.
Each opening is a new process that calls every length once and compares the outputs with the interpreter's. All lengths
read the beginning of the same text, so they read the same rows of the embedding. In every turn, all variants are opened
in a new order; the values of one turn are pairs. A cold cache is an empty folder.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert_bench import machine, results, statistics, weight_cache
from pocketbert_bench.configurations import Call, Configuration, LiteRT
from pocketbert_bench.host import Worker
from studies.ablations.lengths import PRESET, RECIPE, export_lengths

ONE, SEVEN = (128,), (16, 24, 32, 48, 64, 96, 128)
# Resident growth with all lengths, relative to one.
TARGET = 1.25
TURNS, QUICK_TURNS = 12, 4
# Calls of the longest signature, for the speed of CompiledModel.
CALLS, UNRECORDED = 25, 5


@dataclass(frozen=True)
class OpeningVariant:
    """A way to open a file.

    Attributes:
      lengths: lengths of the file.
      runtime: the runtime.
      cache: no weight cache, an empty folder, or a cache from an earlier process.
    """

    lengths: tuple[int, ...]
    runtime: LiteRT
    cache: str = "none"

    @property
    def name(self) -> str:
        """Name in the result file."""
        runtime = "interpreter" if self.runtime == "litert" else "CompiledModel"
        cache = "" if self.cache == "none" else f", {self.cache} cache"
        return f"{len(self.lengths)} length{'s' if len(self.lengths) > 1 else ''}, {runtime}{cache}"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Values of one opening.

    Attributes:
      growth_bytes: growth of the resident memory.
      opening_us: time from the file's path to the end of the first call.
      call_us: median latency of the longest signature.
    """

    growth_bytes: float
    opening_us: float
    call_us: float


COMPILED: LiteRT = "litert-compiled"
VARIANTS = [
    OpeningVariant(ONE, "litert"),
    OpeningVariant(SEVEN, "litert"),
    OpeningVariant(ONE, COMPILED),
    OpeningVariant(SEVEN, COMPILED),
    OpeningVariant(ONE, COMPILED, "warm"),
    OpeningVariant(SEVEN, COMPILED, "warm"),
    OpeningVariant(SEVEN, COMPILED, "cold"),
]
_ONE, _SEVEN, _ONE_COMPILED, _SEVEN_COMPILED, _ONE_WARM, _SEVEN_WARM, _SEVEN_COLD = VARIANTS
# Name, value, numerator, denominator, target.
RATIOS = (
    ("growth, 7 lengths without a cache", "growth_bytes", _SEVEN, _ONE, None),
    ("growth, 7 lengths with a cache", "growth_bytes", _SEVEN_WARM, _ONE, TARGET),
    ("growth, 7 lengths, both with a cache", "growth_bytes", _SEVEN_WARM, _ONE_WARM, TARGET),
    ("growth, 7 lengths with an empty cache", "growth_bytes", _SEVEN_COLD, _ONE, None),
    ("growth, CompiledModel", "growth_bytes", _ONE_COMPILED, _ONE, None),
    ("opening, 7 lengths without a cache", "opening_us", _SEVEN, _ONE, None),
    ("opening, 7 lengths with a cache", "opening_us", _SEVEN_WARM, _ONE, None),
    ("opening, cache against none", "opening_us", _SEVEN_WARM, _SEVEN_COMPILED, None),
    ("opening, empty cache against none", "opening_us", _SEVEN_COLD, _SEVEN_COMPILED, None),
    ("latency, CompiledModel", "call_us", _ONE_COMPILED, _ONE, None),
    ("latency, CompiledModel with a cache", "call_us", _SEVEN_WARM, _ONE, None),
)


def run(quick: bool) -> dict[str, Any]:
    """Opens all variants; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    with tempfile.TemporaryDirectory() as folder:
        files = export_lengths(Path(folder), (ONE, SEVEN))
        for path in files.values():
            _forget(path)
        opened = _open(files, Path(folder), QUICK_TURNS if quick else TURNS)
    ratios = [
        results.ratio(
            name=name,
            description=f"{PRESET}, {RECIPE}, 1 thread; lengths {'/'.join(map(str, SEVEN))} or 128",
            ours=ours.name,
            peer=peer.name,
            unit="bytes" if value == "growth_bytes" else "us",
            ours_samples=[getattr(each, value) for each in opened[ours]],
            peer_samples=[getattr(each, value) for each in opened[peer]],
            better="lower",
            target=target,
        )
        for name, value, ours, peer, target in RATIOS
    ]
    return results.to_json(
        results.result_file(
            "memory and opening time of several lengths",
            quick=quick,
            ratios=ratios,
            notes=[results.RANDOM_WEIGHTS_NOTE],
            on=before,
            created=created,
        )
    )


def _forget(path: Path) -> None:
    """Removes a new file from the page cache.

    Linux caches it in large pages, and maps those as a whole: the resident memory then holds nearly all of the file,
    instead of the parts that are read.
    """
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _open(files: dict[tuple[int, ...], Path], folder: Path, turns: int) -> dict[OpeningVariant, list[Opening]]:
    calls = {lengths: tuple(_calls(path, lengths)) for lengths, path in files.items()}
    opened: dict[OpeningVariant, list[Opening]] = {variant: [] for variant in VARIANTS}
    generator = random.Random(0)
    # The first turn fills the page cache.
    for turn in progress.track(range(turns + 1), "openings of all variants", "turn"):
        for variant in generator.sample(VARIANTS, len(VARIANTS)):
            configuration = Configuration(
                label=variant.name,
                model=PRESET,
                recipe=RECIPE,
                model_path=files[variant.lengths],
                length=variant.lengths[-1],
                threads=1,
                calls=calls[variant.lengths],
                weights="random",
                runtime=variant.runtime,
            )
            with _cache(configuration, variant, folder) as cached, Worker(cached) as worker:
                found = _opening(worker)
            if turn:
                opened[variant].append(found)
    return opened


@contextlib.contextmanager
def _cache(configuration: Configuration, variant: OpeningVariant, folder: Path) -> Iterator[Configuration]:
    if variant.cache == "none":
        yield configuration
    elif variant.cache == "cold":
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            yield replace(configuration, weight_cache=Path(empty) / "cold")
    else:
        yield replace(
            configuration,
            weight_cache=weight_cache.prepare(
                folder / "caches",
                configuration.model_path,
                lambda path: Worker(replace(configuration, weight_cache=path)).close(),
            ),
        )


def _opening(worker: Worker) -> Opening:
    started = worker.started
    # Packed weights are the same bytes with and without a cache, so the outputs are too.
    if max(started["golden_differences"]) > 1e-6:
        raise AssertionError(f"outputs must be the interpreter's; they differ by {started['golden_differences']}")
    longest = len(started["golden_differences"]) - 1
    latency_us = worker.run([longest] * (UNRECORDED + CALLS))[UNRECORDED:]
    return Opening(
        growth_bytes=started["resident_memory_bytes"] - started["base_memory_bytes"],
        opening_us=started["init_us"] + started["first_inference_us"],
        call_us=statistics.summarize(latency_us).median_us,
    )


def _calls(path: Path, lengths: tuple[int, ...]) -> Iterator[Call]:
    """One call per length, and the interpreter's outputs."""
    from ai_edge_litert.interpreter import Interpreter

    from pocketbert.encoder import INPUT_NAMES
    from pocketbert_export.signatures import signature_name

    interpreter, generator = Interpreter(model_path=str(path), num_threads=1), np.random.default_rng(0)
    ids = generator.integers(1000, 20000, lengths[-1])
    for length in lengths:
        values = (ids[:length], np.ones(length), np.zeros(length))
        inputs = {name: row.astype(np.int32) for name, row in zip(INPUT_NAMES, values, strict=True)}
        runner = interpreter.get_signature_runner(signature_name(length))
        outputs = runner(**{name: row[None] for name, row in inputs.items()})
        yield Call(
            signature=signature_name(length),
            inputs={name: row.tolist() for name, row in inputs.items()},
            expected={name: row.tolist() for name, row in outputs.items()},
        )
