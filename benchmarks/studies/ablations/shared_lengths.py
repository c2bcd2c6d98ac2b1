"""Gain of finer lengths that share packed weights: SST-2's dev sentences, each at the shortest sufficient length.

The network, the sentences and the protocol of `lengths.py`. Files with several lengths run on CompiledModel with a warm
weight cache, so all their lengths read the same packed weights; the file with 128 tokens only does too.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from pocketbert_bench import machine, results, weight_cache
from pocketbert_bench.configurations import Configuration
from pocketbert_bench.host import Worker
from studies.ablations import lengths as plain
from studies.ablations.lengths import FIXED, MORE, PRESET, RECIPE, USUAL

SEVEN, EIGHTS = (16, 24, 32, 48, 64, 96, 128), (8, 16, 24, 32, 40, 48, 56, 64, 128)
TARGET = 4.5


def run(quick: bool) -> dict[str, Any]:
    """Measures all files; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    with tempfile.TemporaryDirectory() as name:
        folder, inputs = Path(name), plain.sentences(quick)
        files = plain.export_lengths(folder, (FIXED, USUAL, MORE, SEVEN, EIGHTS))
        caches = {lengths: (path, _cache(path, lengths, inputs, folder / "caches")) for lengths, path in files.items()}
        turns = plain.QUICK_TURNS if quick else plain.TURNS
        seconds, by_length = plain.measure(caches, inputs, turns, EIGHTS)
    count = len(inputs["input_mask"])
    ratios = [
        results.ratio(
            name=title,
            description=f"mean over {count} SST-2 dev sentences, {PRESET}, {RECIPE}, 1 thread, weight cache",
            ours=f"lengths {'/'.join(map(str, ours))}",
            peer=f"lengths {'/'.join(map(str, peer))}",
            unit="sentences/s",
            ours_samples=[count / value for value in seconds[ours]],
            peer_samples=[count / value for value in seconds[peer]],
            better="higher",
            target=target,
        )
        for title, ours, peer, target in (
            ("three lengths against fixed 128", USUAL, FIXED, None),
            ("six lengths against fixed 128", MORE, FIXED, None),
            ("seven lengths against fixed 128", SEVEN, FIXED, TARGET),
            ("multiples of 8 against fixed 128", EIGHTS, FIXED, TARGET),
            ("six lengths against three", MORE, USUAL, None),
            ("multiples of 8 against six lengths", EIGHTS, MORE, None),
        )
    ]
    latencies = ", ".join(f"{length}: {value / 1e3:.2f}" for length, value in by_length.items())
    notes = [
        f"{plain.UNDISTURBED}th percentile, ms, by length: {latencies}",
        plain.tokens_note(inputs["input_mask"].sum(axis=1), EIGHTS),
        results.RANDOM_WEIGHTS_NOTE,
    ]
    return results.to_json(
        results.result_file(
            "finer lengths with shared packed weights, on SST-2's sentences",
            quick=quick,
            ratios=ratios,
            notes=notes,
            on=before,
            created=created,
        )
    )


def _cache(path: Path, lengths: tuple[int, ...], inputs: dict[str, Any], folder: Path) -> Path:
    call = plain.call_of({name: values[0] for name, values in inputs.items()}, lengths)
    configuration = Configuration(
        label="cache",
        model=PRESET,
        recipe=RECIPE,
        model_path=path,
        length=lengths[-1],
        threads=1,
        calls=(call,),
        runtime="litert-compiled",
    )
    return weight_cache.prepare(
        folder, path, lambda cache: Worker(dataclasses.replace(configuration, weight_cache=cache)).close()
    )
