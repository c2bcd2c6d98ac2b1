"""The process that measures a configuration; `host.py` starts one for each and tells it when to run.

It imports the runtime and numpy only, so memory and start-up time are the model's. Messages are one JSON value per
line. It reads the job from stdin and replies with the result of starting. Then it reads lists of call numbers and
replies with their latencies, until stdin ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import IO, Any

import numpy as np

Call = Callable[[], dict[str, np.ndarray]]
MakeCall = Callable[[str, dict[str, np.ndarray]], Call]
Describe = Callable[[], dict[str, Any]]
OpenModel = Callable[[dict[str, Any]], tuple[MakeCall, Describe]]


def main() -> None:
    """Serves one job."""
    # Native libraries may print to stdout: replies use a copy of it, and everything else goes to stderr.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    module, open_model = RUNTIMES[job["runtime"]]
    try:
        importlib.import_module(module)
        base_memory = _memory("VmRSS")
        make_call, describe = open_model(job)
        calls = []
        for entry in job["calls"]:
            arrays = {name: np.array(ids, dtype=np.int32).reshape(1, -1) for name, ids in entry["inputs"].items()}
            calls.append(make_call(entry["signature"], arrays))
        head_init_us = 0.0
        if job.get("head_path"):
            calls, head_init_us = _on_pairs(calls, open_model, job)
        began = time.perf_counter_ns()
        calls[0]()
        first_us = (time.perf_counter_ns() - began) / 1e3
        answer = {
            "first_inference_us": first_us,
            "base_memory_bytes": base_memory,
            "golden_differences": [
                _difference(call(), entry["expected"])
                for call, entry in zip(calls, job["calls"], strict=True)
                if entry["expected"] is not None
            ],
            "resident_memory_bytes": _memory("VmRSS"),
            **describe(),
        }
        answer["init_us"] += head_init_us
    except Exception as error:
        # Any error of the runtime is this configuration's result; the host reports it in a sentence.
        _reply(replies, {"error": f"{type(error).__name__}: {error}"})
        return
    _reply(replies, answer)
    for line in sys.stdin:
        numbers, latency_us = json.loads(line), []
        waited, used = _waiting_seconds(), time.process_time()
        for number in numbers:
            call = calls[number]
            began = time.perf_counter_ns()
            call()
            latency_us.append((time.perf_counter_ns() - began) / 1e3)
        used, waited_after = time.process_time() - used, _waiting_seconds()
        _reply(
            replies,
            {
                "latency_us": latency_us,
                "peak_memory_bytes": _memory("VmHWM"),
                "process_seconds": used,
                "waiting_seconds": None if waited is None or waited_after is None else waited_after - waited,
            },
        )


def _on_pairs(texts: list[Call], open_model: OpenModel, job: dict[str, Any]) -> tuple[list[Call], float]:
    """Calls on pairs, a text and the next one: both through the encoder, and their vectors through the head.

    The calls return the encoder's outputs for the first text, because their expected values are known. Returns the
    head's opening time, too, in microseconds.
    """
    # These names are from pair_head, which imports TensorFlow.
    head_job = {**job, "model_path": job["head_path"], "weight_cache": None, "calls": [{"signature": "head"}]}
    began = time.perf_counter_ns()
    make_call, _ = open_model(head_job)
    init_us = (time.perf_counter_ns() - began) / 1e3
    vectors: dict[str, np.ndarray] = {}
    answer = make_call("head", vectors)

    def on_pair(first: Call, second: Call) -> Call:
        def call() -> dict[str, np.ndarray]:
            outputs = first()
            vectors["first"], vectors["second"] = outputs["embedding"], second()["embedding"]
            answer()
            return outputs

        return call

    return [on_pair(*pair) for pair in zip(texts, [*texts[1:], texts[0]], strict=True)], init_us


def _open_litert(job: dict[str, Any]) -> tuple[MakeCall, Describe]:
    import ai_edge_litert
    from ai_edge_litert.interpreter import Interpreter

    from pocketbert_export.tflite.interpreter_process import delegate, real_outputs

    began = time.perf_counter_ns()
    interpreter = Interpreter(model_path=job["model_path"], num_threads=job["threads"])
    signatures = sorted({entry["signature"] for entry in job["calls"]})
    runners = {signature: interpreter.get_signature_runner(signature) for signature in signatures}
    init_us = (time.perf_counter_ns() - began) / 1e3

    def make_call(signature: str, inputs: dict[str, np.ndarray]) -> Call:
        runner = runners[signature]
        return lambda: real_outputs(runner, runner(**inputs))

    def describe() -> dict[str, Any]:
        return {"version": ai_edge_litert.__version__, "delegate": delegate(interpreter), "init_us": init_us}

    return make_call, describe


def _open_compiled_model(job: dict[str, Any]) -> tuple[MakeCall, Describe]:
    import ai_edge_litert
    from ai_edge_litert.compiled_model import CompiledModel, CpuOptions, HardwareAccelerator, Options

    began = time.perf_counter_ns()
    cpu = CpuOptions(num_threads=job["threads"], xnnpack_weight_cache_path=job.get("weight_cache") or "")
    model = CompiledModel.from_file(
        job["model_path"], options=Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=cpu)
    )
    names = model.get_signature_list()
    buffers = {
        signature: (
            {name: model.create_input_buffer_by_name(signature, name) for name in names[signature]["inputs"]},
            {name: model.create_output_buffer_by_name(signature, name) for name in names[signature]["outputs"]},
        )
        for signature in sorted({entry["signature"] for entry in job["calls"]})
    }
    init_us = (time.perf_counter_ns() - began) / 1e3

    def make_call(signature: str, inputs: dict[str, np.ndarray]) -> Call:
        sources, targets = buffers[signature]
        details = model.get_output_tensor_details(signature)
        for name, detail in details.items():
            if detail["dtype"] != "float32":
                raise ValueError(
                    f"CompiledModel does not report the scale of {detail['dtype']} outputs ({name}); use "
                    f"{job['other_runtime']}"
                )
        shapes = {name: detail["shape"] for name, detail in details.items()}

        def call() -> dict[str, np.ndarray]:
            for name, array in inputs.items():
                sources[name].write(array)
            model.run_by_name(signature, sources, targets)
            return {
                name: target.read(int(np.prod(shapes[name])), np.float32).reshape(shapes[name])
                for name, target in targets.items()
            }

        return call

    # CompiledModel does not count the operators in XNNPACK.
    return make_call, lambda: {"version": ai_edge_litert.__version__, "delegate": None, "init_us": init_us}


def _open_onnx_runtime(job: dict[str, Any]) -> tuple[MakeCall, Describe]:
    import onnxruntime

    began = time.perf_counter_ns()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job["threads"]
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(job["model_path"], options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    init_us = (time.perf_counter_ns() - began) / 1e3

    def make_call(_: str, inputs: dict[str, np.ndarray]) -> Call:
        return lambda: dict(zip(names, session.run(names, inputs), strict=True))

    return make_call, lambda: {"version": onnxruntime.__version__, "delegate": None, "init_us": init_us}


def _difference(outputs: dict[str, np.ndarray], expected: dict[str, Any]) -> float:
    if sorted(outputs) != sorted(expected):
        raise ValueError(f"outputs are named {sorted(outputs)}; expected {sorted(expected)}")
    differences = []
    for name, values in expected.items():
        answer = np.asarray(outputs[name], dtype=np.float64).ravel()
        numbers = np.asarray(values, dtype=np.float64).ravel()
        if answer.shape != numbers.shape:
            raise ValueError(f"{name} has {answer.size} values; expected {numbers.size}")
        differences.append(np.abs(answer - numbers).max())
    # JSON has no NaN; treat it as an infinite error.
    return float(np.nan_to_num(np.max(differences), nan=1e30, posinf=1e30))


def _memory(entry: str) -> int | None:
    # getrusage's peak survives exec, so it would be the parent process's.
    try:
        with open("/proc/self/status", encoding="ascii") as stream:
            for line in stream:
                if line.startswith(entry + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return None
    return None


def _waiting_seconds() -> float | None:
    """Seconds that this process's threads waited for a processor; None if Linux does not count them."""
    nanoseconds = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as stream:
                nanoseconds += int(stream.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return nanoseconds / 1e9


def _reply(stream: IO[str], value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


RUNTIMES: dict[str, tuple[str, OpenModel]] = {
    "litert": ("ai_edge_litert.interpreter", _open_litert),
    "litert-compiled": ("ai_edge_litert.compiled_model", _open_compiled_model),
    "onnxruntime": ("onnxruntime", _open_onnx_runtime),
}


if __name__ == "__main__":
    main()
