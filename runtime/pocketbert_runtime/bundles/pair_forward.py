"""Bundles for networks that read the texts in a pair one by one.

`model.tflite` is an encoder with a vector for each text, as in a bundle for sentence embeddings, so an app can keep its
documents' vectors. `head.tflite` has one signature, `head`: two vectors in, the pair's answer out.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from pocketbert_runtime.answers.embedding import OUTPUT
from pocketbert_runtime.bundles.interpreters import Interpreters
from pocketbert_runtime.errors import UserError
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.rows import TokenRows
from pocketbert_runtime.task_config import TaskConfig

HEAD_FILE = "head.tflite"
HEAD_SIGNATURE, FIRST, SECOND = "head", "first", "second"


def is_separate(task: TaskConfig | None) -> bool:
    """Whether a network reads the texts in a pair one by one."""
    return task is not None and task.pairs == "separate"


class PairForward:
    """A bundle for separate pairs as a `Forward`: the encoder on each text, and the head on both vectors.

    Args:
      texts: runs the encoder.
      head: interpreters of `head.tflite`.
      path: path to `head.tflite`, for messages.
    """

    def __init__(self, texts: Forward, head: Interpreters, path: Path) -> None:
        self._texts, self._head, self._path = texts, head, path

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs for one or more pairs, by name."""
        rows = dataclasses.replace(encoded, rows_per_example=1)
        return self.head(self._texts(rows, show_progress=show_progress)[OUTPUT])

    def head(self, vectors: np.ndarray) -> Outputs:
        """Answers pairs from vectors [2·N, D]; rows 2·i and 2·i + 1 are a pair."""
        answers = [self._answer(*vectors[row : row + 2]) for row in range(0, len(vectors), 2)]
        return {"logits": np.concatenate(answers)}

    def _answer(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        try:
            with self._head.runner(HEAD_SIGNATURE) as runner:
                answer = runner(**{FIRST: first[np.newaxis], SECOND: second[np.newaxis]})
        except UserError:
            raise
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self._path} must take two vectors; it refused them: {reason}; export it again"
            ) from error
        return np.asarray(answer["logits"])
