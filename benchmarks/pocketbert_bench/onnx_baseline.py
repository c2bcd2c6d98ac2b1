"""Export the same weights to ONNX for ONNX Runtime, as float32 and dynamic int8: a baseline, not a product."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pocketbert as pb
from pocketbert import progress
from pocketbert.checkpoints.directory import read_directory
from pocketbert.configs import EncoderConfig
from pocketbert_bench import baseline_calls
from pocketbert_bench.configurations import Configuration

# From this opset on, Gelu is an operator, and ONNX Runtime runs it as one kernel.
_OPSET = 20
_MASKED = -1e4
_HEADS = ("classification", "regression")


def onnx_exports(
    model_directory: Path, output: Path, *, model: str, length: int, threads: Sequence[int] = (1,)
) -> list[Configuration]:
    """Writes both files at one length; skips networks other than plain BERTs with a message."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source = read_directory(model_directory)
    kind = source.tasks[0].kind if source.tasks else "none"
    if problem := _problem(source.config, kind):
        progress.log_info(f"ONNX Runtime is left out: {problem}")
        return []
    output.mkdir(parents=True, exist_ok=True)
    graph = build_graph(source.config, kind, source.tensors, length)
    paths = {recipe: output / f"onnx_{recipe}_{length}.onnx" for recipe in ("float32", "dynamic_wi8")}
    onnx.save(graph, str(paths["float32"]))
    with tempfile.TemporaryDirectory() as folder:
        # The quantizer writes shapes next to its input.
        onnx.save(graph, f"{folder}/model.onnx")
        quantize_dynamic(f"{folder}/model.onnx", str(paths["dynamic_wi8"]), weight_type=QuantType.QInt8)
    calls = baseline_calls.calls_with_answers(pb.from_pretrained(model_directory), length, "")
    return baseline_calls.configurations_of(
        "ONNX Runtime", paths, threads, model=model, length=length, calls=calls, runtime="onnxruntime"
    )


def build_graph(config: EncoderConfig, head: str, tensors: Mapping[str, np.ndarray], length: int) -> Any:
    """Builds an ONNX model with our input names and `logits`, batch 1.

    Args:
      config: a BERT without bottleneck and trigram, with LayerNorm and a pooler.
      head: `classification` or `regression`.
      tensors: canonical path → weights.
      length: sequence length in tokens.
    """
    graph = _Graph(tensors)
    x = _embed(graph, config, length)
    heads, width = config.num_attention_heads, config.head_size
    visible = graph.op("Cast", "input_mask", to=1)
    hidden = graph.op("Mul", graph.op("Sub", graph.number(1.0), visible), graph.number(_MASKED))
    bias = graph.op("Reshape", hidden, graph.integers([1, 1, 1, length]))
    split, joined = graph.integers([1, length, heads, width]), graph.integers([1, length, heads * width])
    for layer in range(config.num_layers):
        path = f"encoder.layers.{config.stored_layer(layer)}"
        parts = {}
        for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            part = graph.linear(x, f"{path}.attention.{name}")
            parts[name] = graph.op("Transpose", graph.op("Reshape", part, split), perm=order)
        logits = graph.op("MatMul", parts["query"], parts["key"])
        logits = graph.op("Add", graph.op("Mul", logits, graph.number(width**-0.5)), bias)
        context = graph.op("MatMul", graph.op("Softmax", logits, axis=-1), parts["value"])
        context = graph.op("Reshape", graph.op("Transpose", context, perm=[0, 2, 1, 3]), joined)
        x = graph.op("Add", x, graph.linear(context, f"{path}.attention.output"))
        x = graph.norm(x, f"{path}.attention.norm", config.layer_norm_eps)
        for index in range(config.num_feedforward_networks):
            inner = graph.linear(x, f"{path}.feed_forwards.{index}.intermediate")
            inner = graph.activation(inner, config.activation)
            x = graph.op("Add", x, graph.linear(inner, f"{path}.feed_forwards.{index}.output"))
            x = graph.norm(x, f"{path}.feed_forwards.{index}.norm", config.layer_norm_eps)
    first = graph.op("Gather", x, graph.integers(0), axis=1)
    pooled = graph.op("Tanh", graph.linear(first, "encoder.pooler"))
    answer = graph.linear(pooled, f"heads.{head}.output")
    if head == "regression":
        answer = graph.op("Reshape", answer, graph.integers([1]))
    return graph.model(answer, length, [1] if head == "regression" else [1, "labels"])


