"""`pocketbert compress` against a student with fixed settings at the same latency, over three seeds.

For each seed, a student with three layers learns from a teacher with TinyBERT, on a quarter of the sentences. This was
`make demo` before it called `compress`. The student's latency is the limit of a compression of all training sentences
in four minutes. Both are scored on the dev split, a tenth of the sentences, which the compression gets as its final
split. Close other programs first; with fewer steps, both get worse.

    python -m studies compression_demo
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.progress import log_info
from pocketbert_bench import accuracy, host, results
from pocketbert_bench.quickstart import (
    CARD,
    DISTILLATION,
    LENGTH,
    METRIC,
    OPTIONS,
    STUDENT_NETWORK,
    TASK,
    TEACHER_LAYERS,
    sentences,
    tables,
)
from pocketbert_export.bundles.bundle import MODEL_FILE, Bundle
from pocketbert_export.verification.outcomes import ScoringData

SEEDS, MINUTES = (0, 1, 2), 4.0
COMPRESSED = "pocketbert compress"
_QUICK_MINUTES = 2.0
# A part of the data gives few steps: smaller batches give more of them, and the teacher's rate is higher.
_EXAMPLES = 1920
_TEACHER = dataclasses.replace(OPTIONS, learning_rate=1e-4, epochs=1, batch_size=16)
_STUDENT = dataclasses.replace(DISTILLATION, intermediate_batch_size=16, prediction_epochs=1, prediction_batch_size=16)


def run(quick: bool) -> dict[str, Any]:
    """Trains both for each seed; returns their accuracies, and a ratio of them."""
    dev = cast(Examples, sentences().dev)
    minutes, seeds = (_QUICK_MINUTES, SEEDS[:1]) if quick else (MINUTES, SEEDS)
    records: list[results.Accuracy] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        for seed in seeds:
            folder = Path(name, str(seed))
            student = _student(folder, seed)
            limit = _median_ms(student)
            limits = pb.Constraints(max_latency_ms=limit, length=LENGTH)
            result = pb.compress(None, tables(), folder / "compressed", constraints=limits, minutes=minutes, seed=seed)
            for model, bundle in ((STUDENT_NETWORK, student), (COMPRESSED, result.bundle)):
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
    ours, peer = (
        [record.value for record in records if record.model == model] for model in (COMPRESSED, STUDENT_NETWORK)
    )
    ratio = results.ratio(
        name="accuracy",
        description="accuracy of both at the same latency, a sample for each seed",
        ours=COMPRESSED,
        peer=STUDENT_NETWORK,
        unit=METRIC,
        ours_samples=ours,
        peer_samples=peer,
        better="higher",
        target=1.0,
    )
    title = "pocketbert compress against a student with fixed settings"
    return results.to_json(results.result_file(title, quick=quick, accuracies=records, ratios=[ratio], notes=notes))


def _student(folder: Path, seed: int) -> Bundle:
    """The bundle of the student."""
    data, run = sentences(), pb.RunConfig(seed=seed)
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.train))[:_EXAMPLES])
    part = dataclasses.replace(data, train=data.train.select(chosen))
    teacher = pb.finetune(minilm(), part, folder / "teacher", config=_TEACHER, run=run)
    layers = pb.TeacherLayers(TEACHER_LAYERS)
    student = pb.distill(layers, part, folder / "student", teacher=teacher.model_directory, method=_STUDENT, run=run)
    return pb.export(student.model_directory, folder / "bundle", lengths=(LENGTH,), examples=data.dev, card=CARD)


def _median_ms(bundle: Bundle) -> float:
    measured = host.bench_bundles(
        [bundle.directory], lengths=[LENGTH], threads=[1], weights="trained", names={bundle.directory: "student"}
    ).measurements
    return float(np.median(measured[0].latency_us)) / 1e3
