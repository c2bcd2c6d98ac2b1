"""Make the files in bundles for separate pairs; see `pocketbert_runtime.bundles.pair_forward`."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from pocketbert.checkpoints.families.registry import family_of
from pocketbert.configs import TaskConfig
from pocketbert.data.examples import Examples
from pocketbert.data.readers.text_pairs import single_texts
from pocketbert.model import Model
from pocketbert.processes import stderr_on_failure
from pocketbert.tasks.classification import MEAN_LENGTH
from pocketbert.tasks.separate_pairs import FEATURES, require_pairs
from pocketbert_runtime.answers.embedding import OUTPUT
from pocketbert_runtime.bundles.pair_forward import FIRST, HEAD_SIGNATURE, SECOND
from pocketbert_runtime.embedding_config import EmbeddingConfig


def text_encoder(model: Model) -> Model:
    """Returns the encoder from a network for separate pairs, as a model for sentence embeddings.

    A head on the tokens' mean reads the unit vector, times 10. A head on the first token reads the output from the
    pooler or its own dense layer.
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
        activation = "tanh" if config.pooler == "tanh" else family_of(config.model_type).head_activation
        embedding = EmbeddingConfig(
            pooling="cls", normalize=False, dimensions=config.hidden_size, dense_activation=activation
        )
    pooler = "first_token" if config.pooler == "first_token" else "none"
    texts = TaskConfig(kind=OUTPUT, embedding=embedding)
    encoder = Model(config.replace(pooler=pooler), (texts,), model.tokenizer, initialize=False)
    named = {**weights, **{f"heads.{OUTPUT}.dense.{name}": value for name, value in dense.items()}}
    for path, variable in encoder.weights_by_path().items():
        variable.assign(named[path])
    return encoder


def head_content(model: Model) -> bytes:
    """Returns the content for `head.tflite`, in float32: from two `text_encoder` vectors to the pair's answer."""
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
    """Counts the weights in `head.tflite`."""
    projection = next(iter(model.heads.values())).output_projection
    return sum(int(np.prod(weight.shape)) for weight in (projection.kernel, projection.bias))


def unlabelled_texts(pairs: Any) -> Examples:
    """Returns the texts from pairs, one by one, as the encoder reads them."""
    require_pairs(pairs)
    return single_texts(pairs)
