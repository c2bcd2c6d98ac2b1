"""Other people's ways to export the same weights, to time beside ours."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pocketbert import files, progress
from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.processes import stderr_on_failure
from pocketbert_bench.configurations import Call, Configuration

# Baselines are held against the float model, whose answers int8 only comes near: four times the 15 % that
# pocketbert_export.checks derives for our own.
TOLERANCE = {"float32": 1e-3, "dynamic_wi8": 0.6}
_EXAMPLES = 3


def all_exports(
    model_directory: Path, output: Path, *, model: str | None, length: int, threads: Sequence[int]
) -> list[Configuration]:
    """Every baseline that is installed.

    Args:
      model_directory: the weights.
      output: folder for the files.
      model: the network's name in tables; the folder's name if None.
      length: tokens.
      threads: numbers of threads.
    """
    import importlib.util

    name = model or model_directory.resolve().name
    found = plain_export(model_directory, output, model=name, length=length, threads=threads)
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        from pocketbert_bench import onnx_peer

        found += onnx_peer.onnx_exports(model_directory, output, model=name, length=length, threads=threads)
    else:
        progress.log_info("ONNX Runtime is left out: onnx and onnxruntime are not installed (extra `peers`)")
    return found


def plain_export(
    model_directory: Path,
    output: Path,
    *,
    model: str,
    length: int = 128,
    recipes: Sequence[str] = ("float32", "dynamic_wi8"),
    threads: Sequence[int] = (1,),
) -> list[Configuration]:
    """The network as it is, through TensorFlow's converter at one length: what one gets without PocketBERT's export.

    No graph optimization, one input shape; `dynamic_wi8` is the converter's `Optimize.DEFAULT`.

    Args:
      model_directory: the weights.
      output: folder for the files; those that are there already are written anew.
      model: the network's name in tables.
      length: tokens.
      recipes: `float32`, `dynamic_wi8`.
      threads: numbers of threads.
    """
    import tensorflow as tf

    import pocketbert as pb
    from pocketbert_export.convert import write_saved_model

    for recipe in recipes:
        _check_recipe(recipe)
    network = pb.from_pretrained(model_directory)
    calls = calls_with_answers(network, length, "serving_default")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        saved_model = str(Path(folder, "saved_model"))
        write_saved_model(network, saved_model, [length])
        for recipe in recipes:
            path = output / f"plain_{recipe}_{length}.tflite"
            converter = tf.lite.TFLiteConverter.from_saved_model(saved_model)
            if recipe == "dynamic_wi8":
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
            with stderr_on_failure():
                content = converter.convert()
            files.write_bytes(path, content)
            found += [
                Configuration(
                    label=f"plain converter {recipe}",
                    model=model,
                    recipe=recipe,
                    model_path=path,
                    length=length,
                    threads=number,
                    calls=calls,
                    peer=True,
                    relative_tolerance=TOLERANCE[recipe],
                )
                for number in threads
            ]
    return found


def checked_calls(model_directory: Path, length: int, *, signature: str) -> tuple[Call, ...]:
    """Calls with the float model's answers, which a baseline has to come near before it is timed.

    Args:
      model_directory: the weights.
      length: tokens.
      signature: of the baseline's file; empty where the format has none.
    """
    import pocketbert as pb

    return calls_with_answers(pb.from_pretrained(model_directory), length, signature)


def calls_with_answers(network: Model, length: int, signature: str) -> tuple[Call, ...]:
    """Calls on random legal ids with what a float model answers to them.

    Args:
      network: the float model.
      length: tokens.
      signature: of the file that is to be called.
    """
    calls = []
    for inputs in legal_inputs(network.config, length):
        row = {name: np.array([ids], np.int32) for name, ids in inputs.items()}
        outputs = {name: np.asarray(value).tolist() for name, value in network(row, training=False).items()}
        calls.append(Call(signature=signature, inputs=inputs, expected=outputs))
    return tuple(calls)


def legal_inputs(config: EncoderConfig, length: int, seed: int = 0) -> list[dict[str, list[int]]]:
    """Random ids and segments under masks of different lengths, for calls whose meaning does not matter."""
    generator = np.random.default_rng(seed)
    rows = []
    for example in range(_EXAMPLES):
        tokens = length - example * length // (2 * _EXAMPLES)
        padding = [0] * (length - tokens)
        ids = generator.integers(0, config.vocab_size, tokens).tolist()
        segments = generator.integers(0, config.type_vocab_size, tokens).tolist()
        rows.append(
            {
                "input_word_ids": ids + [config.pad_token_id] * len(padding),
                "input_mask": [1] * tokens + padding,
                "input_type_ids": segments + padding,
            }
        )
    return rows


def _check_recipe(recipe: str) -> None:
    if recipe not in TOLERANCE:
        raise UserError(f"baselines are exported as {', '.join(TOLERANCE)}; received {recipe!r}")
