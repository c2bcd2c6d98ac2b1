"""Latency at 128 tokens, 1 thread, dynamic int8: our export against transformers' TF class through tf.lite.

Both sides are classifiers of the same shapes with random weights, quantized by the same converter with the same
options. The two files of a network alternate in one run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import EncoderConfig, TaskConfig
from pocketbert.presets import preset
from pocketbert_bench import baseline_calls, host, machine, results
from pocketbert_bench.configurations import Call, Configuration
from pocketbert_bench.host import Schedule

LENGTH = 128
RECIPE = "dynamic_wi8"
TASK = TaskConfig(kind="classification", name="random", labels=("negative", "positive"))
# Preset → target of our latency ÷ the baseline's.
TARGETS = {"mobilebert": 0.90, "tinybert_4l_312d": 0.72, "minilmv2_6l_384d": 0.82}
# Many short turns: each pair is measured within a few tens of milliseconds.
FULL = Schedule(rounds=60, runs=300, seconds=0.0, longest_seconds=30.0)
QUICK = Schedule(rounds=12, runs=48, seconds=0.0, longest_seconds=5.0, warm_up_seconds=0.3)
_PEER_INPUTS = {
    "input_word_ids": "input_ids",
    "input_mask": "attention_mask",
    "input_type_ids": "token_type_ids",
}


def run(quick: bool) -> dict[str, Any]:
    """Measures every network of `TARGETS`; returns the content of a result file."""
    created, before = results.now(), machine.machine()
    measurements, ratios = [], []
    for name, target in TARGETS.items():
        with tempfile.TemporaryDirectory() as folder:
            pair = [our_export(name, Path(folder)), transformers_export(name, Path(folder))]
            ours, peer = host.measure(pair, QUICK if quick else FULL)
        measurements += [ours, peer]
        description = f"{name}, {LENGTH} tokens, 1 thread, {RECIPE}"
        ratios.append(results.latency_ratio(f"latency {name}", ours, peer, description, target))
    return results.to_json(
        results.result_file(
            "latency against transformers' TF classes",
            quick=quick,
            measurements=measurements,
            ratios=ratios,
            notes=[results.RANDOM_WEIGHTS_NOTE],
            on=before,
            created=created,
        )
    )


def our_export(
    name: str,
    folder: Path,
    label: str = "PocketBERT",
    *,
    config: EncoderConfig | None = None,
    length: int = LENGTH,
) -> Configuration:
    """Exports a classifier with the preset of this name, or another architecture."""
    import pocketbert as pb
    from pocketbert_export.conversion.convert import to_tflite
    from pocketbert_export.conversion.graph_optimization import optimize_graph
    from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
    from pocketbert_export.recipes import get_recipe
    from pocketbert_runtime.bundles.description import signature_name

    recipe = get_recipe(RECIPE)
    model = pb.from_preset(config or name, [TASK], seed=0)
    move_norms({path: weight for path, weight in model.weights_by_path().items() if path.endswith((".gamma", ".beta"))})
    path = folder / f"{label}.tflite"
    path.write_bytes(to_tflite(optimize_graph(model, GraphOptimizations().for_recipe(recipe)), [length], recipe))
    calls = baseline_calls.calls_with_answers(model, length, signature_name(length))
    return replace(_configuration(label, name, path, calls), length=length)


def move_norms(weights: Mapping[str, Any]) -> None:
    """Sets the norms' weights to values as after training; the converter would drop a product with 1 and a sum with 0.

    Args:
      weights: name → variable, of norms only.
    """
    generator = np.random.default_rng(0)
    for variable in weights.values():
        variable.assign(variable + generator.normal(0.0, 0.05, variable.shape).astype(np.float32))


def transformers_export(name: str, folder: Path) -> Configuration:
    """Exports the same architecture as transformers' TF class through tf.lite."""
    import tensorflow as tf

    model = transformers_classifier(preset(name).config, len(TASK.labels))
    move_norms({weight.name: weight for weight in model.trainable_weights if "LayerNorm" in weight.name})

    def answer(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": model(inputs, training=False).logits}

    specs = {peer: tf.TensorSpec([1, LENGTH], tf.int32, name=peer) for peer in _PEER_INPUTS.values()}
    function = tf.function(answer).get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    path = folder / "transformers.tflite"
    path.write_bytes(converter.convert())
    calls = tuple(
        Call(
            signature="serving_default",
            inputs=(renamed := {_PEER_INPUTS[key]: ids for key, ids in row.items()}),
            expected=_answers(answer, renamed),
        )
        for row in baseline_calls.legal_inputs(preset(name).config, LENGTH)
    )
    return replace(_configuration("transformers TF", name, path, calls), is_baseline=True)


def transformers_classifier(config: EncoderConfig, labels: int) -> Any:
    """Builds a TF classifier of transformers of the same architecture, with random weights."""
    import tensorflow as tf
    from transformers import (
        BertConfig,
        MobileBertConfig,
        TFBertForSequenceClassification,
        TFMobileBertForSequenceClassification,
    )

    sizes = transformers_config(config)
    if config.bottleneck:
        model = TFMobileBertForSequenceClassification(MobileBertConfig(**sizes, num_labels=labels))
    else:
        model = TFBertForSequenceClassification(BertConfig(**sizes, num_labels=labels))
    model({name: tf.ones([1, 5], tf.int32) for name in _PEER_INPUTS.values()})
    return model


def transformers_config(config: EncoderConfig) -> dict[str, Any]:
    """Arguments of transformers' `BertConfig` or `MobileBertConfig` for the same architecture."""
    sizes: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
    }
    if config.bottleneck:
        sizes |= {
            "embedding_size": config.embedding_size,
            "intra_bottleneck_size": config.bottleneck.size,
            "num_feedforward_networks": config.num_feedforward_networks,
            "key_query_shared_bottleneck": config.bottleneck.query_key == "shared",
            # transformers' MobileBERT classifier uses the raw first token as pooled output.
            "classifier_activation": False,
        }
    return sizes


def _answers(answer: Callable[..., Mapping[str, Any]], inputs: Mapping[str, list[int]]) -> dict[str, Any]:
    import tensorflow as tf

    tensors = {name: tf.constant([ids], tf.int32) for name, ids in inputs.items()}
    return {name: value.numpy().tolist() for name, value in answer(**tensors).items()}


def _configuration(label: str, name: str, path: Path, calls: tuple[Call, ...]) -> Configuration:
    return Configuration(
        label=label,
        model=name,
        recipe=RECIPE,
        model_path=path,
        length=LENGTH,
        threads=1,
        calls=calls,
        weights="random",
        relative_tolerance=baseline_calls.TOLERANCE[RECIPE],
    )
