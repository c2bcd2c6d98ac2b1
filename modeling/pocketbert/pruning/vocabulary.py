"""Vocabulary trimming: a model with the tokens that your texts need, and only their embeddings."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert import progress
from pocketbert.checkpoints.directory import ModelDirectory, read_directory, write_directory
from pocketbert.checkpoints.spare_rows import per_token_weights
from pocketbert.data.readers.sentences import split_sentences
from pocketbert.data.readers.text import read_documents
from pocketbert.errors import UserError, raise_if_any
from pocketbert.hub.download import local
from pocketbert.output_folders import MODEL_KIND, check_directory, check_inputs
from pocketbert.tokenizers.base import Tokenizer
from pocketbert.tokenizers.opening import open_tokenizer
from pocketbert.tokenizers.trimming import chosen_ids, listed_ids, merged_from, required_ids, write_trimmed
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary
from pocketbert_runtime.tokenizers.wordpiece_vocabulary import read_tokens

# Without texts for the measurement, every tenth paragraph is measured, not counted.
MEASURED_EVERY = 10
_BATCH = 1000


@dataclass(frozen=True)
class TrimResult:
    """A trimmed model, measured on texts that took no part in the choice of tokens.

    Attributes:
      tokens: vocabulary size before and after.
      parameters: number of weights before and after, heads included.
      weight_bytes: size of the weights before and after, float32.
      sentences: number of measured sentences.
      same_sentences: fraction of sentences with the same tokens as before.
      same_tokens: fraction of tokens that the trimmed vocabulary also gives, at the same place.
      unknown_tokens: fraction of unknown tokens before and after.
    """

    tokens: tuple[int, int]
    parameters: tuple[int, int]
    weight_bytes: tuple[int, int]
    sentences: int
    same_sentences: float
    same_tokens: float
    unknown_tokens: tuple[float, float]


def trim_vocabulary(
    model: str | os.PathLike[str],
    text: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    keep_top: int | None = None,
    min_count: int | None = None,
    keep: str | os.PathLike[str] | None = None,
    dev_text: Sequence[str | os.PathLike[str]] = (),
    overwrite: bool = False,
) -> TrimResult:
    """Writes a model directory with only the tokens in your texts, and their embedding rows.

    Special tokens and single characters (bytes for byte-level BPE) are always kept, so the trimmed tokenizer can still
    write every word. A text with only kept tokens and known words has bit-identical outputs.

    Args:
      model: model directory with a tokenizer.
      text: files or folders with plain text; see `pocketbert.data.text`.
      output: model directory to create.
      keep_top: size of the new vocabulary: the most frequent tokens.
      min_count: keep tokens with at least as many occurrences; by default 1. Give this or `keep_top`.
      keep: file with tokens to keep in any case, one per line.
      dev_text: texts for the measurement; by default, every tenth paragraph in `text`.
      overwrite: replace an existing model directory.
    Raises:
      UserError: the model has no tokenizer, a text cannot be read, or an option is invalid. Nothing is written.
    """
    problems = []
    if keep_top is not None and min_count is not None:
        problems.append(f"give keep_top or min_count; received keep_top={keep_top} and min_count={min_count}")
    if min_count is not None and min_count < 1:
        problems.append(f"min_count must be at least 1; received {min_count}")
    if not text:
        problems.append("text must be at least one file or folder; received none")
    raise_if_any(problems, "trim_vocabulary")
    check_directory(output, MODEL_KIND, overwrite=overwrite)
    model = local(model)
    check_inputs(output, (model, keep, *text, *dev_text))
    whole = read_directory(model)
    if whole.vocabulary is None:
        raise UserError(
            f"trimming needs a model directory with a tokenizer; {model} has none; add its vocabulary files"
        )
    tokens, required = whole.vocabulary.tokens(), required_ids(whole.vocabulary)
    if keep is not None:
        required += listed_ids(read_tokens(keep), tokens, str(keep))
    before = open_tokenizer(whole.vocabulary, "text")
    counted = paragraphs_of(text, lambda index: bool(dev_text) or index % MEASURED_EVERY != MEASURED_EVERY - 1)
    counts = _count_tokens(before, counted)
    parts = merged_from(whole.vocabulary)
    kept_ids = chosen_ids(counts.tolist(), required, parts, keep_top=keep_top, min_count=min_count)
    with tempfile.TemporaryDirectory(prefix="pocketbert-trim-") as folder:
        vocabulary = write_trimmed(whole.vocabulary, kept_ids, Path(folder))
        measured = paragraphs_of(
            dev_text or text, lambda index: bool(dev_text) or index % MEASURED_EVERY == MEASURED_EVERY - 1
        )
        differences = _compare(before, open_tokenizer(vocabulary, "text"), np.array(kept_ids), measured)
        tensors = _write_model(whole, kept_ids, vocabulary, output, overwrite=overwrite)
    sizes = [sum(int(array.size) for array in arrays.values()) for arrays in (whole.tensors, tensors)]
    return TrimResult(
        tokens=(len(tokens), len(kept_ids)),
        parameters=(sizes[0], sizes[1]),
        weight_bytes=(4 * sizes[0], 4 * sizes[1]),
        **differences,
    )


def used_tokens(vocabulary: Vocabulary, encoded_ids: np.ndarray) -> list[int]:
    """Returns ascending ids for a trimmed vocabulary: the texts' tokens, and those that every vocabulary keeps.

    Args:
      vocabulary: the whole vocabulary.
      encoded_ids: token ids, int32 [tokens].
    """
    counts = np.bincount(encoded_ids, minlength=len(vocabulary.tokens()))
    required, parts = required_ids(vocabulary), merged_from(vocabulary)
    return chosen_ids(counts.tolist(), required, parts, keep_top=None, min_count=None)


def write_trimmed_model(model: str | os.PathLike[str], kept_ids: Sequence[int], output: str | os.PathLike[str]) -> None:
    """Writes a model directory with only some tokens and their embedding rows.

    Args:
      model: model directory with a tokenizer.
      kept_ids: ascending ids from `used_tokens`.
      output: model directory to create or replace.
    """
    whole = read_directory(model)
    assert whole.vocabulary is not None
    with tempfile.TemporaryDirectory(prefix="pocketbert-trim-") as folder:
        vocabulary = write_trimmed(whole.vocabulary, kept_ids, Path(folder))
        _write_model(whole, kept_ids, vocabulary, output, overwrite=True)


def _write_model(
    whole: ModelDirectory,
    kept_ids: Sequence[int],
    vocabulary: Vocabulary,
    output: str | os.PathLike[str],
    *,
    overwrite: bool,
) -> dict[str, np.ndarray]:
    """Writes the model directory; returns its tensors."""
    config = whole.config.replace(
        vocab_size=len(kept_ids), pad_token_id=int(np.searchsorted(kept_ids, whole.config.pad_token_id))
    )
    per_token = per_token_weights(whole.tasks)
    tensors = {path: array[list(kept_ids)] if path in per_token else array for path, array in whole.tensors.items()}
    write_directory(output, config, whole.tasks, tensors, vocabulary, overwrite=overwrite)
    return tensors


def paragraphs_of(paths: Iterable[str | os.PathLike[str]], chosen: Callable[[int], bool]) -> Iterator[str]:
    """Yields all texts' paragraphs with a chosen running number."""
    index = 0
    for path in paths:
        for document in read_documents(path):
            for paragraph in document.paragraphs:
                if chosen(index):
                    yield paragraph
                index += 1


