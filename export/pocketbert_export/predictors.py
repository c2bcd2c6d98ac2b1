"""Answers to texts, from a model directory or a bundle alike."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.batches import BUCKET_MULTIPLE
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.model import Model, from_pretrained
from pocketbert.progress import bar
from pocketbert.tasks.outputs import output_names
from pocketbert_export.bundle import BUNDLE_FILE, Bundle
from pocketbert_export.length_buckets import Inputs, place
from pocketbert_export.span_predictors import SpanPredictor, bundle_span_predictor, check_finite, model_span_predictor

KINDS = ("classification", "multi_label", "regression")
# Texts tokenized at once, and rows that a model answers at once.
TEXTS_A_CHUNK = 1024
ROWS_A_CALL = 32


class Predictor(abc.ABC):
    """Turns texts into logits. `open_predictor` makes one; questions on paragraphs have a `SpanPredictor`.

    Args:
      task: what the logits mean.
      tokenizer: what turns text into inputs.
      lengths: the numbers of tokens that inputs may be padded to.
    """

    def __init__(self, task: TaskConfig, tokenizer: Any, lengths: Sequence[int]) -> None:
        self.task = task
        self._tokenizer = tokenizer
        self._lengths = tuple(lengths)

    def logits(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, show_progress: bool = False
    ) -> np.ndarray:
        """Answers texts; longer ones are cut to the longest length.

        Args:
          texts: sentences, or the first sentences of pairs.
          pairs: the second sentences, as many, or None.
          show_progress: on stderr.

        Returns:
          float32 `[n, labels]` for classification and multi_label, `[n]` for regression, in the order of the texts.

        Raises:
          UserError: an answer is not finite.
        """
        shape = (len(texts), len(self.task.labels)) if self.task.labels else (len(texts),)
        answers = np.empty(shape, np.float32)
        with bar(len(texts), "predict", "text") if show_progress else _Silent() as progress:
            for first in range(0, len(texts), TEXTS_A_CHUNK):
                chunk = slice(first, first + TEXTS_A_CHUNK)
                encoded = self._tokenizer(
                    list(texts[chunk]), None if pairs is None else list(pairs[chunk]), max_length=self._lengths[-1]
                )
                inputs = {name: np.asarray(encoded[name]) for name in INPUT_NAMES}
                for placed in place(inputs, self._lengths, self._tokenizer.pad_token_id):
                    answers[first + placed.indices] = self._answer(placed.inputs, placed.length)
                    progress.update(len(placed.indices))
        check_finite(answers)
        return answers

    @abc.abstractmethod
    def _answer(self, inputs: Inputs, length: int) -> np.ndarray:
        """Logits of inputs `[n, length]`."""


class ModelPredictor(Predictor):
    """A float model; texts of about the same length are answered together.

    Args:
      model: with one task for texts (`KINDS`), and a tokenizer.
      source: what to call it in messages.

    Raises:
      UserError: it has no such task, or no tokenizer.
    """

    def __init__(self, model: Model, source: str = "the model") -> None:
        task = _check_task(model.task, source)
        _check_tokenizer(model, source)
        longest = model.config.max_position_embeddings
        super().__init__(task, model.tokenizer, [*range(BUCKET_MULTIPLE, longest, BUCKET_MULTIPLE), longest])
        spec = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUT_NAMES}
        # The first task's, which goes by the head's name where several heads give logits.
        output = next(iter(output_names(model.heads).values()))["logits"]
        self._call = tf.function(lambda inputs: model(inputs, training=False)[output], input_signature=[spec])

    def _answer(self, inputs: Inputs, length: int) -> np.ndarray:
        parts = []
        for first in range(0, len(inputs["input_mask"]), ROWS_A_CALL):
            rows = {name: tf.constant(array[first : first + ROWS_A_CALL]) for name, array in inputs.items()}
            parts.append(self._call(rows).numpy())
        return np.concatenate(parts)


class BundlePredictor(Predictor):
    """A bundle on LiteRT; each text goes to the shortest signature that holds it.

    Args:
      bundle: with a task for texts (`KINDS`).

    Raises:
      UserError: it has no such task.
    """

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(_check_task(bundle.task, str(bundle.directory)), bundle.tokenizer(), sorted(bundle.lengths))
        self._bundle = bundle

    def _answer(self, inputs: Inputs, length: int) -> np.ndarray:
        return self._bundle.run(inputs, length)["logits"]


def open_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Opens a model directory or a bundle that answers texts.

    Args:
      path: the folder.

    Raises:
      UserError: it is neither, is damaged, or has no task that predicts.
    """
    return _predictor(_open(path), path)


def open_any_predictor(path: str | os.PathLike[str], **windows: int | None) -> Predictor | SpanPredictor:
    """Opens a model directory or a bundle, for whichever task it has.

    Args:
      path: the folder.
      **windows: fields of `WindowOptions`; only a model that answers questions has a use for them.

    Raises:
      UserError: as `open_predictor`, and windows that do not fit.
    """
    opened = _open(path)
    if opened.task is None or opened.task.kind != "span":
        return _predictor(opened, path)
    if isinstance(opened, Bundle):
        return bundle_span_predictor(opened, **windows)
    _check_tokenizer(opened, str(path))
    return model_span_predictor(opened, **windows)


def open_both(
    model: str | os.PathLike[str], bundle: str | os.PathLike[str], **windows: int | None
) -> tuple[Predictor | SpanPredictor, Predictor | SpanPredictor]:
    """Opens a model directory and its bundle to be compared: both read paragraphs in the same windows.

    Args:
      model: the model directory.
      bundle: made from it; a window is as long as its longest length.
      **windows: as for `open_any_predictor`, but for the length.

    Raises:
      UserError: as there.
    """
    longest = Bundle.open(bundle).lengths[-1]
    return (
        open_any_predictor(model, max_length=longest, **windows),
        open_any_predictor(bundle, max_length=longest, **windows),
    )


def _predictor(opened: Model | Bundle, path: str | os.PathLike[str]) -> Predictor:
    return BundlePredictor(opened) if isinstance(opened, Bundle) else ModelPredictor(opened, str(path))


def _open(path: str | os.PathLike[str]) -> Model | Bundle:
    folder = Path(path)
    if (folder / BUNDLE_FILE).exists():
        return Bundle.open(folder)
    if (folder / "config.json").exists():
        return from_pretrained(folder)
    raise UserError(
        f"a model must be a folder with {BUNDLE_FILE} (a bundle) or config.json (a model directory); received {path}; "
        "pocketbert finetune makes the one, pocketbert export the other"
    )


def sigmoid_of(logits: np.ndarray) -> np.ndarray:
    """The probability of each label on its own, float64, as `logits`."""
    from scipy.special import expit

    return expit(logits.astype(np.float64))


def probabilities_of(logits: np.ndarray) -> np.ndarray:
    """Softmax over classes, float64 `[n, classes]`."""
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _check_tokenizer(model: Model, source: str) -> None:
    if model.tokenizer is None:
        raise UserError(f"{source} must have a vocabulary to read text; it has none; put vocab.txt beside its weights")


def _check_task(task: TaskConfig | None, source: str) -> TaskConfig:
    if task is None or task.kind not in KINDS:
        raise UserError(
            f"{source} must have a task of kind {', '.join(KINDS[:-1])} or {KINDS[-1]} to predict; it has "
            f"{'none' if task is None else task.kind}; fine-tune it first"
        )
    return task


class _Silent:
    """A bar that shows nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, count: int) -> None:
        """Nothing to show."""
