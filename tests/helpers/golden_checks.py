"""Compares a bundle's golden answers with those of the model that it was exported from."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import bundle_folders

import pocketbert as pb
from pocketbert.tasks.predictor import model_predictor

INPUTS = ("text", "pair", "question", "context")


def check_golden_answers(folder: Path, model: pb.Model) -> list[dict[str, Any]]:
    """Asserts that the answers are the model's up to the tolerance, and the limits of the file; returns its lines."""
    lines, description = bundle_folders.golden_lines(folder), bundle_folders.description_of(folder)
    assert len(lines) <= 50 and (folder / bundle_folders.ANSWERS).stat().st_size <= 200_000
    tolerance, longest = description["answers"]["tolerance"], max(row["length"] for row in description["signatures"])
    predictor = model_predictor(model, max_length=longest)
    for _, group in itertools.groupby(lines, key=lambda line: [name for name in INPUTS if name in line]):
        same_form = list(group)
        inputs = [{name: line[name] for name in INPUTS if name in line} for line in same_form]
        for line, answer in zip(same_form, predictor.predict(inputs), strict=True):
            check_equal(line["answer"], answer, tolerance)
            check_windows(line, longest)
    return lines


def check_equal(golden: Any, answer: Any, tolerance: float) -> None:
    """Asserts that numbers differ by at most the tolerance, and all else is equal."""
    if isinstance(answer, dict):
        assert golden.keys() == answer.keys()
        for name, value in answer.items():
            check_equal(golden[name], value, tolerance)
    elif isinstance(answer, list):
        assert len(golden) == len(answer)
        for both in zip(golden, answer, strict=True):
            check_equal(*both, tolerance)
    elif isinstance(answer, float):
        assert abs(golden - answer) <= tolerance
    else:
        assert golden == answer


def check_windows(line: dict[str, Any], longest: int) -> None:
    """Asserts what holds for all rows: special tokens at both ends, lengths, and offsets that never go back."""
    for window in line["windows"]:
        assert 2 <= len(window["ids"]) == len(window["offsets"]) <= longest
        assert window["offsets"][0] == window["offsets"][-1] == [0, 0]
        assert all(start <= end for start, end in window["offsets"])
