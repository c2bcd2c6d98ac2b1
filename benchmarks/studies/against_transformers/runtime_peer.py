"""Another tool's int8 export of a BERT classifier, converted and timed in an environment of its own.

PocketBERT's environments have none of these tools. `studies.against_transformers.runtimes` runs this file with the
Python of each tool's environment, so it imports nothing of PocketBERT. Stdin and stdout are JSON lines: first a job,
then numbers of calls. Each answer is a line, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

Call = Callable[[dict[str, np.ndarray]], np.ndarray]
Open = Callable[[Path], Call]
_NAMES = ("input_ids", "attention_mask", "token_type_ids")
# Random texts for static ranges; latency does not depend on the values.
_CALIBRATION_TEXTS = 32


class Classifier(torch.nn.Module):
    """The network with named inputs of shape [1, length], int64, and logits [1, 2] as its only output."""

    def __init__(self, job: dict[str, Any]) -> None:
        from transformers import (
            BertConfig,
            BertForSequenceClassification,
            MobileBertConfig,
            MobileBertForSequenceClassification,
        )

        super().__init__()
        torch.manual_seed(0)
        config = {**job["config"], "num_labels": 2, "attn_implementation": job["attention"]}
        if job["mobile"]:
            self.network: Any = MobileBertForSequenceClassification(MobileBertConfig(**config))
        else:
            self.network = BertForSequenceClassification(BertConfig(**config))
        # Values as after training: a converter drops a product with 1 and a sum with 0.
        with torch.no_grad():
            for name, weight in self.network.named_parameters():
                if "LayerNorm" in name:
                    weight += 0.05 * torch.randn_like(weight)
        self.eval()

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        """Computes logits."""
        return self.network(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, return_dict=True
        ).logits


def _litert_torch(model: Classifier, sample: tuple[Any, ...], path: Path) -> Open:
    import litert_torch
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    float_file = path.with_suffix(".float")
    litert_torch.convert(model, sample).export(str(float_file))
    tool = quantizer.Quantizer(str(float_file))
    tool.load_quantization_recipe(recipe.dynamic_wi8_afp32())
    tool.quantize().export_model(str(path), overwrite=True)

    def start(path: Path) -> Call:
        runner = Interpreter(model_path=str(path), num_threads=1).get_signature_runner()
        names = sorted(runner.get_input_details())

        def call(row: dict[str, np.ndarray]) -> np.ndarray:
            ids = [values.astype(np.int32) for values in row.values()]
            return next(iter(runner(**dict(zip(names, ids, strict=True))).values()))

        return call

    return start


def _openvino(model: Classifier, sample: tuple[Any, ...], path: Path, *, static: bool) -> Open:
    import nncf
    import openvino

    converted = openvino.convert_model(model, example_input=sample, input=[list(each.shape) for each in sample])
    if static:
        generator = np.random.default_rng(1)
        rows = []
        for _ in range(_CALIBRATION_TEXTS):
            ids = generator.integers(0, model.network.config.vocab_size, sample[0].shape)
            rows.append((ids, np.ones_like(ids), np.zeros_like(ids)))
        converted = nncf.quantize(converted, nncf.Dataset(rows), model_type=nncf.ModelType.TRANSFORMER)
    else:
        converted = nncf.compress_weights(converted)
    openvino.save_model(converted, path)

    def start(path: Path) -> Call:
        options = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        compiled = openvino.Core().compile_model(path, "CPU", options)
        request = compiled.create_infer_request()
        return lambda row: next(iter(request.infer(list(row.values())).values()))

    return start


def _onnx_runtime(model: Classifier, sample: tuple[Any, ...], path: Path, *, optimized: bool) -> Open:
    import onnxruntime
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    float_file = path.with_suffix(".float.onnx")
    torch.onnx.export(model, sample, float_file, input_names=list(_NAMES), opset_version=17, dynamo=False)
    if optimized:
        from onnxruntime.transformers import optimizer

        config = model.network.config
        fused = optimizer.optimize_model(
            str(float_file), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
        )
        fused.save_model_to_file(str(float_file))
    # Shape inference does not know the types behind fused operators.
    types = {"DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(float_file, path, weight_type=QuantType.QInt8, per_channel=True, extra_options=types)

    def start(path: Path) -> Call:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return lambda row: session.run(None, row)[0]

    return start


def _executorch(model: Classifier, sample: tuple[Any, ...], path: Path) -> Open:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    tool = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True))
    prepared = prepare_pt2e(torch.export.export(model, sample, strict=True).module(), tool)
    prepared(*sample)
    exported = torch.export.export(convert_pt2e(prepared), sample, strict=True)
    program = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    path.write_bytes(program.buffer)

    def start(path: Path) -> Call:
        method = Runtime.get().load_program(path).load_method("forward")
        return lambda row: method.execute([torch.from_numpy(ids) for ids in row.values()])[0].numpy()

    return start


_PEERS: dict[str, tuple[Callable[[Classifier, tuple[Any, ...], Path], Open], str, tuple[str, ...]]] = {
    "litert-torch": (_litert_torch, ".tflite", ("litert-torch", "ai-edge-quantizer", "ai-edge-litert")),
    "openvino, static int8": (
        lambda model, sample, path: _openvino(model, sample, path, static=True),
        ".xml",
        ("openvino", "nncf"),
    ),
    "openvino, int8 weights": (
        lambda model, sample, path: _openvino(model, sample, path, static=False),
        ".xml",
        ("openvino", "nncf"),
    ),
    "onnxruntime": (
        lambda model, sample, path: _onnx_runtime(model, sample, path, optimized=False),
        ".onnx",
        ("onnxruntime",),
    ),
    "onnxruntime, optimized": (
        lambda model, sample, path: _onnx_runtime(model, sample, path, optimized=True),
        ".onnx",
        ("onnxruntime",),
    ),
    "executorch": (_executorch, ".pte", ("executorch", "torchao")),
}


def main() -> None:
    """Converts the job's network, then answers each line with that many latencies in microseconds."""
    # One core for every thread pool, whatever its option is called.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    torch.set_num_threads(1)
    job = json.loads(sys.stdin.readline())
    convert, suffix, packages = _PEERS[job["peer"]]
    rows = [{name: np.array([row[name]], np.int64) for name in _NAMES} for row in job["inputs"]]
    sample = tuple(torch.from_numpy(ids) for ids in rows[0].values())
    path = Path(job["folder"]) / f"model{suffix}"
    # The tools print to stdout.
    with contextlib.redirect_stdout(sys.stderr):
        model = Classifier(job)
        start = convert(model, sample, path)
        with torch.no_grad():
            expected = [model(*map(torch.from_numpy, row.values())).numpy() for row in rows]
        began = time.perf_counter_ns()
        call = start(path)
        call(rows[0])
        first_call = (time.perf_counter_ns() - began) / 1e3
        answers = [call(row) for row in rows]
    difference = max(np.abs(answer - right).max() for answer, right in zip(answers, expected, strict=True))
    weights_file = path.with_suffix(".bin")
    _answer(
        {
            "size_bytes": path.stat().st_size + (weights_file.stat().st_size if weights_file.exists() else 0),
            "first_call_us": first_call,
            "difference": float(difference / np.abs(expected).max()),
            "versions": {name: version(name) for name in packages},
        }
    )
    for line in sys.stdin:
        latency_us = []
        for number in range(int(line)):
            row = rows[number % len(rows)]
            began = time.perf_counter_ns()
            call(row)
            latency_us.append((time.perf_counter_ns() - began) / 1e3)
        _answer(latency_us)


def _answer(content: Any) -> None:
    print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main()
