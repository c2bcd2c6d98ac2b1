"""Memory of ModernBERT's local attention on a long text, and of an ALBERT file with three lengths.

Attention of one layer, 12 heads of 64, on 8,192 tokens, is a float32 file: its memory is the peak of a process that
calls it, without that of the process before it opens the file. The ALBERT is a base network with 21,128 tokens, random
weights, `dynamic_wi8` and signatures for 32, 64 and 128 tokens. Its memory is that of a process after calls at all
lengths, again without that before: with the interpreter, and as a compiled model with XNNPACK's weight cache.

    python -m studies families/memory
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from pocketbert_bench import baseline_calls, host, results
from pocketbert_bench.configurations import Call, Configuration

TOKENS, WINDOW, LENGTHS = 8192, 128, (32, 64, 128)
MOST_GB, MOST_MIB = 0.5, 40.0
RECIPE = "dynamic_wi8"
_QUICK_TOKENS, _QUICK_LAYERS = 1024, 2
_FEW_CALLS = host.Schedule(rounds=2, runs=2, seconds=0.0, longest_seconds=1.0, warm_up_runs=1, warm_up_seconds=0.0)
_LOCAL, _WHOLE = "local, in blocks", "local, with a whole mask"


def run(quick: bool) -> dict[str, Any]:
    """Measures both memories."""
    tokens = _QUICK_TOKENS if quick else TOKENS
    with tempfile.TemporaryDirectory() as folder:
        plain = _albert(Path(folder), _QUICK_LAYERS if quick else None)
        compiled = dataclasses.replace(plain, label="compiled, with a weight cache", runtime="litert-compiled")
        cached = host.with_weight_cache(compiled, Path(folder) / "caches")
        measurements = host.measure([plain, cached], host.QUICK if quick else host.FULL)
        forms = [_attention(name, tokens, Path(folder)) for name in (_LOCAL, _WHOLE)]
        attention = host.measure(forms, _FEW_CALLS)
    albert = {
        measurement.label: _memory(measurement, measurement.resident_memory_bytes) / 2**20
        for measurement in measurements
    }
    peaks = [_memory(measurement, measurement.peak_memory_bytes) for measurement in attention]
    ratio = results.ratio(
        name="local attention",
        description=f"peak memory of local attention in blocks, {tokens:,} tokens, against a whole mask",
        ours=_LOCAL,
        peer=_WHOLE,
        unit="bytes",
        ours_samples=peaks[:1],
        peer_samples=peaks[1:],
        better="lower",
    )
    notes = [
        _note("Local attention in blocks", peaks[0] / 1e9, "GB", MOST_GB),
        _note("ALBERT as a compiled model with a weight cache", albert[cached.label], "MiB", MOST_MIB),
        f"ALBERT with the interpreter: {albert[plain.label]:.0f} MiB",
        results.RANDOM_WEIGHTS_NOTE,
    ]
    return results.to_json(
        results.result_file(
            "memory of families", quick=quick, measurements=[*measurements, *attention], ratios=[ratio], notes=notes
        )
    )


def _note(what: str, value: float, unit: str, most: float) -> str:
    return f"{what}: {value:.3g} {unit} (at most {most:g}: {'met' if value <= most else 'MISSED'})"


def _memory(measurement: results.Measurement, after: int | None) -> int:
    assert after is not None and measurement.base_memory_bytes is not None, measurement.error
    return after - measurement.base_memory_bytes


def _attention(name: str, tokens: int, folder: Path) -> Configuration:
    """A file with the attention of a local layer; its vectors are made from token ids."""
    import numpy as np
    import tensorflow as tf

    from pocketbert.layers.rotary_attention import RotaryAttention
    from pocketbert.presets import preset

    config = preset("modernbert_base").config
    layer = RotaryAttention(config, index=1, padding_bias=-1e9, in_blocks=name == _LOCAL)
    factors = np.random.default_rng(0).standard_normal([3, config.attention_size], np.float32)

    @tf.function(input_signature=[tf.TensorSpec([1, tokens], tf.int32, name="ids")], autograph=False)
    def attend(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        column = tf.cast(ids, tf.float32)[..., tf.newaxis]
        queries, keys, values = (column * row for row in factors)
        context, _ = layer.attend(queries, keys, values, tf.zeros([1, 1, 1, tokens]))
        return {"context": context}

    module = tf.Module()
    module.layer = layer
    converter = tf.lite.TFLiteConverter.from_concrete_functions([attend.get_concrete_function()], module)
    path = folder / f"{name}.tflite"
    path.write_bytes(converter.convert())
    ids = np.random.default_rng(1).integers(0, 5, tokens).tolist()
    return Configuration(
        label=name,
        model="attention",
        recipe="float32",
        model_path=path,
        length=tokens,
        threads=1,
        calls=(Call(signature="serving_default", inputs={"ids": ids}, expected=None),),
        weights="random",
    )


def _albert(folder: Path, layers: int | None) -> Configuration:
    """The exported network, with calls at each length; the interpreter runs it."""
    import pocketbert as pb
    from pocketbert.presets import preset
    from pocketbert_export.conversion.convert import to_tflite
    from pocketbert_export.conversion.graph_optimization import optimize_graph
    from pocketbert_export.conversion.graph_optimization_options import GraphOptimizations
    from pocketbert_export.recipes import get_recipe
    from pocketbert_runtime.bundles.description import signature_name

    config = preset("albert_base").config.replace(vocab_size=21128, pooler="none")
    task = pb.TaskConfig(kind="token_classification", labels=("O", "B-PER", "I-PER"))
    model = pb.from_preset(config.replace(num_layers=layers or config.num_layers), task, seed=0)
    recipe, path = get_recipe(RECIPE), folder / "albert.tflite"
    path.write_bytes(to_tflite(optimize_graph(model, GraphOptimizations().for_recipe(recipe)), LENGTHS, recipe))
    calls = [
        Call(signature=signature_name(length), inputs=inputs, expected=None)
        for length in LENGTHS
        for inputs in baseline_calls.legal_inputs(config, length)
    ]
    return Configuration(
        label="interpreter",
        model="ALBERT-base",
        recipe=RECIPE,
        model_path=path,
        length=max(LENGTHS),
        threads=1,
        calls=tuple(calls),
        weights="random",
    )
