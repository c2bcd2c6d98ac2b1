"""The app's Java core against `pocketbert bench` on this computer: the same bundles in turns, 1 thread, 128 tokens.

Java runs TensorFlow Lite from the JavaCPP presets, Python runs LiteRT: two releases of one library. If Java takes much
longer, XNNPACK is not attached or our code slows it down. `make android-test` builds the Java core.
"""

from __future__ import annotations

import dataclasses
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.errors import UserError
from pocketbert.progress import track
from pocketbert_bench import host, machine, results
from pocketbert_bench.configurations import from_bundle

NETWORK = "6x384"
LENGTH, THREADS = 128, 1
TASK = TaskConfig(kind="classification", name="random", labels=("negative", "positive"))
# Recipes without calibration that TensorFlow Lite of the JavaCPP presets executes.
RECIPES = ("float32", "float16", "dynamic_wi8")
# Largest ratio of the medians of a turn.
MOST = 1.1
TURNS, QUICK_TURNS = 9, 3
# As many calls as Java's command makes in a turn.
SCHEDULE = dataclasses.replace(host.FULL, rounds=1)
_JAR = Path(__file__).resolve().parents[2] / "android_app" / "host" / "target" / "pocketbert-host.jar"


def run(quick: bool) -> dict[str, Any]:
    """Measures the recipes; returns the content of a result file."""
    if not _JAR.is_file():
        raise UserError(f"the app's core must be built; there is no {_JAR.name}; run make android-test")
    created, before = results.now(), machine.machine()
    turns = QUICK_TURNS if quick else TURNS
    with tempfile.TemporaryDirectory() as folder:
        bundles = make_bundles(Path(folder))
        samples: dict[tuple[str, str], list[float]] = {}
        measurements = []
        for turn in track(range(turns), "Java and Python", "turn"):
            for recipe, bundle in bundles.items():
                sides = (("Java", _java), ("Python", _python))
                for label, measure in sides[:: -1 if turn % 2 else 1]:
                    found = measure(bundle)
                    found = dataclasses.replace(found, label=f"{label}, {recipe}")
                    if found.summary is None:
                        raise UserError(f"{label} must measure {recipe}; it failed: {found.error}")
                    samples.setdefault((recipe, label), []).append(found.summary.median_us)
                    measurements += [found] if turn == 0 else []
    ratios = [
        results.ratio(
            name=f"{ours} to {theirs}, {recipe}",
            description=f"6x384, {LENGTH} tokens, {THREADS} thread, {recipe}: a turn's median, {ours} to {theirs}",
            ours=ours,
            peer=theirs,
            unit="us",
            ours_samples=samples[recipe, ours],
            peer_samples=samples[recipe, theirs],
            better="lower",
            target=MOST,
        )
        for recipe in bundles
        for ours, theirs in (("Java", "Python"), ("Python", "Java"))
    ]
    return results.to_json(
        results.result_file(
            "the app's core on a computer",
            quick=quick,
            measurements=measurements,
            ratios=ratios,
            notes=["The head is untrained: latency is meaningful, outputs are not."],
            on=before,
            created=created,
        )
    )


def make_bundles(folder: Path) -> dict[str, Path]:
    """Exports the 6x384 network with a new head in each of `RECIPES`."""
    import pocketbert as pb
    from pocketbert_export.exporter import export

    pb.from_pretrained(minilm(), task=TASK, seed=0).save_pretrained(folder / "model")
    for recipe in RECIPES:
        export(folder / "model", folder / recipe, recipe=recipe, lengths=(LENGTH,))
    return {recipe: folder / recipe for recipe in RECIPES}


def _python(bundle: Path) -> results.Measurement:
    return host.measure(from_bundle(bundle, None, (THREADS,), weights="random", model=NETWORK), SCHEDULE)[0]


def _java(bundle: Path) -> results.Measurement:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "result.json"
        command = ["java", "-jar", str(_JAR), str(bundle), f"--threads={THREADS}", f"--output={output}"]
        command += [f"--name={NETWORK}", "--weights=random"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 2:
            raise UserError(f"{_JAR.name} must take {bundle.name}; it failed: {done.stderr.strip()}")
        return results.read(output).measurements[0]
