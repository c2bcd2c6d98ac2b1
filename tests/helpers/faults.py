"""Faults to put into a bundle; every sum in `bundle.json` is made anew, so that no digest hides them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bundle_folders
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from safetensors.numpy import load, save

from pocketbert_export.bundles import bundle as layout

Inject = Callable[[Path], object]


def described(**changes: Any) -> Inject:
    """Members of `bundle.json` that have another value."""
    return lambda folder: bundle_folders.describe_again(folder, **changes)


def edited(change: Callable[[dict[str, Any]], object]) -> Inject:
    """A change inside `bundle.json`, which is written as it then is."""

    def inject(folder: Path) -> None:
        description = bundle_folders.description_of(folder)
        change(description)
        (folder / layout.BUNDLE_FILE).write_text(bundle_folders.json.dumps(description), encoding="utf-8")

    return inject


def golden(change: Callable[[dict[str, Any]], object]) -> Inject:
    """A change of the first line of `answers.jsonl`."""

    def inject(folder: Path) -> None:
        lines = bundle_folders.golden_lines(folder)
        change(lines[0])
        bundle_folders.write_lines(folder, lines)

    return inject


def window(**changes: Any) -> Inject:
    """Other members of the first line's first window; None removes one."""

    def change(line: dict[str, Any]) -> None:
        members = {**line["windows"][0], **changes}
        line["windows"][0] = {name: value for name, value in members.items() if value is not None}

    return golden(change)


def swapped_answers(folder: Path) -> None:
    """The second and the last line exchange their answers."""
    lines = bundle_folders.golden_lines(folder)
    lines[1]["answer"], lines[-1]["answer"] = lines[-1]["answer"], lines[1]["answer"]
    bundle_folders.write_lines(folder, lines)


def answers(ending: str, change: Callable[[np.ndarray], np.ndarray]) -> Inject:
    return lambda folder: bundle_folders.change_answers(folder, {ending: change})


def tensors(change: Callable[[dict[str, np.ndarray]], object]) -> Inject:
    """A change of the list of raw golden outputs."""

    def inject(folder: Path) -> None:
        path = folder / bundle_folders.GOLDENS
        stored = load(path.read_bytes())
        change(stored)
        path.write_bytes(save(stored))
        bundle_folders.describe_again(folder)

    return inject


def vocabulary(change: Callable[[list[str]], list[str]], **tokenizer: Any) -> Inject:
    """Other lines in vocab.txt, and other members of `tokenizer`."""

    def inject(folder: Path) -> None:
        path = folder / layout.VOCAB_FILE
        path.write_text(
            "\n".join(change(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))) + "\n", encoding="utf-8"
        )
        output = bundle_folders.description_of(folder)["tokenizer"]
        bundle_folders.describe_again(folder, tokenizer={**output, **tokenizer})

    return inject


def labels(described: tuple[str, ...], written: tuple[str, ...]) -> Inject:
    """Other labels in `bundle.json` and in labels.txt."""

    def inject(folder: Path) -> None:
        (folder / layout.LABELS_FILE).write_text("".join(f"{label}\n" for label in written), encoding="utf-8")
        task = bundle_folders.description_of(folder)["task"]
        bundle_folders.describe_again(folder, task={**task, "labels": list(described)})

    return inject


def shuffled(pieces: list[str]) -> list[str]:
    return [*pieces[:5], *np.random.default_rng(2).permutation(pieces[5:])]


def graph(change: Callable[[schema.ModelT], object]) -> Inject:
    """A change of the .tflite file."""

    def inject(folder: Path) -> None:
        path = folder / layout.MODEL_FILE
        model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
        change(model)
        builder = flatbuffers.Builder(0)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        bundle_folders.describe_again(folder)

    return inject


def constants(model: schema.ModelT, shape: list[int], *types: int) -> Iterator[schema.BufferT]:
    """The constants of a shape and one of some types, each once."""
    buffers = {
        tensor.buffer
        for subgraph in model.subgraphs
        for tensor in subgraph.tensors
        if model.buffers[tensor.buffer].data is not None and [*map(int, tensor.shape)] == shape and tensor.type in types
    }
    assert buffers
    return (model.buffers[index] for index in sorted(buffers))


