"""Every recipe: size, latency and memory of three networks, and accuracy of a fine-tuned one on SST-2.

Latencies at 128 tokens and one thread come from random weights; the files of a network alternate in one run. Accuracy
comes from the 6x384 network that `tasks/sst2` fine-tunes, scored on the development set. The gate accepts any outputs
here, because the study measures what a recipe loses.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.glue import GLUE, read_glue
from pocketbert.tasks.registry import text_task
from pocketbert_bench import baseline_calls, host, machine, results
from pocketbert_bench.configurations import Call, Configuration
from pocketbert_bench.host import Schedule
from pocketbert_export.bounds import BOUNDS, Bounds
from pocketbert_export.calibration_options import CalibrationOptions
from pocketbert_export.exporter import export
from pocketbert_export.graph_optimization_options import GraphOptimizations
from pocketbert_export.predictors import open_predictor
from pocketbert_export.recipes import RECIPES
from pocketbert_export.signatures import signature_name
from studies.against_transformers.latency import move_norms
from studies.experiment import TRAINED
from studies.shared_data import shared_data
from studies.tasks.sst2 import score, train

NETWORKS = ("minilmv2_6l_384d", "tinybert_4l_312d", "mobilebert")
BASELINE = "dynamic_wi8"
# Limit of mixed files: halfway between int8 and int4 in all layers.
MIXED_MB = {"minilmv2_6l_384d": 18.0, "tinybert_4l_312d": 11.5, "mobilebert": 20.0}
# Recipe → target of its latency ÷ the baseline's.
TARGETS = {"dynamic_wi4": 1.3}
LENGTH, LENGTHS = 128, (32, 64)
TASK = TaskConfig(kind="classification", name="random", labels=("negative", "positive"))
FULL = Schedule(rounds=30, runs=150, seconds=0.0, longest_seconds=30.0)
QUICK = Schedule(rounds=6, runs=24, seconds=0.0, longest_seconds=5.0, warm_up_seconds=0.3)
_ANY = 1e9


def run(quick: bool) -> dict[str, Any]:
    """Measures and scores every recipe; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    folder = shared_data("glue")
    examples, dev = (read_glue("sst2", folder, split) for split in ("train", "dev"))
    measurements, ratios = [], []
    for name in NETWORKS[:1] if quick else NETWORKS:
        with tempfile.TemporaryDirectory() as directory:
            found = host.measure(_random_files(name, examples, Path(directory)), QUICK if quick else FULL)
        measurements += found
        (baseline,) = (each for each in found if each.recipe == BASELINE)
        for each in found:
            if each is not baseline:
                description = f"{name}, {LENGTH} tokens, 1 thread, {each.recipe} to {BASELINE}"
                target = TARGETS.get(each.recipe)
                ratios.append(results.latency_ratio(f"{name} {each.recipe}", each, baseline, description, target))
    accuracies, notes = _score(train(quick), examples, dev, quick)
    return results.to_json(
        results.result_file(
            "recipes",
            quick=quick,
            measurements=measurements,
            ratios=ratios,
            accuracies=accuracies,
            notes=[*notes, "Latencies are those of random weights."],
            on=before,
            created=created,
        )
    )


def _random_files(name: str, examples: Examples, folder: Path) -> list[Configuration]:
    """Files of a preset with random weights, one per recipe. Their outputs are not checked."""
    import pocketbert as pb
    from pocketbert_export.calibration import choose_texts
    from pocketbert_export.convert import to_calibrated_tflite, to_tflite
    from pocketbert_export.graph_optimization import optimize_graph

    tokenizer = pb.from_pretrained(minilm()).tokenizer
    assert tokenizer is not None
    model = pb.from_preset(name, TASK, tokenizer=tokenizer, seed=0)
    move_norms({path: weight for path, weight in model.weights_by_path().items() if path.endswith((".gamma", ".beta"))})
    optimized = optimize_graph(model, GraphOptimizations())
    texts = choose_texts(examples, None, tokenizer, [LENGTH])
    inputs = baseline_calls.legal_inputs(model.config, LENGTH)
    calls = tuple(Call(signature=signature_name(LENGTH), inputs=row, expected=None) for row in inputs)
    found = []
    for recipe, each in RECIPES.items():
        path = folder / f"{recipe}.tflite"
        content = (
            to_tflite(optimized, [LENGTH], each)
            if each.calibration == "none"
            else to_calibrated_tflite(optimized, [LENGTH], each, texts, _options(recipe, name)).content
        )
        path.write_bytes(content)
        found.append(
            Configuration(
                label=f"{name}, {recipe}",
                model=name,
                recipe=recipe,
                model_path=path,
                length=LENGTH,
                threads=1,
                calls=calls,
                weights="random",
            )
        )
    return found


def _options(recipe: str, network: str) -> CalibrationOptions:
    return CalibrationOptions(max_mb=MIXED_MB[network] if recipe == "mixed" else None)


def _free(recipe: str) -> Bounds:
    numbers = {field.name: _ANY for field in dataclasses.fields(Bounds)}
    return dataclasses.replace(BOUNDS[recipe], **{**numbers, "label_agreement": 0.0})


def _score(model: Path, examples: Examples, dev: Examples, quick: bool) -> tuple[list[results.Accuracy], list[str]]:
    """Scores the fine-tuned network and its bundles, with the differences of logits as notes."""
    output = Path("runs/studies/tasks", "recipes_quick" if quick else "recipes")
    task = text_task(GLUE["sst2"].task)
    variants = {"model": model, **{recipe: output / recipe for recipe in RECIPES}}
    accuracies, notes = [], []
    reference: np.ndarray | None = None
    for label, path in variants.items():
        if label != "model" and not path.exists():
            given = None if RECIPES[label].calibration == "none" else examples
            export(
                model,
                path,
                recipe=label,
                lengths=LENGTHS,
                examples=dev,
                bounds=_free(label),
                calibration=given,
                calibration_options=_options(label, NETWORKS[0]),
            )
        logits = open_predictor(path).logits(dev.texts)
        answers = task.decide(logits)
        accuracies.append(score(label, TRAINED if label == "model" else label, path, answers, dev))
        if reference is None:
            reference = logits
            continue
        rms = float(np.sqrt(np.mean(np.square(logits - reference)) / np.mean(np.square(reference))))
        equal = float(np.mean(answers == task.decide(reference)))
        notes.append(f"{label}: RMS difference {rms:.3f}, {100 * equal:.1f} % equal labels")
    return accuracies, notes