def _count_tokens(tokenizer: Tokenizer, paragraphs: Iterable[str]) -> np.ndarray:
    """Counts each token's occurrences, int64 [tokens]."""
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for batch in batches_of(paragraphs, "counting tokens"):
        counts += np.bincount(tokenizer.tokenize(batch).flat_values.numpy(), minlength=len(counts))
    if not counts.any():
        raise UserError("text must have at least two paragraphs, one to count and one to measure; received fewer")
    return counts


def _compare(before: Tokenizer, after: Tokenizer, kept_ids: np.ndarray, paragraphs: Iterable[str]) -> dict[str, Any]:
    """Compares both tokenizers on sentences; see `TrimResult`."""
    sentences = same_sentences = same_tokens = 0
    totals, unknown = [0, 0], [0, 0]
    for batch in batches_of(
        (split_sentence for text in paragraphs for split_sentence in split_sentences(text)), "comparing sentences"
    ):
        rows = []
        for side, (tokenizer, ids) in enumerate(((before, np.arange(before.vocab_size)), (after, kept_ids))):
            split = tokenizer.tokenize_with_offsets(batch)
            values = ids[split.ids.flat_values.numpy()]
            totals[side] += len(values)
            unknown[side] += int((values == before.unk_token_id).sum())
            places = np.stack([values, split.starts.flat_values.numpy(), split.ends.flat_values.numpy()], axis=1)
            rows.append(np.split(places, split.ids.row_splits.numpy()[1:-1]))
        for one, other in zip(*rows, strict=True):
            same_sentences += np.array_equal(one, other)
            same_tokens += len({*map(tuple, one.tolist())} & {*map(tuple, other.tolist())})
        sentences += len(batch)
    if not totals[0]:
        raise UserError(
            f"the measurement needs at least {MEASURED_EVERY} paragraphs of text; received fewer; give dev_text"
        )
    return {
        "sentences": sentences,
        "same_sentences": same_sentences / sentences,
        "same_tokens": same_tokens / totals[0],
        "unknown_tokens": (unknown[0] / totals[0], unknown[1] / totals[1]),
    }


def batches_of(items: Iterable[str], description: str) -> Iterator[list[str]]:
    """Yields lists of up to 1,000 texts, with a progress bar."""
    batch: list[str] = []
    with contextlib.closing(progress.bar(None, description, "text")) as bar:
        for item in items:
            batch.append(item)
            if len(batch) == _BATCH:
                yield batch
                bar.update(len(batch))
                batch = []
        if batch:
            yield batch
            bar.update(len(batch))
