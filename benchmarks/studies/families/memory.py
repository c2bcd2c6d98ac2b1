"""Memory of ModernBERT's local attention on a long text, and of an ALBERT file with three lengths.

Attention of one layer, 12 heads of 64, on 8,192 tokens: each form runs in a process of its own, first on a short text
and then on the long one; the difference of both peaks counts. The ALBERT is a base network with 21,128 tokens, random
weights, `dynamic_wi8` and signatures for 32, 64 and 128 tokens. Its memory is that of a process after calls at all
lengths, without that of the process before it opens the file: with the interpreter, and as a compiled model with
XNNPACK's weight cache.

    python -m studies families/memory
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pocketbert_bench import baseline_calls, host, results
from pocketbert_bench.configurations import Call, Configuration

TOKENS, WINDOW, LENGTHS = 8192, 128, (32, 64, 128)
MOST_GB, MOST_MIB = 0.5, 40.0
RECIPE = "dynamic_wi8"
_QUICK_TOKENS, _QUICK_LAYERS = 1024, 2
_LOCAL, _WHOLE = "local, in blocks", "local, with a whole mask"


def run(quick: bool) -> dict[str, Any]:
    """Measures both memories."""
    tokens = _QUICK_TOKENS if quick else TOKENS
    memory = {name: _peak(tokens, name) for name in (_LOCAL, _WHOLE)}
    ratio = results.ratio(
        name="local attention",
        description=f"peak memory of local attention in blocks, {tokens:,} tokens, above that on a short text",
        ours=_LOCAL,
        peer=_WHOLE,
        unit="bytes",
        ours_samples=[memory[_LOCAL]],
        peer_samples=[memory[_WHOLE]],
        better="lower",
    )
    with tempfile.TemporaryDirectory() as name:
        plain = _albert(Path(name), _QUICK_LAYERS if quick else None)
        compiled = dataclasses.replace(plain, label="compiled, with a weight cache", runtime="litert-compiled")
        cached = host.with_weight_cache(compiled, Path(name) / "caches")
        measurements = host.measure([plain, cached], host.QUICK if quick else host.FULL)
    albert = {measurement.label: _resident(measurement) / 2**20 for measurement in measurements}
    notes = [
        _note("Local attention", memory[_LOCAL] / 1e9, "GB", MOST_GB),
        _note("ALBERT as a compiled model with a weight cache", albert[cached.label], "MiB", MOST_MIB),
        f"ALBERT with the interpreter: {albert[plain.label]:.0f} MiB",
        results.RANDOM_WEIGHTS_NOTE,
    ]
    return results.to_json(
        results.result_file("memory of families", quick=quick, measurements=measurements, ratios=[ratio], notes=notes)
    )


def _note(what: str, value: float, unit: str, most: float) -> str:
    return f"{what}: {value:.3g} {unit} (at most {most:g}: {'met' if value <= most else 'MISSED'})"


def _resident(measurement: results.Measurement) -> int:
    assert measurement.resident_memory_bytes is not None and measurement.base_memory_bytes is not None
    return measurement.resident_memory_bytes - measurement.base_memory_bytes


def _peak(tokens: int, name: str) -> float:
    """Bytes of attention on a long text, from a process of its own."""
    program = f"from studies.families import memory as study; study.print_peaks({tokens}, {name!r})"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    before, after = json.loads(output.splitlines()[-1])
    return float(after - before)


def print_peaks(tokens: int, name: str) -> None:
    """Prints the peak memory of this process after attention on a short text, and on a long one."""
    import resource

    import numpy as np
    import tensorflow as tf

    from pocketbert.layers.rotary_attention import RotaryAttention
    from pocketbert.presets import preset

    layer = RotaryAttention(preset("modernbert_base").config, index=1, padding_bias=-1e9, local_blocks=name == _LOCAL)
    attend = tf.function(lambda x, mask: layer.attend(x, x, x, mask)[0], autograph=False)
    peaks = []
    for count in (8, tokens):
        states = np.random.default_rng(0).standard_normal([1, count, 768], np.float32)
        attend(tf.constant(states), tf.zeros([1, 1, 1, count])).numpy()
        peaks.append(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print(json.dumps(peaks))


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
