"""Rows of tokens: their inputs, and the outputs that are collected for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import GatheredOutputs, check_finite_answers
from pocketbert_runtime.rows import TokenRows, token_rows
from pocketbert_runtime.task_config import TaskConfig
from pocketbert_runtime.task_form import TaskForm

LENGTHS = (3, 11, 5, 9)
ROWS = TokenRows(
    word_ids=np.arange(100, 128, dtype=np.int32),
    type_ids=np.arange(28, dtype=np.int32) % 2,
    offsets=np.cumsum([0, *LENGTHS]),
    max_length=13,
    pad_token_id=7,
)
TASK = TaskConfig(kind="regression")


class Sentences(TaskForm):
    """An output for each row."""


class Words(TaskForm):
    """An output for each token."""

    per_token = True


def letters(texts: Sequence[str], pairs: Sequence[str] | None, max_length: int) -> dict[str, np.ndarray]:
    """A tokenizer whose ids are code points."""
    assert pairs is None
    width = max(map(len, texts))
    ids = np.array([[*map(ord, text), *[0] * (width - len(text))] for text in texts], np.int32)
    return {"input_word_ids": ids, "input_mask": (ids > 0).astype(np.int32), "input_type_ids": ids % 2}


def test_inputs_are_padded_to_the_bucket_of_the_longest_row() -> None:
    inputs = ROWS.inputs(np.array([2, 0]))
    expected = [[*range(114, 119), 7, 7, 7], [100, 101, 102, 7, 7, 7, 7, 7]]
    np.testing.assert_array_equal(inputs["input_word_ids"], expected)
    np.testing.assert_array_equal(inputs["input_mask"].sum(axis=1), [5, 3])
    np.testing.assert_array_equal(inputs["input_type_ids"][0], [0, 1, 0, 1, 0, 0, 0, 0])
    # 11 tokens would have 16, but 13 are the most.
    assert ROWS.inputs(np.array([1]))["input_word_ids"].shape == (1, 13)


def test_rows_of_an_example_stay_together() -> None:
    pairs = dataclasses.replace(ROWS, rows_per_example=2)
    assert len(pairs) == 2 and pairs.lengths.tolist() == [11, 9]
    inputs = pairs.inputs(np.array([1, 0]))
    assert inputs["input_word_ids"][:, 0].tolist() == [114, 119, 100, 103]


def test_texts_are_tokenized_in_chunks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("pocketbert_runtime.rows._TEXTS_A_CALL", 2)
    texts, tokenizer = ["abc", "d", "efghi", "jk", "l"], type("Tokenizer", (), {"pad_token_id": 0})
    tokenizer.__call__ = lambda self, *texts, **options: letters(*texts, **options)  # type: ignore[attr-defined]
    rows = token_rows(texts, None, tokenizer(), 19)
    assert rows.word_ids.tolist() == [*map(ord, "abcdefghijkl")]
    assert rows.offsets.tolist() == [0, 3, 4, 9, 11, 12] and rows.max_length == 19
    assert capsys.readouterr().err == ""
    token_rows(texts, None, tokenizer(), 19, show_progress=True)
    assert "tokenize" in capsys.readouterr().err


@pytest.mark.parametrize("order", [[[0, 1, 2, 3]], [[3], [1, 0], [2]]])
def test_outputs_have_the_order_of_the_rows(order: list[list[int]]) -> None:
    of_rows, of_tokens = GatheredOutputs(ROWS, Sentences(TASK)), GatheredOutputs(ROWS, Words(TASK))
    for indices in order:
        ids = ROWS.inputs(np.array(indices))["input_word_ids"]
        of_rows.add(np.array(indices), {"logits": ids[:, :2]})
        of_tokens.add(np.array(indices), {"logits": np.stack([ids, -ids], axis=-1)})
    assert of_rows.outputs["logits"].tolist() == [[100, 101], [103, 104], [114, 115], [119, 120]]
    np.testing.assert_array_equal(of_tokens.outputs["logits"], np.stack([ROWS.word_ids, -ROWS.word_ids], axis=-1))


def test_a_pair_has_the_outputs_of_its_first_row() -> None:
    gathered = GatheredOutputs(dataclasses.replace(ROWS, rows_per_example=2), Sentences(TASK))
    gathered.add(np.array([1, 0]), {"logits": np.array([5.0, 6.0, 7.0, 8.0])})
    assert gathered.outputs["logits"].tolist() == [7.0, 5.0]


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_answers_that_are_not_finite_are_refused(value: Any) -> None:
    outputs = {"logits": np.array([1.0, 2.0])}
    assert check_finite_answers(outputs) is outputs
    with pytest.raises(UserError, match="answers must be finite; received NaN or infinity"):
        check_finite_answers({**outputs, "others": np.array([value])})
