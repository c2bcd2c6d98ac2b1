"""Start, memory and speed of `pocketbert_runtime`, beside `pocketbert`'s own bundles, with int8 weights.

A fresh Python process opens the 6x384 bundle and answers one sentence: seconds of all its threads until the label, and
its resident memory then. After that, sentences of SST-2 in turns: two threads against one in the runtime, and the
runtime against `pb.Bundle.predict`. Close other programs first: two threads need two free cores.

    python -m studies app_runtime
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pocketbert_runtime
from pocketbert.data.assets import minilm
from pocketbert.progress import track
from pocketbert_bench import results
from studies.glue_examples import task_examples

LENGTHS = (32, 64, 128)
RECIPE = "dynamic_wi8"
SENTENCES, TURNS, STARTS = 10_000, 10, 5
_QUICK_SENTENCES, _QUICK_TURNS, _QUICK_STARTS = 60, 3, 2
MOST_START_SECONDS, MOST_MEMORY_MB, LEAST_GAIN = 0.6, 120, 1.6
_START = """
import json, resource, sys, time
from {package} import Bundle
label = Bundle.open(sys.argv[1]).predict(["a charming and often affecting journey"])[0]["label"]
pages = int(open("/proc/self/statm").read().split()[1])
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([usage.ru_utime + usage.ru_stime, pages * resource.getpagesize() / 1e6]))
"""
_ONE, _TWO, _LARGE = "pocketbert_runtime, 1 thread", "pocketbert_runtime, 2 threads", "pocketbert, 1 thread"


def run(quick: bool) -> dict[str, Any]:
    """Measures starts and sentences; returns the content of a result file."""
    import pocketbert as pb

    starts, turns, count = (_QUICK_STARTS, _QUICK_TURNS, _QUICK_SENTENCES) if quick else (STARTS, TURNS, SENTENCES)
    train, _ = task_examples("sst2", count)
    with tempfile.TemporaryDirectory() as folder:
        task = pb.TaskConfig(kind="classification", labels=("negative", "positive"))
        model = pb.from_pretrained(minilm(), task=task, seed=0)
        path = Path(folder) / "bundle"
        pb.export(model, path, recipe=RECIPE, lengths=LENGTHS)
        packages = ("pocketbert_runtime", "pocketbert")
        samples: dict[str, list[tuple[float, float]]] = {package: [] for package in packages}
        for turn in track(range(starts), "starts", "turn"):
            for package in packages[:: -1 if turn % 2 else 1]:
                samples[package].append(_started(package, path))
        with (
            pocketbert_runtime.Bundle.open(path) as one,
            pocketbert_runtime.Bundle.open(path, threads=2) as two,
            pb.Bundle.open(path) as large,
        ):
            calls = {_ONE: one.predict, _TWO: two.predict, _LARGE: large.predict}
            seconds = _seconds(calls, list(train.texts), turns)
    return results.to_json(
        results.result_file(
            "pocketbert-runtime",
            quick=quick,
            ratios=[*_start_ratios(samples), *_sentence_ratios(seconds, count)],
            notes=[_limit_note(samples["pocketbert_runtime"]), "The head is untrained; speed does not depend on it."],
        )
    )


def _started(package: str, path: Path) -> tuple[float, float]:
    """Seconds of all threads from the start of Python to the first label, and resident megabytes then."""
    # TensorFlow's log lines go to stderr.
    done = subprocess.run(
        [sys.executable, "-c", _START.format(package=package), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        text=True,
    )
    seconds, megabytes = json.loads(done.stdout.splitlines()[-1])
    return seconds, megabytes


def _seconds(
    calls: Mapping[str, Callable[[list[str]], Any]], texts: Sequence[str], turns: int
) -> dict[str, list[float]]:
    """Seconds on the clock of each call, for each turn's share of the texts; a first text of each length warms up."""
    for call in calls.values():
        call([word * length for word in ("a ", "film ") for length in (5, 40, 100)])
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in track(range(turns), "sentences", "turn"):
        share = list(texts[turn::turns])
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            begin = time.perf_counter()
            calls[name](share)
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def _start_ratios(samples: dict[str, list[tuple[float, float]]]) -> list[results.Ratio]:
    kinds = (
        ("start", "seconds of all threads from the start of Python to the first label", "s"),
        ("memory", "resident memory after the first label", "MB"),
    )
    return [
        results.ratio(
            name=name,
            description=f"{description}, 6x384, {RECIPE}",
            ours="pocketbert_runtime",
            peer="pocketbert",
            unit=unit,
            ours_samples=[sample[index] for sample in samples["pocketbert_runtime"]],
            peer_samples=[sample[index] for sample in samples["pocketbert"]],
            better="lower",
        )
        for index, (name, description, unit) in enumerate(kinds)
    ]


def _sentence_ratios(seconds: dict[str, list[float]], count: int) -> list[results.Ratio]:
    share = f"{count} SST-2 sentences in {len(seconds[_ONE])} parts"
    return [
        # Speed, so that a larger ratio is better: sentences in a second.
        results.ratio(
            name=name,
            description=f"{share}: sentences in a second",
            ours=ours,
            peer=peer,
            unit="1/s",
            ours_samples=[count / len(seconds[ours]) / value for value in seconds[ours]],
            peer_samples=[count / len(seconds[peer]) / value for value in seconds[peer]],
            better="higher",
            target=target,
        )
        for name, ours, peer, target in (
            ("threads", _TWO, _ONE, LEAST_GAIN),
            ("package", _ONE, _LARGE, None),
        )
    ]


def _limit_note(samples: Sequence[tuple[float, float]]) -> str:
    """Says whether the largest of all starts keep to the limits."""
    seconds, megabytes = (max(sample[index] for sample in samples) for index in (0, 1))
    return (
        f"Largest of {len(samples)} starts: {seconds:.2f} s (at most {MOST_START_SECONDS}: "
        f"{'met' if seconds <= MOST_START_SECONDS else 'MISSED'}), {megabytes:.0f} MB (at most {MOST_MEMORY_MB}: "
        f"{'met' if megabytes <= MOST_MEMORY_MB else 'MISSED'})"
    )