def _embed(graph: _Graph, config: EncoderConfig, length: int) -> str:
    path = "encoder.embeddings"
    x = graph.op("Gather", graph.weight(f"{path}.word.table"), "input_word_ids", axis=0)
    if config.embedding_projection == "factors":
        x = graph.op("MatMul", x, graph.weight(f"{path}.projection.kernel"))
    elif config.embedding_projection == "word":
        x = graph.linear(x, f"{path}.projection")
    positions = graph.tensors[f"{path}.position.table"][config.position_offset : config.position_offset + length]
    x = graph.op("Add", x, graph.constant(np.asarray(positions)[None]))
    x = graph.op("Add", x, graph.op("Gather", graph.weight(f"{path}.token_type.table"), "input_type_ids", axis=0))
    x = graph.norm(x, f"{path}.norm", config.embedding_layer_norm_eps)
    return graph.linear(x, f"{path}.projection") if config.embedding_projection == "output" else x


def _problem(config: EncoderConfig, head: str) -> str | None:
    if config.block != "plain":
        return f"it is for plain blocks; received {config.block} blocks ({config.model_type})"
    if config.feedforward:
        return "this one is an EfficientBERT"
    if config.trigram or config.norm != "layer_norm" or config.pooler != "tanh":
        return f"this one is a {config.model_type} with norm {config.norm} and pooler {config.pooler}"
    return None if head in _HEADS else f"this one's task is {head}, not classification or regression"


class _Graph:
    """Collects nodes and weights; every method returns a value's name."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.tensors = tensors
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator with one output."""
        from onnx import helper

        output = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, value: np.ndarray, name: str | None = None) -> str:
        """Adds a stored array."""
        from onnx import numpy_helper

        name = name or f"constant_{len(self._constants)}"
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def number(self, value: float) -> str:
        """Adds a float32 scalar."""
        return self.constant(np.array(value, np.float32))

    def integers(self, value: Any) -> str:
        """Adds an int64 scalar or list, for shapes and indices."""
        return self.constant(np.array(value, np.int64))

    def weight(self, path: str) -> str:
        """Adds a weight by its canonical path."""
        return self.constant(np.asarray(self.tensors[path], np.float32), path)

    def linear(self, x: str, path: str) -> str:
        """Adds a dense layer: x · kernel + bias."""
        product = self.op("MatMul", x, self.weight(f"{path}.kernel"))
        return self.op("Add", product, self.weight(f"{path}.bias"))

    def norm(self, x: str, path: str, epsilon: float) -> str:
        """Adds layer normalization over the last axis."""
        weights = self.weight(f"{path}.gamma"), self.weight(f"{path}.beta")
        return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=epsilon)

    def activation(self, x: str, name: str) -> str:
        """Adds the feed-forward network's activation."""
        if name == "relu":
            return self.op("Relu", x)
        return self.op("Gelu", x, approximate="tanh" if name == "gelu_tanh" else "none")

    def model(self, output: str, length: int, shape: list[int | str]) -> Any:
        """Returns the model."""
        import onnx
        from onnx import TensorProto, helper

        names = ("input_word_ids", "input_mask", "input_type_ids")
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT32, [1, length]) for name in names]
        self._nodes.append(helper.make_node("Identity", [output], ["logits"]))
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self._nodes, "bert", inputs, outputs, list(self._constants.values()))
        # ONNX Runtime does not support the format's newest version yet.
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
        onnx.checker.check_model(model)
        return model
