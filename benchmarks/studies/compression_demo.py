"""`pocketbert compress` against the student of `make demo` at the same latency, over three seeds.

For each seed, it trains the student as `make demo` does and measures its bundle. The latency is the limit of a
compression of all training sentences in four minutes. Both are scored on the dev split, a tenth of the sentences, which
the compression gets as its final split. Close other programs first; with fewer steps, both get worse.

    python -m studies compression_demo
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm, rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, host, results
from pocketbert_bench.quickstart import CARD, METRIC, STUDENT_NETWORK, TASK, sentences, train_student, train_teacher
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from pocketbert_export.verification.outcomes import ScoringData

SEEDS, MINUTES, LENGTH = (0, 1, 2), 4.0, 64
COMPRESSED = "pocketbert compress"
_QUICK_MINUTES = 2.0


def run(quick: bool) -> dict[str, Any]:
    """Trains both for each seed; returns their accuracies, and a ratio of them."""
    train, dev = rotten_tomatoes()
    minutes, seeds = (_QUICK_MINUTES, SEEDS[:1]) if quick else (MINUTES, SEEDS)
    records: list[results.Accuracy] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in seeds:
            folder = Path(name, str(seed))
            demo = _demo_student(folder, dev, seed)
            limit = _median_ms(demo)
            data = pb.data.table(_columns(train), test=_columns(dev), label_names=TASK.labels)
            data = dataclasses.replace(data, metrics=(METRIC,), main_metric=METRIC)
            limits = pb.Constraints(max_latency_ms=limit, length=LENGTH)
            result = pb.compress(None, data, folder / "compressed", constraints=limits, minutes=minutes, seed=seed)
            for model, bundle in ((STUDENT_NETWORK, demo), (COMPRESSED, result.bundle)):
                scores, _ = ScoringData(data=dev, metrics=(METRIC,), main_metric=METRIC).score(bundle.predictor())
                records.append(
                    accuracy.record(
                        label=f"seed {seed}",
                        model=model,
                        recipe=bundle.recipe,
                        task=str(TASK.name),
                        split="dev split, a tenth",
                        metric=METRIC,
                        value=scores.score,
                        examples=len(dev),
                        model_file=bundle.directory / MODEL_FILE,
                    )
                )
            notes.append(
                f"seed {seed}: the limit is {limit:.2f} ms at {LENGTH} tokens; the compressed model takes "
                f"{result.latency_ms[0]:.2f} ms, by its interval at most {result.latency_ms[2]:.2f} ms; it took "
                f"{result.seconds:.0f} s with {100 * result.training_seconds / result.seconds:.0f} % in training, for "
                f"{len(result.leaderboard)} candidates"
            )
            log_info(notes[-1])
    compressed, student = (
        [record.value for record in records if record.model == model] for model in (COMPRESSED, STUDENT_NETWORK)
    )
    ratio = results.ratio(
        name="accuracy",
        description="accuracy of both at the same latency, a sample for each seed",
        ours=COMPRESSED,
        peer=STUDENT_NETWORK,
        unit=METRIC,
        ours_samples=compressed,
        peer_samples=student,
        better="higher",
        target=1.0,
    )
    title = "pocketbert compress against the student of make demo"
    return results.to_json(results.result_file(title, quick=quick, accuracies=records, ratios=[ratio], notes=notes))


def _demo_student(folder: Path, dev: Examples, seed: int) -> Bundle:
    """The student of `make demo`, exported."""
    data = sentences(full=False)
    teacher = train_teacher(minilm(), data, folder / "teacher", full=False, seed=seed)
    student = train_student(Path(teacher.model_directory), data, folder / "student", full=False, seed=seed)
    return pb.export(student.model_directory, folder / "bundle", lengths=(LENGTH,), examples=dev, card=CARD)


def _median_ms(bundle: Bundle) -> float:
    measured = host.bench_bundles(
        [bundle.directory], lengths=[LENGTH], threads=[1], weights="trained", names={bundle.directory: "student"}
    ).measurements
    return float(np.median(measured[0].latency_us)) / 1e3


def _columns(examples: Examples) -> dict[str, list[str]]:
    """A table as a user has it."""
    assert examples.labels is not None
    return {"text": examples.texts, "label": [TASK.labels[label] for label in examples.labels]}
