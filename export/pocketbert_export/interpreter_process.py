"""Run a `.tflite` file's signatures on arrays from a file; `runtimes.py` starts this script in its own process.

It runs in environments without PocketBERT, so it does not import it.

Usage: interpreter_process.py litert|tensorflow MODEL INPUTS.npz OUTPUTS.npz THREADS
The keys of both archives are `SIGNATURE/NAME`; the first axis of every array counts the calls.
"""

from __future__ import annotations

import sys
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
        answers = [runner(**{name: array[row : row + 1] for name, array in batch.items()}) for row in range(rows)]
        for name in answers[0]:
            outputs[f"{signature}/{name}"] = np.concatenate([answer[name] for answer in answers])
    np.savez(outputs_path, **outputs)  # type: ignore[arg-type]


def _interpreter(package: str) -> tuple[str, Any]:
    if package == "litert":
        import ai_edge_litert
        from ai_edge_litert.interpreter import Interpreter

        return ai_edge_litert.__version__, Interpreter
    import tensorflow

    return tensorflow.__version__, tensorflow.lite.Interpreter


if __name__ == "__main__":
    main(*sys.argv[1:])
