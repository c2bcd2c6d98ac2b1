"""Open a bundle, run its file with LiteRT, and predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pocketbert_runtime.answers.classification import ClassAnswers
from pocketbert_runtime.answers.inputs import as_inputs
from pocketbert_runtime.answers.multi_label import LabelAnswers
from pocketbert_runtime.answers.table import answers_of
from pocketbert_runtime.bundles.bundle_forward import BundleForward
from pocketbert_runtime.bundles.description import (
    BUNDLE_FILE,
    MODEL_FILE,
    Description,
    file_problems,
    read_description,
    required_files,
    signature_name,
)
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

    Args:
      directory: the folder.
      description: content of `bundle.json`.
    Attributes:
      directory: the folder.
      model_path: path to the `.tflite` file.
      task: the head's task; None for a bare encoder. With separate pairs, the encoder's task, embedding.
      pair_task: task of the head on separate pairs (`pair_head`); None for other bundles.
      recipe: the recipe's name.
      lengths: sequence lengths in tokens, ascending.
      output_names: every signature's outputs.
      output_type: the outputs' type in the file; `run` returns float32.
      vocabulary: the tokenizer's files and options.
    """

    def __init__(self, directory: Path, description: Description) -> None:
        self.directory = directory
        self.model_path = directory / MODEL_FILE
        self.task, self.pair_task = description.task, description.pair_task
        self.recipe, self.lengths = description.recipe, description.lengths
        self.output_names, self.output_type = description.output_names, description.output_type
        self.vocabulary = description.vocabulary

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Opens a bundle and checks all files against their digests.

        Args:
          path: the folder.
        Raises:
          UserError: lists every missing or damaged file; or `bundle.json` is damaged, or of another version.
        """
        directory = Path(path)
        description = read_description(directory)
        required = required_files(
            description.vocabulary,
            has_labels=bool(description.task and description.task.labels),
            has_pairs=description.pair_task is not None,
        )
        problems = file_problems(directory, description.files, required)
        if problems:
            problems.append("export it again, or copy all its files")
        raise_if_any(problems, f"bundle {directory}")
        return cls(directory, description)

    def __repr__(self) -> str:
        answered = self.pair_task or self.task
        task = "no task" if answered is None else described_task(answered)
        lengths = ", ".join(map(str, self.lengths))
        size = f"{self.model_path.stat().st_size / 1e6:.1f} MB" if self.model_path.exists() else "no file"
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
            runner = self._interpreter.get_signature_runner(signature)
            answers = [
                real_outputs(runner, runner(**{name: array[row : row + 1] for name, array in arrays.items()}))
                for row in range(rows)
            ]
            return {name: np.concatenate([answer[name] for answer in answers]) for name in self.output_names}
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
          UserError: the bundle has no task, the inputs mix texts and pairs, or an output is not finite.
        """
        texts = as_inputs(inputs)
        return self.predictor().predict(inputs if texts is None else texts, **options)

    def predict_proba(self, inputs: Sequence[Any]) -> np.ndarray:
        """Returns label probabilities, float64 `[n, labels]`, in the order in labels.txt.

        Args:
          inputs: texts or text pairs, as for `predict`.
        Raises:
          UserError: see `predict`; or the answers are not labels.
        """
        texts, predictor = as_inputs(inputs), self.predictor()
        task = predictor.task
        if not isinstance(task, ClassAnswers | LabelAnswers):
            raise UserError(f"predict_proba is for classes or labels of a text; received {task.kind}; call predict")
        return task.probabilities(predictor.logits(inputs if texts is None else texts))

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
        forward = BundleForward(self.run, self.lengths, self.tokenizer.pad_token_id, task)
        return PairForward(forward, self.directory / HEAD_FILE) if is_separate(config) else forward

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, created on first use."""
        return open_tokenizer(self.vocabulary)

    @cached_property
    def _interpreter(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter(model_path=str(self.model_path), num_threads=1)


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
