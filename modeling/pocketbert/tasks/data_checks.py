"""Warnings about data, before a network trains on them or reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pocketbert.data.data_warnings import DataWarning, all_texts, truncation_warning, vocabulary_warnings
from pocketbert.data.examples import LabelledData
from pocketbert.data.task_data import TaskData
from pocketbert.tasks.base import SupervisedTask
from pocketbert.tasks.predictor import Predictor
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary


def training_warnings(data: TaskData, vocabulary: Vocabulary | None, max_length: int) -> list[DataWarning]:
    """Warnings about labels, lengths and vocabulary, before training.

    Args:
      data: the task and its examples.
      vocabulary: the network's vocabulary; None checks only the labels.
      max_length: maximum sequence length.
    """
    task = supervised_task(data.task)
    warnings = task.data_warnings(data.train, data.dev)
    if vocabulary is None:
        return warnings
    tokenizer = open_tokenizer(vocabulary)
    # Augmented examples are as long as their training examples, and may be millions.
    parts = [part for part in (data.train, data.dev, data.unlabelled) if part is not None]
    cut = cut_warning(task, parts, tokenizer, max_length)
    return [*warnings, *([] if cut is None else [cut]), *vocabulary_warnings(all_texts(data.train), tokenizer)]


def reading_warnings(predictor: Predictor, data: LabelledData, remedy: str) -> list[DataWarning]:
    """Warnings about lengths and vocabulary, before a network reads data."""
    cut = cut_warning(predictor.task, [data], predictor.tokenizer, predictor.max_length, remedy)
    return [*([] if cut is None else [cut]), *vocabulary_warnings(all_texts(data), predictor.tokenizer)]


def cut_warning(
    task: SupervisedTask, parts: Sequence[LabelledData], tokenizer: Any, max_length: int, remedy: str = ""
) -> DataWarning | None:
    """Warns how many texts are cut, and how; None if there are none.

    Args:
      task: the network's task.
      parts: examples; the warning counts all of them and names the source of each part.
      tokenizer: the network's tokenizer.
      max_length: maximum sequence length.
      remedy: advice; empty for a larger `max_length`.
    """
    truncated = sum(task.count_truncated(part, tokenizer, max_length) for part in parts)
    rows = 2 if task.has_vectors or task.separates_pairs else 1
    count = sum(len(part) * (rows if part.has_pairs else 1) for part in parts)
    how = tokenizer.vocabulary.truncation
    sources = ", ".join(dict.fromkeys(part.source for part in parts))
    return truncation_warning(sources, truncated, count, max_length, remedy, how)
