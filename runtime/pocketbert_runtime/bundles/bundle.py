"""Open a bundle, run its file with LiteRT, and predict."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from pocketbert_runtime.answers.classification import ClassAnswers
from pocketbert_runtime.answers.embedding import OUTPUT as VECTOR_OUTPUT
from pocketbert_runtime.answers.inputs import as_inputs
from pocketbert_runtime.answers.multi_label import LabelAnswers
from pocketbert_runtime.answers.table import ANSWERS, answers_of
from pocketbert_runtime.bundles.bundle_forward import BundleForward
from pocketbert_runtime.bundles.description import (
    ANSWERS_FILE,
    MODEL_FILE,
    Description,
    file_problems,
    labels_file_problems,
    read_description,
    required_files,
    signature_name,
)
from pocketbert_runtime.bundles.files import BUNDLE_FILE, BundleFiles, bundle_files
from pocketbert_runtime.bundles.golden_answers import (
    MOST_BYTES,
    GoldenLine,
    GoldenReader,
    read_lines,
    shown_problems,
)
from pocketbert_runtime.bundles.interpreters import Interpreters
from pocketbert_runtime.bundles.pair_forward import HEAD_FILE, PairForward, is_separate
from pocketbert_runtime.errors import UserError, raise_if_any
from pocketbert_runtime.forward import Forward
from pocketbert_runtime.predictor import Predictor, fitting_windows
from pocketbert_runtime.task_config import TaskConfig, described_task
from pocketbert_runtime.task_form import TaskForm
from pocketbert_runtime.tokenizers.framing import INPUT_NAMES
from pocketbert_runtime.tokenizers.opening import open_tokenizer

AnyPredictor = TypeVar("AnyPredictor", bound=Predictor)


class Bundle:
    """An opened bundle, run by LiteRT. Create it with `Bundle.open`.

    Several threads may use one bundle at the same time, with the same answers. `threads` bounds the texts at work:
    each has an interpreter of its own; a call waits while all are at work.

    Example:
      ```python
      with Bundle.open("bundle.zip", threads=2) as bundle:
          answers = bundle.predict(texts)
      ```

    Args:
      files: the bundle's files.
      description: content of `bundle.json`.
      threads: see `open`.
      weight_cache: see `open`.
    Attributes:
      directory: the folder or the zip file.
      model_path: path to the `.tflite` file; in a zip file, its name for messages.
      threads: number of texts at work at the same time.
      task: the head's task; None for a bare encoder. With separate pairs, the encoder's task, embedding.
      pair_task: task of the head on separate pairs (`pair_head`); None for other bundles.
      recipe: the recipe's name.
      lengths: sequence lengths in tokens, ascending.
      output_names: every signature's outputs.
      output_type: the outputs' type in the file; `run` returns float32.
      vocabulary: the tokenizer's files and options.
      tolerance: largest difference of a probability, score or vector element from the golden answers; see `check`.
    """

    def __init__(
        self, files: BundleFiles, description: Description, threads: int = 1, weight_cache: bool = False
    ) -> None:
        if type(threads) is not int or threads < 1:
            raise UserError(f"threads must be a whole number from 1; received {threads!r}; pass the number of cores")
        if weight_cache and description.output_type != "float32":
            raise UserError(
                f"a weight cache is for float32 outputs; received {description.output_type}; leave weight_cache out"
            )
        if weight_cache and threads > 1:
            raise UserError(
                f"a weight cache is for one text at a time, because LiteRT's CompiledModel keeps Python's lock; "
                f"received threads={threads}; leave one of both out"
            )
        self.directory, self.threads, self._files = files.path, threads, files
        self.model_path = files.path / MODEL_FILE
        self.task, self.pair_task = description.task, description.pair_task
        self.recipe, self.lengths = description.recipe, description.lengths
        self.output_names, self.output_type = description.output_names, description.output_type
        self.vocabulary, self.tolerance = description.vocabulary, description.tolerance
        self._model = Interpreters(files.model(MODEL_FILE), threads, weight_cache=weight_cache)
        self._head = None if self.pair_task is None else Interpreters(files.model(HEAD_FILE), threads)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threads: int = 1, weight_cache: bool = False) -> Bundle:
        """Opens a bundle and checks all files against their digests.

        Args:
          path: the folder, or a zip file of it; its members are read into memory.
          threads: number of texts that `predict` answers at the same time.
          weight_cache: share packed weights between all lengths, in a temporary file. It needs LiteRT's CompiledModel,
            which answers one text at a time, and float32 outputs.
        Raises:
          UserError: lists every missing or damaged file; or `bundle.json` is damaged, or of another version; or
            labels.txt has other labels; or a name in the zip file is outside the folder.
        """
        files = bundle_files(Path(path))
        description = read_description(files)
        labels = description.task.labels if description.task else ()
        required = required_files(
            description.vocabulary, has_labels=bool(labels), has_pairs=description.pair_task is not None
        )
        problems = file_problems(files, description.files, required) or labels_file_problems(files, labels)
        if problems:
            problems.append("export it again, or copy all its files")
        raise_if_any(problems, f"bundle {files.path}")
        files.keep(required)
        if files.held is not None:
            held = {path.name: files.held[path.name] for path in description.vocabulary.files}
            vocabulary = dataclasses.replace(description.vocabulary, held=held)
            description = dataclasses.replace(description, vocabulary=vocabulary)
        return cls(files, description, threads, weight_cache)

    def close(self) -> None:
        """Frees the memory of interpreters and tokenizer; later calls raise a `UserError`."""
        for interpreters in (self._model, self._head):
            if interpreters is not None:
                interpreters.close()
        self.__dict__.pop("tokenizer", None)
        self._files.keep(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        answered = self.pair_task or self.task
        task = "no task" if answered is None else described_task(answered)
        lengths = ", ".join(map(str, self.lengths))
        stored = self._files.size(MODEL_FILE)
        size = "no file" if stored is None else f"{stored / 1e6:.1f} MB"
        return f"<Bundle {self.directory}: {task}, {self.recipe}, lengths {lengths}, {size}>"

    def signature(self, length: int) -> str:
        """Returns the signature's name for `length` tokens."""
        if length not in self.lengths:
            raise UserError(f"a length must be one of {', '.join(map(str, self.lengths))}; received {length}")
        return signature_name(length)

    def run(self, inputs: Mapping[str, np.ndarray], length: int | None = None) -> dict[str, np.ndarray]:
        """Runs the file, one text at a time, as a phone does; returns outputs by name, float32 `[n, ...]`.

        Args:
          inputs: int32 `[n, length]` by name.
          length: the signature's sequence length; None for the arrays' length.
        Raises:
          UserError: the runtime cannot load the file or rejects these inputs.
        """
        rows, columns = inputs["input_word_ids"].shape
        signature = self.signature(columns if length is None else length)
        try:
            arrays = {name: np.ascontiguousarray(inputs[name], np.int32) for name in INPUT_NAMES}
            with self._model.runner(signature) as runner:
                answers = [
                    real_outputs(runner, runner(**{name: array[row : row + 1] for name, array in arrays.items()}))
                    for row in range(rows)
                ]
            return {name: np.concatenate([answer[name] for answer in answers]) for name in self.output_names}
        except UserError:
            raise
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self.model_path} must run as {BUNDLE_FILE} says; the runtime refused it: {reason}; export it again"
            ) from error

    def predict(self, inputs: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        """Predicts texts, each with the shortest signature that fits; returns one dict per input.

        Example:
          ```python
          bundle.predict(["a charming journey"])  # [{"label": "positive", "probabilities": {…}}]
          ```

        Args:
          inputs: texts, pairs of texts, or pairs of question and paragraph. Texts longer than the longest signature are
            truncated; paragraphs are read in windows.
          **options: options for the task's `predict`: `top_k` for classes, `n_best` for questions, `soft_labels`; see
            `Predictor.predict`.
        Raises:
          UserError: the bundle has no task, the inputs are no list or mix texts and pairs, or an output is not finite.
        """
        texts = _listed(inputs)
        return self.predictor().predict(texts, **options)

    def predict_proba(self, inputs: Sequence[Any]) -> np.ndarray:
        """Returns label probabilities, float64 `[n, labels]`, in the order in labels.txt.

        Args:
          inputs: texts or text pairs, as for `predict`.
        Raises:
          UserError: see `predict`; or the answers are not labels.
        """
        texts, predictor = _listed(inputs), self.predictor()
        task = predictor.task
        if not isinstance(task, ClassAnswers | LabelAnswers):
            raise UserError(f"predict_proba is for classes or labels of a text; received {task.kind}; call predict")
        return task.probabilities(predictor.logits(texts))

    def check(self) -> None:
        """Compares ids, offsets and answers with the golden ones in `answers.jsonl`.

        Call it once in the environment of your app: another runtime or processor sums in another order.

        Raises:
          UserError: names the lines with other ids or offsets, with a number that differs by more than `tolerance`, or
            with another label or span, unless two choices nearly tie; or `answers.jsonl` is damaged.
        """
        problems = self.golden_problems()
        raise_if_any(shown_problems(problems), f"bundle {self.directory} must give its golden answers; {ANSWERS_FILE}")

    def golden_problems(self) -> list[str]:
        """Lists the golden lines that differ; see `check`."""
        self._model.require_open()
        return self.golden_reader().problems(self.golden_lines, self.tolerance)

    def golden_reader(self) -> GoldenReader:
        """Returns what encodes and answers golden texts as `predict` does."""
        config = self.pair_task or self.task
        if config is None or config.kind not in ANSWERS:
            return GoldenReader(None, self.tokenizer, self.lengths[-1])
        predictor = self.predictor()
        return GoldenReader(predictor.task, self.tokenizer, predictor.max_length, predictor.forward)

    @cached_property
    def golden_lines(self) -> tuple[GoldenLine, ...]:
        """The lines of `answers.jsonl`, read on first use; raises a `UserError` if the file is damaged."""
        return read_lines(self._files.read(ANSWERS_FILE, MOST_BYTES), self.directory / ANSWERS_FILE)

    def predictor(self, **windows: int | None) -> Predictor:
        """Returns a predictor.

        Args:
          **windows: `max_length`, up to the longest signature, and the task's `window_options`.
        Raises:
          UserError: the bundle's task predicts nothing, or no signature fits the window.
        """
        config = self.pair_task or self.task
        return self._predictor(config, answers_of(config, str(self.directory)), windows, Predictor)

    def _predictor(
        self,
        config: TaskConfig | None,
        task: TaskForm,
        windows: dict[str, int | None],
        make: Callable[..., AnyPredictor],
    ) -> AnyPredictor:
        """Returns a predictor from `make` for a task; for `config` see `forward`."""
        self._model.require_open()
        names = (VECTOR_OUTPUT,) if is_separate(config) else task.output_names
        if missing := [name for name in names if name not in self.output_names]:
            raise UserError(
                f"{self.directory / BUNDLE_FILE} must have the output {missing[0]} for {task.kind}; received "
                f"{', '.join(self.output_names)}; export the bundle again"
            )
        longest = task.max_length(self.lengths[-1])
        room = f"the bundle's longest length, {longest}"
        max_length, windows = fitting_windows(task, windows, longest, longest, room)
        return make(task, self.forward(config, task), self.tokenizer, max_length, **windows)

    def forward(self, config: TaskConfig | None, task: TaskForm) -> Forward:
        """Returns a call that runs token rows.

        Args:
          config: `task` for `model.tflite`'s outputs, `pair_task` for `head.tflite`'s.
          task: the task with this configuration.
        """
        forward = BundleForward(self.run, self.lengths, self.tokenizer.pad_token_id, task, self.threads)
        if self._head is None or not is_separate(config):
            return forward
        return PairForward(forward, self._head, self.directory / HEAD_FILE)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, created on first use."""
        return open_tokenizer(self.vocabulary)


def _listed(inputs: Any) -> list[Any]:
    """Returns inputs for `predict` in a list; raises a `UserError` for a dict, a table and other objects."""
    texts = as_inputs(inputs)
    if texts is not None:
        return texts
    # The keys of a dict are strings, too, and so are the names of a table's columns.
    if isinstance(inputs, Mapping) or not isinstance(inputs, Iterable) or getattr(inputs, "ndim", 1) != 1:
        received = type(inputs).__name__
        raise UserError(f"predict takes a list of texts; received an object of type {received}; put it into a list")
    return list(inputs)


def real_outputs(runner: Any, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns a signature's outputs in float32: int8 outputs stand for (value - zero point) * scale."""
    if all(values.dtype == np.float32 for values in outputs.values()):
        return outputs
    details = runner.get_output_details()
    real = {}
    for name, values in outputs.items():
        scale, zero_point = details[name]["quantization"]
        real[name] = np.float32(scale) * (values.astype(np.float32) - np.float32(zero_point))
    return real
