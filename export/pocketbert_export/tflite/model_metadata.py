"""Write TFLite Model Metadata: tensor descriptions inside a `.tflite` file, and files in a zip behind it.

Source: tflite-support's metadata_schema.fbs, identifier M001, for MediaPipe and the TFLite Task Library
(https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs). The
fields used here are written directly, because the writers in tflite-support and mediapipe need conflicting packages.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

IDENTIFIER = b"M001"
BUFFER_NAME = b"TFLITE_METADATA"
_AXIS_LABELS, _VOCABULARY = 2, 5
_BERT_TOKENIZER_OPTIONS = 4
# The schema version that introduced input process units.
_MIN_PARSER_VERSION = "1.1.0"


class _Byte(NamedTuple):
    """An enum in the schema."""

    value: int


# Field index in the schema's table → value. A union takes two slots: its type and its table.
_Table = Mapping[int, Any]


class TensorDescription(NamedTuple):
    """A tensor's metadata.

    Attributes:
      name: name for clients, such as `ids`.
      description: for readers.
      labels_file: associated file with the labels for the last axis; empty for none.
    """

    name: str
    description: str
    labels_file: str = ""


def add_metadata(
    model: schema.ModelT,
    *,
    name: str,
    description: str,
    inputs: Sequence[TensorDescription],
    outputs: Sequence[TensorDescription],
    vocabulary_file: str,
) -> None:
    """Adds metadata for clients with BERT's tokenizer to a model with one subgraph.

    Inputs and outputs are in the file's order. The vocabulary file has one token per line.
    """
    tokenizer: _Table = {0: [_associated_file(vocabulary_file, "Tokens, one per line.", _VOCABULARY)]}
    graph: _Table = {
        2: [_tensor(tensor) for tensor in inputs],
        3: [_tensor(tensor) for tensor in outputs],
        5: [{0: _Byte(_BERT_TOKENIZER_OPTIONS), 1: tokenizer}],
    }
    builder = flatbuffers.Builder(1024)
    root = _write(builder, {0: name, 1: description, 3: [graph], 7: _MIN_PARSER_VERSION})
    builder.Finish(root, file_identifier=IDENTIFIER)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = np.frombuffer(bytes(builder.Output()), np.uint8)
    model.buffers.append(buffer)
    entry.name, entry.buffer = BUFFER_NAME, len(model.buffers) - 1
    model.metadata = [other for other in model.metadata or () if other.name != BUFFER_NAME] + [entry]


def append_files(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Appends a zip of uncompressed files (name → content) to a `.tflite` file. Equal files give equal bytes."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def _associated_file(name: str, description: str, kind: int) -> _Table:
    return {0: name, 1: description, 2: _Byte(kind)}


def _tensor(tensor: TensorDescription) -> _Table:
    labels = [_associated_file(tensor.labels_file, "Labels, one per line.", _AXIS_LABELS)] if tensor.labels_file else []
    return {0: tensor.name, 1: tensor.description, **({6: labels} if labels else {})}


def _write(builder: flatbuffers.Builder, table: _Table) -> int:
    """Writes a table and everything below it; returns its offset."""
    # Strings, vectors and tables must be complete before a table refers to them.
    offsets = {slot: _offset(builder, value) for slot, value in table.items() if not isinstance(value, _Byte)}
    builder.StartObject(max(table) + 1)
    for slot, value in table.items():
        if isinstance(value, _Byte):
            builder.PrependInt8Slot(slot, value.value, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, offsets[slot], 0)
    return builder.EndObject()


def _offset(builder: flatbuffers.Builder, value: str | _Table | Sequence[_Table]) -> int:
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, Mapping):
        return _write(builder, value)
    tables = [_write(builder, table) for table in value]
    builder.StartVector(4, len(tables), 4)
    for offset in reversed(tables):
        builder.PrependUOffsetTRelative(offset)
    return builder.EndVector()
