"""Every recipe: size, latency and memory of three networks, and scores of fine-tuned ones.

Latencies at 128 tokens and one thread come from random weights; the files of a network alternate in one run. One
channel of each feed-forward output is large, as in fine-tuned networks, so that `static_wi8_ai16` has int16 layers. The
baseline of static int8 is a file of TensorFlow's converter with a representative data set and every operator in int8.

Scores come from `recipe_scores`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from pocketbert.configs import TaskConfig
from pocketbert.data.assets import minilm
from pocketbert.data.examples import Examples
from pocketbert.data.readers.glue import read_glue
from pocketbert.recipes import RECIPES
from pocketbert_bench import baseline_calls, host, machine, results
from pocketbert_bench.configurations import Call, Configuration
from pocketbert_bench.host import Schedule
from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
from pocketbert_export.tflite.graph import operator_name, read_model
from pocketbert_runtime.bundles.description import signature_name
from studies.against_transformers.latency import move_norms
from studies.shared_data import shared_data
from studies.tasks import recipe_scores
from studies.tasks.recipe_scores import INT16, mixed_options, score_recipes

NETWORKS = ("minilmv2_6l_384d", "tinybert_4l_312d", "mobilebert")
BASELINE, STATIC = "dynamic_wi8", "static_wi8_ai8"
# Limits of mixed files: halfway between int8 and int4 in all layers.
MIXED_MB = {"minilmv2_6l_384d": recipe_scores.MIXED_MB, "tinybert_4l_312d": 11.5, "mobilebert": 20.0}
# Recipe → target of its latency ÷ the baseline's.
TARGETS = {"dynamic_wi4": 1.3}
NAIVE = "naive int8"
# Target of the latency of static int8 ÷ that of the naive file.
NAIVE_TARGET = 0.36
# Ratio of one channel to the others; 34 was seen in the 6x384 network.
LARGE_CHANNEL = 30.0
# Enough for ranges of random weights.
_RANDOM_TEXTS = 32
LENGTH = 128
TASK = TaskConfig(kind="classification", name="random", labels=("negative", "positive"))
FULL = Schedule(rounds=30, runs=150, seconds=0.0, longest_seconds=30.0)
QUICK = Schedule(rounds=6, runs=24, seconds=0.0, longest_seconds=5.0, warm_up_seconds=0.3)


def run(quick: bool) -> dict[str, Any]:
    """Measures and scores every recipe; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    examples = read_glue("sst2", shared_data("glue"), "train")
    measurements, ratios, notes = [], [], []
    for name in NETWORKS[:1] if quick else NETWORKS:
        with tempfile.TemporaryDirectory() as directory:
            files = _random_files(name, examples, Path(directory))
            notes.append(f"{name}, {INT16}: {_int16_layers(files)} dense layers have int16 activations")
            found = host.measure(files, QUICK if quick else FULL)
        measurements += found
        by_recipe = {each.recipe: each for each in found}
        for recipe, each in by_recipe.items():
            if recipe != BASELINE:
                description = f"{name}, {LENGTH} tokens, 1 thread, {recipe} to {BASELINE}"
                baseline, target = by_recipe[BASELINE], TARGETS.get(recipe)
                ratios.append(results.latency_ratio(f"{name} {recipe}", each, baseline, description, target))
        description = f"{name}, {LENGTH} tokens, 1 thread, {STATIC} to {NAIVE}"
        both = by_recipe[STATIC], by_recipe[NAIVE]
        ratios.append(results.latency_ratio(f"{name} {STATIC} to {NAIVE}", *both, description, NAIVE_TARGET))
    accuracies, scores = score_recipes(quick)
    notes += scores
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
    """Files of a preset with random weights, one per recipe, and the naive one. Their outputs are not checked."""
    import pocketbert as pb
    from pocketbert_export.conversion.convert import to_calibrated_tflite, to_tflite
    from pocketbert_export.conversion.graph_optimization import optimize_graph
    from pocketbert_export.quantization.calibration import choose_texts

    tokenizer = pb.from_pretrained(minilm()).tokenizer
    assert tokenizer is not None
    model = pb.from_preset(name, TASK, tokenizer=tokenizer, seed=0)
    weights = model.weights_by_path()
    move_norms({path: weight for path, weight in weights.items() if path.endswith((".gamma", ".beta"))})
    if model.config.norm == "layer_norm":
        # Without LayerNorm, the channel would grow with every layer.
        _enlarge_channel([weight for path, weight in weights.items() if path.endswith(".0.output.kernel")])
    texts = choose_texts(examples, None, tokenizer, [LENGTH], most=_RANDOM_TEXTS)
    inputs = baseline_calls.legal_inputs(model.config, LENGTH)
    files = []
    for recipe in (*RECIPES, NAIVE):
        path = folder / f"{recipe.replace(' ', '_')}.tflite"
        if recipe == NAIVE:
            content = _naive(model, inputs)
        else:
            each = RECIPES[recipe]
            optimized = optimize_graph(model, GraphOptimizations().for_recipe(each))
            content = (
                to_tflite(optimized, [LENGTH], each)
                if each.calibration != "required"
                else to_calibrated_tflite(
                    optimized, [LENGTH], each, texts, mixed_options(recipe, MIXED_MB[name], equalize=False)
                ).content
            )
        path.write_bytes(content)
        signature = "serving_default" if recipe == NAIVE else signature_name(LENGTH)
        files.append(
            Configuration(
                label=f"{name}, {recipe}",
                model=name,
                recipe=recipe,
                model_path=path,
                length=LENGTH,
                threads=1,
                calls=tuple(Call(signature=signature, inputs=row, expected=None) for row in inputs),
                is_baseline=recipe == NAIVE,
                weights="random",
            )
        )
    return files


def _enlarge_channel(kernels: Sequence[Any]) -> None:
    """Enlarges an output channel of dense layers."""
    for kernel in kernels:
        values = kernel.numpy()
        values[:, 3] *= LARGE_CHANNEL
        kernel.assign(values)


def _naive(model: Any, rows: Sequence[Mapping[str, Sequence[int]]]) -> bytes:
    """Converts the plain network with TensorFlow's converter: every operator in int8, ranges from `rows`."""
    import tensorflow as tf

    from pocketbert.processes import stderr_on_failure
    from pocketbert_export.conversion.convert import write_saved_model

    with tempfile.TemporaryDirectory() as folder, stderr_on_failure():
        path = Path(folder, "saved_model")
        write_saved_model(model, path, [LENGTH])
        converter = tf.lite.TFLiteConverter.from_saved_model(str(path), signature_keys=["serving_default"])
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            {name: np.array([ids], np.int32) for name, ids in row.items()} for row in rows
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        return converter.convert()


def _int16_layers(files: Sequence[Configuration]) -> str:
    """Number of dense layers with int16 outputs, and of all dense layers, in the int16 file."""
    (path,) = (file.model_path for file in files if file.recipe == INT16)
    model = read_model(path.read_bytes())
    graph = model.subgraphs[0]
    types = [
        graph.tensors[operator.outputs[0]].type
        for operator in graph.operators
        if operator_name(model, operator) == "FULLY_CONNECTED"
    ]
    return f"{types.count(schema.TensorType.INT16)} of {len(types)}"
