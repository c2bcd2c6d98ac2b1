"""Run a `.tflite` file's signatures on arrays from a file; `runtimes.py` starts this script in its own process.

It runs in environments without PocketBERT, so it does not import it; `pocketbert_runtime.bundles.bundle` has a
`real_outputs` of its own.

Usage: interpreter_process.py litert|tensorflow MODEL INPUTS.npz OUTPUTS.npz THREADS
The keys of both archives are `SIGNATURE/NAME`; the first axis of every array counts the calls. The outputs also hold
`version`, and `delegate`, the operators in XNNPACK as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import numpy as np


def main(package: str, model: str, inputs_path: str, outputs_path: str, threads: str) -> None:
    """Calls each signature once per row of its inputs and stacks the outputs."""
    version, interpreter_class = _interpreter(package)
    batches: dict[str, dict[str, np.ndarray]] = {}
    with np.load(inputs_path) as archive:
        for key in archive.files:
            signature, name = key.split("/", 1)
            batches.setdefault(signature, {})[name] = archive[key]
    interpreter = interpreter_class(model_path=model, num_threads=int(threads))
    outputs: dict[str, np.ndarray] = {"version": np.array(version)}
    for signature, batch in batches.items():
        runner = interpreter.get_signature_runner(signature)
        rows = len(next(iter(batch.values())))
        answers = [
            real_outputs(runner, runner(**{name: array[row : row + 1] for name, array in batch.items()}))
            for row in range(rows)
        ]
        for name in answers[0]:
            outputs[f"{signature}/{name}"] = np.concatenate([answer[name] for answer in answers])
    outputs["delegate"] = np.array(json.dumps(delegate(interpreter)))
    np.savez(outputs_path, **outputs)  # type: ignore[arg-type]


def real_outputs(runner: Any, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a signature's outputs in float32: int8 outputs stand for (value - zero point) * scale."""
    if all(values.dtype == np.float32 for values in outputs.values()):
        return outputs
    details = runner.get_output_details()
    real = {}
    for name, values in outputs.items():
        scale, zero_point = details[name]["quantization"]
        real[name] = np.float32(scale) * (values.astype(np.float32) - np.float32(zero_point))
    return real


def delegate(interpreter: Any) -> dict[str, Any] | None:
    """Counts the first subgraph's operators on a delegate, and those left, by name.

    The runtime keeps the replaced operators in its list and appends one entry per delegated part, with the part's
    inputs and outputs only. A walk back from the outputs to the inputs finds the operators in between.
    """
    entries = interpreter._get_ops_details()
    parts = [entry for entry in entries if entry["op_name"] == "DELEGATE"]
    operators = [entry for entry in entries if entry["op_name"] != "DELEGATE"]
    if not parts:
        return None
    maker = {int(tensor): index for index, entry in enumerate(operators) for tensor in entry["outputs"]}
    taken: set[int] = set()
    for part in parts:
        edges = {int(tensor) for tensor in part["inputs"]}
        pending = [int(tensor) for tensor in part["outputs"]]
        while pending:
            tensor = pending.pop()
            index = maker.get(tensor)
            if index is None or tensor in edges or index in taken:
                continue
            taken.add(index)
            pending += [int(input_index) for input_index in operators[index]["inputs"]]
    left = Counter(entry["op_name"] for index, entry in enumerate(operators) if index not in taken)
    return {
        "name": "XNNPACK",
        "delegated_ops": len(taken),
        "total_ops": len(operators),
        "left": dict(sorted(left.items())),
    }


def _interpreter(package: str) -> tuple[str, Any]:
    if package == "litert":
        import ai_edge_litert
        from ai_edge_litert.interpreter import Interpreter

        return ai_edge_litert.__version__, Interpreter
    import tensorflow

    return tensorflow.__version__, tensorflow.lite.Interpreter


if __name__ == "__main__":
    main(*sys.argv[1:])
