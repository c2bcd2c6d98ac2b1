"""Golden examples: texts with their ids, and outputs from the float model and the file.

`bundle.json` lists texts and ids. All outputs are tensors in `goldens.safetensors`, named `INDEX/outputs/OUTPUT` and
`INDEX/exported_outputs/OUTPUT`. A bare encoder gives thousands of numbers per text, too many for JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pocketbert.configs import TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks.outputs import is_token_output

if TYPE_CHECKING:
    from pocketbert.tokenizers.base import Tokenizer
    from pocketbert_runtime.tokenizers.base import TextTokenizer

_KINDS = ("outputs", "exported_outputs")


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A text with its inputs and outputs.

    Attributes:
      text: the text, or the first of a pair.
      pair: the second text of a pair, or None.
      length: sequence length, one of the bundle's.
      inputs: int32 `[1, length]` by name.
      outputs: the float model's outputs, float32 `[1, ...]` by name.
      exported_outputs: the file's outputs.
    """

    text: str
    pair: str | None
    length: int
    inputs: dict[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    exported_outputs: Mapping[str, np.ndarray]


def entries(goldens: Sequence[Golden]) -> list[dict[str, Any]]:
    """Returns the entries for `bundle.json`: all fields except the outputs."""
    return [
        {
            "text": golden.text,
            "pair": golden.pair,
            "length": golden.length,
            "inputs": {name: array.tolist() for name, array in golden.inputs.items()},
        }
        for golden in goldens
    ]


def answers_file(goldens: Sequence[Golden]) -> bytes:
    """Returns the content for `goldens.safetensors`; equal outputs give equal bytes."""
    return save(
        {
            f"{index}/{kind}/{name}": np.ascontiguousarray(array, np.float32)
            for index, golden in enumerate(goldens)
            for kind in _KINDS
            for name, array in getattr(golden, kind).items()
        }
    )


def read_goldens(path: Path, description: Mapping[str, Any], problems: list[str]) -> list[Golden]:
    """Reads the golden examples for a valid `bundle.json`; none if `problems` receives a broken rule."""
    listed = description["goldens"]
    before = len(problems)
    for index, entry in enumerate(listed):
        problems += (f"goldens[{index}]: {problem}" for problem in _entry_problems(entry, description))
    answers = _read_answers(path, len(listed), [output["name"] for output in description["outputs"]], problems)
    if len(problems) == before:
        problems += _shape_problems(answers, listed, description)
    if len(problems) > before:
        return []
    return [
        Golden(
            text=entry["text"],
            pair=entry["pair"],
            length=entry["length"],
            inputs={name: np.array(entry["inputs"][name], np.int32) for name in INPUT_NAMES},
            outputs=answers[index, "outputs"],
            exported_outputs=answers[index, "exported_outputs"],
        )
        for index, entry in enumerate(listed)
    ]


def tokenization_problems(goldens: Sequence[Golden], tokenizer: Tokenizer | TextTokenizer) -> list[str]:
    """Tokenizes each golden text and lists those with other inputs."""
    problems = []
    for index, golden in enumerate(goldens):
        pairs = None if golden.pair is None else [golden.pair]
        encoded = tokenizer([golden.text], pairs, max_length=golden.length, pad_to=golden.length)
        differing = [name for name in INPUT_NAMES if not np.array_equal(encoded[name], golden.inputs[name])]
        if differing:
            text = golden.text if len(golden.text) <= 40 else f"{golden.text[:40]}…"
            problems.append(f"goldens[{index}] ({json.dumps(text, ensure_ascii=False)}): other {', '.join(differing)}")
    return problems


def _entry_problems(entry: Mapping[str, Any], description: Mapping[str, Any]) -> list[str]:
    length, vocab_size = entry["length"], description["tokenizer"]["vocab_size"]
    lengths = sorted(signature["length"] for signature in description["signatures"])
    if length not in lengths:
        return [f"length must be one of {', '.join(map(str, lengths))}; it is {length}"]
    problems = []
    for name in INPUT_NAMES:
        values = entry["inputs"][name][0]
        if len(values) != length:
            problems.append(f"{name} must have {length} values; it has {len(values)}")
    largest = max(entry["inputs"]["input_word_ids"][0])
    if largest >= vocab_size:
        problems.append(f"ids must be below {vocab_size}, the vocabulary's size; the largest is {largest}")
    return problems


def _read_answers(
    path: Path, count: int, outputs: Sequence[str], problems: list[str]
) -> dict[tuple[int, str], dict[str, np.ndarray]]:
    """(index, kind) → output → array."""
    expected_names = {f"{index}/{kind}/{name}" for index in range(count) for kind in _KINDS for name in outputs}
    answers: dict[tuple[int, str], dict[str, np.ndarray]] = {}
    try:
        with safe_open(path, framework="numpy") as stored:
            names = set(stored.keys())
            problems += [
                f"{path.name} must hold the tensor {name}; it is missing" for name in sorted(expected_names - names)
            ]
            problems += [
                f"{path.name} must hold no tensor {name}; remove it" for name in sorted(names - expected_names)
            ]
            for index in range(count):
                for kind in _KINDS:
                    golden_outputs = answers.setdefault((index, kind), {})
                    for name in outputs:
                        key = f"{index}/{kind}/{name}"
                        if key in names:
                            golden_outputs[name] = array = stored.get_tensor(key)
                            problems += _answer_problems(f"{path.name}: {key}", array)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        problems.append(f"{path.name} must be a whole safetensors file; received a damaged one ({error})")
    return answers


def _shape_problems(
    answers: Mapping[tuple[int, str], Mapping[str, np.ndarray]],
    listed: Sequence[Mapping[str, Any]],
    description: Mapping[str, Any],
) -> list[str]:
    """Lists outputs whose shapes differ, except in the number of tokens, or lack a logit for a label."""
    shapes: dict[str, set[tuple[int | str, ...]]] = {}
    for (index, _), found in answers.items():
        for name, array in found.items():
            shape: list[int | str] = [*array.shape]
            if is_token_output(name) and shape[1:2] == [listed[index]["length"]]:
                shape[1] = "length"
            shapes.setdefault(name, set()).add(tuple(shape))
    problems = [
        f"all golden outputs of {name} must have one shape; they have {', '.join(map(str, sorted(found, key=str)))}"
        for name, found in shapes.items()
        if len(found) > 1
    ]
    task = description["task"] or {"labels": []}
    heads = {head["name"]: head for head in task.get("tasks", ())}
    for name, shapes_found in shapes.items():
        # With several heads, an output's name begins with its head.
        head = heads.get(name.partition("_")[0], {"labels": []}) if heads else task
        problems += [
            f"each of the {len(head['labels'])} labels must have a logit; the golden outputs have shape {list(shape)}"
            for shape in sorted(shapes_found, key=str)
            if head["labels"] and shape != _logits_shape(head)
        ]
    return problems


def _logits_shape(task: Mapping[str, Any]) -> tuple[int | str | None, ...]:
    labels = tuple(task["labels"])
    try:
        made_task = get_task(TaskConfig(kind=task["kind"], labels=labels))
    except UserError:
        # Another check reports the wrong task.
        return 1, len(labels)
    return (1, "length", made_task.num_logits) if made_task.per_token else (1, made_task.num_logits)


def _answer_problems(where: str, array: np.ndarray) -> list[str]:
    if array.dtype != np.float32 or array.ndim < 1 or array.shape[0] != 1 or not array.size:
        return [f"{where} must be float32 of shape [1, …]; it is {array.dtype} {list(array.shape)}"]
    return [] if np.isfinite(array).all() else [f"{where} must be finite; it holds NaN or infinity"]
