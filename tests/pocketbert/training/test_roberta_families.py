"""RoBERTa and XLM-R train like transformers' classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig

transformers = pytest.importorskip("transformers")

# Without dropout, whose random numbers differ between the libraries.
XLM_R = tiny.ROBERTA.replace(model_type="xlm-roberta", num_layers=2, hidden_dropout=0.0, attention_dropout=0.0)
TASK = TaskConfig(kind="classification", labels=("no", "perhaps", "yes"), dropout=0.0)
LABELS = tf.constant([2, 0, 1])
STEPS, LEARNING_RATE = 5, 0.05


def test_five_steps_equal_transformers(tmp_path: Path) -> None:
    model = pb.from_preset(XLM_R, task=[TASK], seed=4)
    model.save_pretrained(tmp_path / "before")
    inputs = tiny.batch(XLM_R)
    model.compile(tf_keras.optimizers.SGD(LEARNING_RATE))
    losses = model.fit(inputs, LABELS, batch_size=3, epochs=STEPS, shuffle=False, verbose=0).history["loss"]

    expected, expected_change = _their_losses(tmp_path / "before", inputs)
    # 2e-5 is what two correct float32 implementations reach at these sizes; five short steps do not enlarge it.
    np.testing.assert_allclose(losses, expected, rtol=0, atol=2e-5)
    assert losses[-1] < 0.7 * losses[0]

    model.save_pretrained(tmp_path / "after")
    content = json.loads((tmp_path / "after/config.json").read_text())
    assert content["model_type"] == "xlm-roberta"
    assert content["architectures"] == ["XLMRobertaForSequenceClassification"]
    logits = expected_change(_their_inputs(inputs)).logits
    np.testing.assert_allclose(model(inputs)["logits"], logits, rtol=0, atol=2e-5)


def _their_inputs(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    return {"input_ids": inputs["input_word_ids"], "attention_mask": inputs["input_mask"]}


def _their_losses(path: Path, inputs: dict[str, tf.Tensor]) -> tuple[list[float], tf_keras.Model]:
    """The losses before each step of gradient descent, by hand, and the trained model."""
    model = transformers.TFXLMRobertaForSequenceClassification(transformers.AutoConfig.from_pretrained(path))
    stored = load_file(path / "model.safetensors")
    model = transformers.modeling_tf_pytorch_utils.load_pytorch_state_dict_in_tf2_model(model, stored)
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            logits = model(_their_inputs(inputs), training=True).logits
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits))
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(LEARNING_RATE * tf.convert_to_tensor(gradient))
        losses.append(float(loss))
    return losses, model
