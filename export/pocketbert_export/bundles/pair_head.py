"""Bundles of networks that read the texts of a pair one by one.

`model.tflite` is an encoder that gives a vector for each text, as in a bundle of sentence embeddings, so an app can
keep the vectors of its documents. `head.tflite` has one signature, `head`: two vectors in, the answer for the pair out.
"""

from __future__ import annotations

import dataclasses
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.text_pairs import single_texts
from pocketbert.errors import UserError
from pocketbert.model import Model
from pocketbert.processes import stderr_on_failure
from pocketbert.tasks.classification import MEAN_LENGTH
from pocketbert.tasks.separate_pairs import FEATURES, require_pairs
from pocketbert_runtime.embedding_config import EmbeddingConfig
from pocketbert_runtime.forward import Forward, Outputs
from pocketbert_runtime.rows import TokenRows

HEAD_FILE = "head.tflite"
HEAD_SIGNATURE, FIRST, SECOND = "head", "first", "second"
EMBEDDING = "embedding"


def is_separate(task: TaskConfig | None) -> bool:
    """Whether a network reads the texts of a pair one by one."""
    return task is not None and task.pairs == "separate"


def text_encoder(model: Model) -> Model:
    """The encoder of a network for separate pairs, as a model of sentence embeddings.

    A head on the mean of the tokens reads the unit vector, times 10. A head on the first token reads the output of the
    pooler, or of its own dense layer.
    """
    config, task = model.config, model.tasks[0]
    weights = {path: variable.numpy() for path, variable in model.weights_by_path().items()}
    dense: dict[str, np.ndarray] = {}
    if task.pooling == "mean":
        embedding = EmbeddingConfig(pooling="mean")
    elif config.pooler == "first_token":
        embedding = EmbeddingConfig(pooling="cls", normalize=False)
    else:
        path = "encoder.pooler." if config.pooler == "tanh" else f"heads.{next(iter(model.heads))}.dense."
        dense = {name: weights[path + name] for name in ("kernel", "bias")}
        activation = "tanh" if config.pooler == "tanh" else config.sentence_activation
        embedding = EmbeddingConfig(
            pooling="cls", normalize=False, dimensions=config.hidden_size, dense_activation=activation
        )
    pooler = "first_token" if config.pooler == "first_token" else "none"
    texts = TaskConfig(kind=EMBEDDING, embedding=embedding)
    encoder = Model(config.replace(pooler=pooler), (texts,), model.tokenizer, initialize=False)
    named = {**weights, **{f"heads.{EMBEDDING}.dense.{name}": value for name, value in dense.items()}}
    for path, variable in encoder.weights_by_path().items():
        variable.assign(named[path])
    return encoder


def head_content(model: Model) -> bytes:
    """The content of `head.tflite`, in float32: two vectors of `text_encoder` to the answer for a pair."""
    task, head = model.tasks[0], next(iter(model.heads.values()))
    width = int(head.output_projection.kernel.shape[0]) // FEATURES
    scale = MEAN_LENGTH if task.pooling == "mean" else 1.0

    def answer(first: tf.Tensor, second: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = head.logits(scale * tf.concat([first, second], axis=0), training=False)
        return {"logits": head.answer(logits)[:1]}

    specs = [tf.TensorSpec([1, width], tf.float32, name=name) for name in (FIRST, SECOND)]
    function = tf.function(answer, autograph=False).get_concrete_function(*specs)
    module = tf.Module()
    module.weights = [head.output_projection.kernel, head.output_projection.bias]
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures={HEAD_SIGNATURE: function})
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[HEAD_SIGNATURE])
        with stderr_on_failure():
            return bytes(converter.convert())


def head_parameters(model: Model) -> int:
    """Number of weights in `head.tflite`."""
    projection = next(iter(model.heads.values())).output_projection
    return sum(int(np.prod(weight.shape)) for weight in (projection.kernel, projection.bias))


def unlabelled_texts(pairs: Any) -> Examples:
    """The texts of pairs, one by one, as the encoder reads them."""
    require_pairs(pairs)
    return single_texts(pairs)


class PairForward:
    """A bundle for separate pairs as a `Forward`: the encoder on each text, and the head on both vectors.

    Args:
      texts: runs the encoder.
      path: path of `head.tflite`.
    """

    def __init__(self, texts: Forward, path: Path) -> None:
        self._texts, self._path = texts, path

    def __call__(self, encoded: TokenRows, *, show_progress: bool = False) -> Outputs:
        """Returns the outputs of one or more pairs, by name."""
        rows = dataclasses.replace(encoded, rows_per_example=1)
        return self.head(self._texts(rows, show_progress=show_progress)[EMBEDDING])

    def head(self, vectors: np.ndarray) -> Outputs:
        """The answers for pairs from vectors [2·N, D]; rows 2·i and 2·i + 1 are a pair."""
        answers = [self._answer(*vectors[row : row + 2]) for row in range(0, len(vectors), 2)]
        return {"logits": np.concatenate(answers)}

    def _answer(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        try:
            answer = self._runner(**{FIRST: first[np.newaxis], SECOND: second[np.newaxis]})
        except (KeyError, RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{self._path} must take two vectors; it refused them: {reason}; export it again"
            ) from error
        return np.asarray(answer["logits"])

    @cached_property
    def _runner(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        # The runner does not keep its interpreter.
        self._interpreter = Interpreter(model_path=str(self._path), num_threads=1)
        return self._interpreter.get_signature_runner(HEAD_SIGNATURE)
