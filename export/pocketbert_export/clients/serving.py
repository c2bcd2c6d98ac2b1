"""Write a SavedModel that takes texts, for TF Serving: tokenizer and network in one graph."""

from __future__ import annotations

import os

import tensorflow as tf

from pocketbert import output_folders as outputs
from pocketbert.configs import TaskConfig
from pocketbert.encoder import INPUT_NAMES
from pocketbert.errors import UserError
from pocketbert.layers.embeddings import padding_after_texts
from pocketbert.model import Model
from pocketbert.notation import argument
from pocketbert.tasks.registry import get_task
from pocketbert_export.clients.mediapipe_files import CLIENTS
from pocketbert_export.tflite.signatures import DEFAULT_SIGNATURE, check_lengths
from pocketbert_runtime.heads_config import described_heads
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

PAIRS_SIGNATURE = "pairs"


def check_servable(task: TaskConfig | None, vocabulary: Vocabulary | None) -> None:
    """Raises a `UserError` unless a graph can hold the WordPiece tokenizer and answer texts as a whole."""
    if vocabulary is None:
        raise UserError("a SavedModel that takes texts needs a vocabulary; received a model without; add its vocab.txt")
    vocabulary.require_wordpiece("a SavedModel that takes texts")
    vocabulary.require_no_added("a SavedModel that takes texts", f"use {_ids()}")
    if task is not None and task.tasks:
        raise UserError(f"a SavedModel that takes texts has one head; received {described_heads(task)}; use {_ids()}")
    if task is not None and (get_task(task).per_token or get_task(task).needs_pairs):
        raise UserError(
            f"a SavedModel that takes texts needs one answer per text; received {task.kind}, which answers with places "
            f"in the text; use {_ids()}"
        )


def _ids() -> str:
    return argument("saved_model_inputs", "ids", python="write_saved_model(…)")


def write_serving_model(
    model: Model,
    path: str | os.PathLike[str],
    max_length: int,
    *,
    overwrite: bool = False,
    group: outputs.Together | None = None,
) -> None:
    """Writes the SavedModel, completely or not at all.

    `serving_default` maps `text`, string `[batch]`, to the model's outputs by name, float32 `[batch, ...]`. For classes
    it adds `scores`: softmax of the logits, or sigmoids for `multi_label`. Models with two segments also have the
    signature `pairs` with the inputs `text` and `pair`. A batch is padded to its longest text. An embedding's default
    prompt precedes each text.

    Args:
      model: a model with a WordPiece tokenizer, optimized or not.
      path: output folder.
      max_length: maximum sequence length in tokens; longer texts are truncated.
      overwrite: replace an existing folder.
      group: see `pocketbert.output_folders.new_directory`.
    Raises:
      UserError: `path` exists, or the model or the length is unsuitable.
    """
    check_servable(model.task, model.tokenizer and model.tokenizer.vocabulary)
    (max_length,) = check_lengths([max_length], model.config)
    module = _Serving(model, max_length)
    signatures = {DEFAULT_SIGNATURE: module.answer.get_concrete_function()}
    if model.config.type_vocab_size > 1 and not module.prompt:
        signatures[PAIRS_SIGNATURE] = module.answer_pairs.get_concrete_function()
    with outputs.new_directory(path, outputs.SAVED_MODEL_KIND, overwrite=overwrite, group=group) as folder:
        tf.saved_model.save(module, str(folder), signatures=signatures)


class _Serving(tf.Module):
    """Tokenizer and variables; saving the Keras object would trace every layer again."""

    def __init__(self, model: Model, max_length: int) -> None:
        super().__init__()
        tokenizer, task = model.tokenizer, model.task
        self.weights, self.tokenizer = list(model.variables), tokenizer
        self.prompt = task.embedding.prompt if task is not None and task.embedding is not None else ""
        operator = CLIENTS[task.kind].operator if task is not None and task.kind in CLIENTS else ""
        texts = tf.TensorSpec([None], tf.string, name="text")
        pairs = tf.TensorSpec([None], tf.string, name="pair")

        def run(text: tf.Tensor, pair: tf.Tensor | None) -> dict[str, tf.Tensor]:
            assert tokenizer is not None
            inputs = tokenizer(text, pair, max_length=max_length)
            with padding_after_texts(model):
                answers = dict(model({name: inputs[name] for name in INPUT_NAMES}, training=False))
            if operator:
                function = tf.nn.softmax if operator == "SOFTMAX" else tf.math.sigmoid
                answers["scores"] = function(answers["logits"])
            return answers

        def answer(text: tf.Tensor) -> dict[str, tf.Tensor]:
            return run(tf.strings.join([self.prompt, text]) if self.prompt else text, None)

        def answer_pairs(text: tf.Tensor, pair: tf.Tensor) -> dict[str, tf.Tensor]:
            return run(text, pair)

        self.answer = tf.function(answer, input_signature=[texts])
        self.answer_pairs = tf.function(answer_pairs, input_signature=[texts, pairs])
