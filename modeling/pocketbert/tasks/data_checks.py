"""Lines about data, before a network trains on them or reads them."""

from __future__ import annotations

from pocketbert.data.data_warnings import DataWarning, all_texts, truncation_warning, vocabulary_warnings
from pocketbert.data.examples import LabelledData
from pocketbert.data.task_data import TaskData
from pocketbert.tasks.predictor import Predictor
from pocketbert.tasks.registry import supervised_task
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.tokenizers.vocabulary import Vocabulary


def training_warnings(data: TaskData, vocabulary: Vocabulary | None, max_length: int) -> list[DataWarning]:
    """Warnings about labels, lengths and vocabulary, before training.

    Args:
      data: the task and its examples.
      vocabulary: vocabulary of the network; None checks only the labels.
      max_length: maximum sequence length.
    """
    task = supervised_task(data.task)
    warnings = task.data_warnings(data.train, data.dev)
    if vocabulary is None:
        return warnings
    tokenizer = open_tokenizer(vocabulary)
    truncated = sum(task.count_truncated(part, tokenizer, max_length) for part in (data.train, data.dev))
    sides = 2 if data.task.kind == "embedding" and data.train.has_pairs else 1
    count = sides * (len(data.train) + len(data.dev))
    cut = truncation_warning(data.train.source, truncated, count, max_length, truncation=vocabulary.truncation)
    return [*warnings, *([] if cut is None else [cut]), *vocabulary_warnings(all_texts(data.train), tokenizer)]


def reading_warnings(predictor: Predictor, data: LabelledData, remedy: str) -> list[DataWarning]:
    """Warnings about lengths and vocabulary, before a network reads data."""
    task, tokenizer, max_length = predictor.task, predictor.tokenizer, predictor.max_length
    truncated = task.count_truncated(data, tokenizer, max_length)
    count = len(data) * (2 if task.has_vectors and data.has_pairs else 1)
    cut = truncation_warning(data.source, truncated, count, max_length, remedy, tokenizer.vocabulary.truncation)
    return [*([] if cut is None else [cut]), *vocabulary_warnings(all_texts(data), tokenizer)]
