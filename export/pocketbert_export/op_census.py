"""What a `.tflite` file is made of: operators, signatures, weights. Nothing is executed."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ai_edge_litert import schema_py_generated as schema

from pocketbert.errors import UserError

FILE_IDENTIFIER = b"TFL3"
BUILTIN_NAMES = {code: name for name, code in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
TYPE_NAMES = {code: name.lower() for name, code in vars(schema.TensorType).items() if not name.startswith("_")}


@dataclass(frozen=True)
class TensorInfo:
    """A signature's input or output: TFLite's type name in lower case, and its shape."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """The named inputs and outputs of one entry into the model."""

    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]


@dataclass(frozen=True, kw_only=True)
class Census:
    """What the file holds.

    Attributes:
      operators: builtin operator → how often, over all graphs.
      custom: names of custom operators, sorted; TensorFlow's own (Flex) begin with `Flex`.
      signatures: name → inputs and outputs.
      file_bytes: the file's size.
      weight_bytes: bytes of all constant data, each buffer once however many graphs use it.
      weight_bytes_by_type: type → its share of `weight_bytes` (the type of the first tensor that uses the buffer).
      int8_fully_connected: FULLY_CONNECTED operators with an int8 weight.
      channelwise_fully_connected: those of them with more than one scale, which TFLite accepts for float
        inputs only from version 12 of the operator.
    """

    operators: Mapping[str, int]
    custom: tuple[str, ...]
    signatures: Mapping[str, Signature]
    file_bytes: int
    weight_bytes: int
    weight_bytes_by_type: Mapping[str, int]
    int8_fully_connected: int
    channelwise_fully_connected: int

    @property
    def num_operators(self) -> int:
        """Operators over all graphs."""
        return sum(self.operators.values()) + len(self.custom)

    @property
    def needed_versions(self) -> dict[str, int]:
        """Operator → the version that the weights need, whatever the file records.

        A recorded version is a claim: the converter writes 12 for every such FULLY_CONNECTED, while
        ai-edge-quantizer keeps the float model's, and an old runtime then computes nonsense.
        """
        return {"FULLY_CONNECTED": 12} if self.channelwise_fully_connected else {}


def take_census(path: str | Path) -> Census:
    """Reads a `.tflite` file.

    Raises:
      UserError: the file is not a TFLite model, or is cut short.
    """
    content = Path(path).read_bytes()
    if len(content) < 8 or content[4:8] != FILE_IDENTIFIER:
        raise UserError(f"{path} must be a TFLite model (identifier TFL3); received {content[4:8]!r}; export it again")
    try:
        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    except (struct.error, IndexError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} must be a whole TFLite model; received a damaged one ({error}); export it again"
        ) from error
    return _count(model, len(content))


def _count(model: schema.ModelT, file_bytes: int) -> Census:
    operators: Counter[str] = Counter()
    custom: Counter[str] = Counter()
    type_of_buffer: dict[int, str] = {}
    int8_fully_connected = channelwise = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            type_of_buffer.setdefault(tensor.buffer, TYPE_NAMES[tensor.type])
        for operator in graph.operators or ():
            code = model.operatorCodes[operator.opcodeIndex]
            # Codes above 127 live in the new field; files of before it existed have only the old one.
            name = BUILTIN_NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
            if name == "CUSTOM":
                custom[_text(code.customCode)] += 1
                continue
            operators[name] += 1
            if name == "FULLY_CONNECTED":
                weight = graph.tensors[operator.inputs[1]]
                if TYPE_NAMES[weight.type] == "int8":
                    int8_fully_connected += 1
                    scales = weight.quantization.scale if weight.quantization else None
                    channelwise += scales is not None and len(scales) > 1
    sizes = {
        index: len(buffer.data) if buffer.data is not None else buffer.size
        for index, buffer in enumerate(model.buffers)
    }
    by_type: Counter[str] = Counter()
    for index, kind in type_of_buffer.items():
        by_type[kind] += sizes[index]
    return Census(
        operators=dict(sorted(operators.items())),
        custom=tuple(sorted(custom.elements())),
        signatures={
            _text(signature.signatureKey): Signature(
                inputs=_tensors(model, signature, signature.inputs),
                outputs=_tensors(model, signature, signature.outputs),
            )
            for signature in model.signatureDefs or ()
        },
        file_bytes=file_bytes,
        weight_bytes=sum(by_type.values()),
        weight_bytes_by_type={kind: size for kind, size in sorted(by_type.items()) if size},
        int8_fully_connected=int8_fully_connected,
        channelwise_fully_connected=channelwise,
    )


def _tensors(
    model: schema.ModelT, signature: schema.SignatureDefT, entries: list[schema.TensorMapT] | None
) -> dict[str, TensorInfo]:
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    return {
        _text(entry.name): TensorInfo(
            TYPE_NAMES[tensors[entry.tensorIndex].type], tuple(map(int, tensors[entry.tensorIndex].shape))
        )
        for entry in entries or ()
    }


def _text(value: bytes | str) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value