def floats(shape: list[int], change: Callable[[np.ndarray], np.ndarray]) -> Inject:
    """Other numbers in the float32 constants of a shape."""

    def apply(model: schema.ModelT) -> None:
        for buffer in constants(model, shape, schema.TensorType.FLOAT32):
            values = np.asarray(buffer.data, np.uint8).view(np.float32).reshape(shape)
            buffer.data = np.ascontiguousarray(change(values), np.float32).reshape(-1).view(np.uint8)

    return graph(apply)


def equal_type_rows(width: int) -> Inject:
    """Both segments have one embedding, of so many numbers."""

    def apply(model: schema.ModelT) -> None:
        for buffer in constants(model, [2, width], schema.TensorType.FLOAT32, schema.TensorType.INT8):
            rows = np.array(buffer.data, np.uint8).reshape(2, -1)
            rows[1] = rows[0]
            buffer.data = rows.reshape(-1)

    return graph(apply)


def mask_of(value: float) -> Inject:
    """The mask's constant, which stands alone among the scalars."""

    def apply(model: schema.ModelT) -> None:
        for buffer in model.buffers:
            if buffer.data is not None and len(buffer.data) == 4:
                number = np.asarray(buffer.data, np.uint8).view(np.float32)
                if abs(number[0]) == 60_000:
                    buffer.data = (np.sign(number) * np.float32(value)).view(np.uint8)
                    return
        raise AssertionError("no mask constant")

    return graph(apply)


def open_batch(model: schema.ModelT) -> None:
    for subgraph in model.subgraphs:
        for index in subgraph.inputs:
            tensor = subgraph.tensors[index]
            tensor.shapeSignature = np.array([-1, *tensor.shape[1:]], np.int32)


def renamed(kind: str, old: bytes, new: bytes) -> Inject:
    def apply(model: schema.ModelT) -> None:
        for signature in model.signatureDefs:
            for entry in getattr(signature, kind):
                entry.name = new if entry.name == old else entry.name

    return graph(apply)


def without_longest_signature(model: schema.ModelT) -> None:
    longest = max(model.signatureDefs, key=lambda signatureDef: int(signatureDef.signatureKey.rpartition(b"_")[2]))
    model.signatureDefs.remove(longest)


def recorded(change: Callable[[dict[str, Any]], object]) -> Inject:
    """A change of `verification.json`."""

    def inject(folder: Path) -> None:
        path = folder / layout.VERIFICATION_FILE
        content = json.loads(path.read_text(encoding="utf-8"))
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")
        bundle_folders.describe_again(folder)

    return inject


def gate_check(name: str, **values: Any) -> Inject:
    """Other values of a check in `verification.json`."""

    def change(content: dict[str, Any]) -> None:
        (check,) = [check for check in content["checks"] if check["name"] == name]
        check.update(values)

    return recorded(change)


def on_card(old: str, new: str) -> Inject:
    """Other text on the model card."""

    def inject(folder: Path) -> None:
        path = folder / "README.md"
        card = path.read_text(encoding="utf-8")
        assert old in card
        path.write_text(card.replace(old, new), encoding="utf-8")

    return inject


def written(name: str, content: bytes) -> Inject:
    """Another file in place of one; `bundle.json` is written as given."""

    def inject(folder: Path) -> None:
        (folder / name).write_bytes(content)
        if name != layout.BUNDLE_FILE:
            bundle_folders.describe_again(folder)

    return inject


def cut(name: str, end: int) -> Inject:
    """A file up to a byte."""
    return lambda folder: written(name, (folder / name).read_bytes()[:end])(folder)


def outside(name: str) -> Inject:
    def change(description: dict[str, Any]) -> None:
        description["files"][name] = description["files"][layout.VOCAB_FILE]

    return edited(change)
