"""Times of small TFLite files with one or a few operators, alternating in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

Format = Literal["float32", "dynamic_wi8", "int8"]

ROUNDS, CALLS = 40, 25
# Standard deviation of the inputs.
SCALE = 2.0


def convert(function: Callable[..., tf.Tensor], shapes: Sequence[Sequence[int]], form: Format) -> bytes:
    """Converts a function of float32 arrays.

    Args:
      function: the operation.
      shapes: shape of each input.
      form: `float32`; `dynamic_wi8` for int8 weights; or `int8` for inputs, outputs and weights.

    Returns:
      Content of a TFLite file.
    """
    import tensorflow as tf

    signature = [tf.TensorSpec(shape, tf.float32, name=f"x{number}") for number, shape in enumerate(shapes)]
    concrete = tf.function(lambda *arrays: function(*arrays), input_signature=signature).get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    if form != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if form == "int8":
        random = np.random.default_rng(2)
        rows = [[random.normal(0, SCALE, shape).astype(np.float32) for shape in shapes] for _ in range(4)]
        converter.representative_dataset = lambda: iter(rows)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def seconds_of(files: Mapping[str, bytes], rounds: int, random: np.random.Generator) -> dict[str, list[float]]:
    """Times each file with one thread of LiteRT, and XNNPACK.

    A round calls each file `CALLS` times, in shuffled order, and keeps the shortest call: other programs only add time.

    Args:
      files: name → TFLite file.
      rounds: number of rounds.
      random: draws inputs and orders.

    Returns:
      Name → seconds of each round.
    """
    calls = {name: _with_inputs(content, random).invoke for name, content in files.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name in random.permutation(list(calls)):
            seconds[name].append(min(_timed(calls[name]) for _ in range(CALLS)))
    return seconds


def inputs_and_output(content: bytes, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
    """Runs a file on normal random numbers; returns what it received and answered, as float64."""
    interpreter = _with_inputs(content, random)
    interpreter.invoke()
    received = [_real_values(interpreter, each) for each in interpreter.get_input_details()]
    return received, _real_values(interpreter, interpreter.get_output_details()[0])


def _with_inputs(content: bytes, random: np.random.Generator) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        values = random.normal(0, SCALE, each["shape"])
        if each["dtype"] == np.int8:
            scale, zero = each["quantization"]
            values = np.clip(np.round(values / scale) + zero, -128, 127)
        interpreter.set_tensor(each["index"], values.astype(each["dtype"]))
    return interpreter


def _real_values(interpreter: Any, details: Mapping[str, Any]) -> np.ndarray:
    values = interpreter.get_tensor(details["index"])
    if values.dtype != np.int8:
        return values.astype(np.float64)
    scale, zero = details["quantization"]
    return scale * (values.astype(np.float64) - zero)


def _timed(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
