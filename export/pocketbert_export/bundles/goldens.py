"""Golden examples: the first texts of `answers.jsonl` with raw outputs from the float model and the file.

All outputs are tensors in `goldens.safetensors`, named `INDEX/outputs/OUTPUT` and `INDEX/exported_outputs/OUTPUT`, for
the line with this index and its first window, on the shortest signature that fits. Later lines have final answers only:
phones and benchmarks run all golden examples, and a bare encoder gives thousands of numbers per text.
"""

from __future__ import annotations

import itertools
import re
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
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.registry import get_task
from pocketbert_export.checks.outputs import is_token_output
from pocketbert_runtime.bundles.description import ANSWERS_FILE
from pocketbert_runtime.bundles.golden_answers import GoldenLine, GoldenReader, Window, line_subject, window_problems

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
      inputs: int32 `[1, length]` by name, from the line's first window.
      outputs: the float model's outputs, float32 `[1, ...]` by name.
      exported_outputs: the file's outputs.
    """

    text: str
    pair: str | None
    length: int
    inputs: dict[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    exported_outputs: Mapping[str, np.ndarray]


def outputs_file(goldens: Sequence[Golden]) -> bytes:
    """Returns the content for `goldens.safetensors`; equal outputs give equal bytes."""
    return save(
        {
            f"{index}/{kind}/{name}": np.ascontiguousarray(array, np.float32)
            for index, golden in enumerate(goldens)
            for kind in _KINDS
            for name, array in getattr(golden, kind).items()
        }
    )


def window_inputs(window: Window, lengths: Sequence[int], pad_token_id: int) -> dict[str, np.ndarray]:
    """Returns a window's inputs for the shortest length that fits, int32 `[1, length]` by name.

    Raises:
      ValueError: no length fits.
    """
    count = len(window.ids)
    length = min(length for length in lengths if length >= count)
    inputs = {name: np.zeros((1, length), np.int32) for name in INPUT_NAMES}
    inputs["input_word_ids"].fill(pad_token_id)
    inputs["input_word_ids"][0, :count] = window.ids
    inputs["input_mask"][0, :count] = 1
    inputs["input_type_ids"][0, :count] = window.type_ids or 0
    return inputs


def read_goldens(
    path: Path, lines: Sequence[GoldenLine], description: Mapping[str, Any], pad_token_id: int
) -> list[Golden]:
    """Reads the golden examples.

    Args:
      path: path to `goldens.safetensors`.
      lines: the lines of `answers.jsonl`.
      description: a valid `bundle.json`.
      pad_token_id: the padding token's id.
    Raises:
      UserError: lists ids outside the vocabulary, and missing, unknown and wrong outputs.
    """
    lengths = sorted(signature["length"] for signature in description["signatures"])
    vocab_size = description["tokenizer"]["vocab_size"]
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        largest = max(max(window.ids) for window in line.windows)
        if largest >= vocab_size:
            problems.append(
                f"{ANSWERS_FILE}: line {number}: ids must be below {vocab_size}, the vocabulary's size; the largest is "
                f"{largest}"
            )
        longest = max(len(window.ids) for window in line.windows)
        if longest > lengths[-1]:
            problems.append(
                f"{ANSWERS_FILE}: line {number}: a window must have at most {lengths[-1]} ids; it has {longest}"
            )
    answers = _read_outputs(path, len(lines), [output["name"] for output in description["outputs"]], problems)
    if not problems:
        inputs = [window_inputs(lines[index].windows[0], lengths, pad_token_id) for index in range(len(answers))]
        problems += _shape_problems(answers, [row["input_mask"].shape[1] for row in inputs], description)
    if problems:
        raise UserError(f"bundle {path.parent}: {'; '.join([*problems, 'export it again, or copy all its files'])}")
    return [
        Golden(
            text=line.text,
            pair=line.pair,
            length=row["input_mask"].shape[1],
            inputs=row,
            outputs=of_line["outputs"],
            exported_outputs=of_line["exported_outputs"],
        )
        for line, row, of_line in zip(lines, inputs, answers, strict=False)
    ]


def golden_task(config: TaskConfig | None) -> SupervisedTask | None:
    """Returns the task whose answers are golden; None for a network without answers."""
    task = None if config is None else get_task(config)
    return task if isinstance(task, SupervisedTask) else None


def tokenization_problems(
    lines: Sequence[GoldenLine], config: TaskConfig | None, tokenizer: Tokenizer | TextTokenizer, longest: int
) -> list[str]:
    """Encodes each golden text and lists those with other windows.

    Args:
      lines: the lines of `answers.jsonl`.
      config: the task that reads them; None for a bare encoder.
      tokenizer: a tokenizer.
      longest: the bundle's longest length.
    """
    task = golden_task(config)
    problems: list[str] = []
    reader = GoldenReader(task, tokenizer, longest if task is None else task.max_length(longest))
    # Texts of one form at once: the tokenizers for training are slow at single texts.
    for _, group in itertools.groupby(enumerate(lines, start=1), key=lambda line: (*line[1].inputs,)):
        numbered = list(group)
        windows = list(reader.windows([line.inputs for _, line in numbered]))
        for number, line in numbered:
            received, windows = windows[: len(line.windows)], windows[len(line.windows) :]
            if wrong := window_problems(line.windows, received):
                problems.append(f"{ANSWERS_FILE}: {line_subject(number, line)} {wrong[0]}")
        if windows:
            problems.append(f"{ANSWERS_FILE}: the golden texts must have no other windows; {len(windows)} are missing")
    return problems


def _read_outputs(
    path: Path, most: int, outputs: Sequence[str], problems: list[str]
) -> list[dict[str, dict[str, np.ndarray]]]:
    """By index: kind → output → array."""
    answers: list[dict[str, dict[str, np.ndarray]]] = []
    try:
        with safe_open(path, framework="numpy") as stored:
            names = set(stored.keys())
            indices = [int(name.partition("/")[0]) for name in names if re.match(r"\d{1,4}/", name)]
            count = min(max(indices, default=0) + 1, most)
            expected_names = {f"{index}/{kind}/{name}" for index in range(count) for kind in _KINDS for name in outputs}
            problems += [
                f"{path.name} must hold the tensor {name}; it is missing" for name in sorted(expected_names - names)
            ]
            problems += [
                f"{path.name} must hold no tensor {name}; remove it" for name in sorted(names - expected_names)
            ]
            for index in range(count):
                answers.append({kind: {} for kind in _KINDS})
                for kind in _KINDS:
                    for name in outputs:
                        key = f"{index}/{kind}/{name}"
                        if key in names:
                            answers[-1][kind][name] = array = stored.get_tensor(key)
                            problems += _array_problems(f"{path.name}: {key}", array)
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        problems.append(f"{path.name} must be a whole safetensors file; received a damaged one ({error})")
    return answers


def _shape_problems(
    answers: Sequence[Mapping[str, Mapping[str, np.ndarray]]], lengths: Sequence[int], description: Mapping[str, Any]
) -> list[str]:
    """Lists outputs whose shapes differ, except in the number of tokens, or lack a logit for a label."""
    shapes: dict[str, set[tuple[int | str, ...]]] = {}
    for length, kinds in zip(lengths, answers, strict=True):
        for arrays in kinds.values():
            for name, array in arrays.items():
                shape: list[int | str] = [*array.shape]
                if is_token_output(name) and shape[1:2] == [length]:
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


def _array_problems(where: str, array: np.ndarray) -> list[str]:
    if array.dtype != np.float32 or array.ndim < 1 or array.shape[0] != 1 or not array.size:
        return [f"{where} must be float32 of shape [1, …]; it is {array.dtype} {list(array.shape)}"]
    return [] if np.isfinite(array).all() else [f"{where} must be finite; it holds NaN or infinity"]
