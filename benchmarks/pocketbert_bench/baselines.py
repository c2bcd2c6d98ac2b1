"""Baselines: other exports of the same weights, timed in the same rounds as ours."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from pocketbert import files, progress
from pocketbert.processes import stderr_on_failure
from pocketbert_bench.baseline_calls import TOLERANCE, calls_with_answers, configurations_of
from pocketbert_bench.configurations import Configuration

TFLITE_CONVERTER = "TFLite converter"


def all_exports(
    model_directory: Path, output: Path, *, model: str | None, length: int, threads: Sequence[int]
) -> list[Configuration]:
    """Exports with all installed baselines."""
    import importlib.util

    name = model or model_directory.resolve().name
    exports = plain_export(model_directory, output, model=name, length=length, threads=threads)
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        from pocketbert_bench import onnx_baseline

        exports += onnx_baseline.onnx_exports(model_directory, output, model=name, length=length, threads=threads)
    else:
        progress.log_info("ONNX Runtime is left out: onnx and onnxruntime are not installed (extra `peers`)")
    return exports


def plain_export(
    model_directory: Path, output: Path, *, model: str, length: int = 128, threads: Sequence[int] = (1,)
) -> list[Configuration]:
    """Exports the plain network with TensorFlow's converter at one length: the result without PocketBERT's export.

    There are two files, `float32` and `dynamic_wi8`, which is the converter's `Optimize.DEFAULT`. They have no graph
    optimization and one input shape.

    Args:
      model_directory: the weights.
      output: folder for the files; existing files are replaced.
      model: the network's name in tables.
      length: sequence length in tokens.
      threads: numbers of threads.
    """
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert_export.conversion.convert import write_saved_model

    network = pb.from_pretrained(model_directory)
    calls = calls_with_answers(network, length, "serving_default")
    paths = {}
    with tempfile.TemporaryDirectory() as folder:
        saved_model = str(Path(folder, "saved_model"))
        write_saved_model(network, saved_model, [length])
        for recipe in TOLERANCE:
            converter = tf.lite.TFLiteConverter.from_saved_model(saved_model)
            if recipe == "dynamic_wi8":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            with stderr_on_failure():
                content = converter.convert()
            paths[recipe] = output / f"plain_{recipe}_{length}.tflite"
            files.write_bytes(paths[recipe], content)
    return configurations_of(TFLITE_CONVERTER, paths, threads, model=model, length=length, calls=calls)
