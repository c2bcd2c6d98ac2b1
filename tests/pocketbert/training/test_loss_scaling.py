"""Training in float16: scaled losses, skipped updates, and resumed runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_finetuning
import tiny_pretraining
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.configs import TaskConfig
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.distribution import precision_policy
from pocketbert.training.finetune import finetune
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.loss_scaling import apply_gradients, loss_scale_state
from pocketbert.training.objectives.finetuning import Finetuning, finetuning_stage
from pocketbert.training.step import TrainingModel

CONFIG = FinetuneConfig(learning_rate=1e-2, epochs=2, batch_size=16, max_length=23, **PUBLISHED_HEAD)
RUN = RunConfig(precision="float16", seed=5, checkpoint_seconds=0.0)
TASK = TaskConfig(kind="classification", labels=("low", "high"), dropout=0.0)
# Micikevicius et al. 2018 and Keras: the scale at the start, and updates until it doubles.
FIRST_SCALE, GROWTH = 2.0**15, 2000


def training_model(precision: str, weight: float = 1.0, parts: int = 1) -> TrainingModel:
    """A model without dropout, whose loss is multiplied by `weight`."""
    with precision_policy(precision):
        config = tiny.BERT.replace(hidden_dropout=0.0, attention_dropout=0.0, initializer_range=0.1)
        stage = replace(finetuning_stage(CONFIG, TASK), weights={"labels": weight}, batch_size=3, micro_batches=parts)
        model = TrainingModel(pb.from_preset(config, TASK, seed=3), Finetuning(), stage)
        model.compile(optimizer=tf_keras.optimizers.SGD(1.0))
        return model


def batch() -> dict[str, tf.Tensor]:
    return {**tiny.batch(tiny.BERT), "labels": tf.constant([1, 0, 1])}


def steps_of_sgd(model: TrainingModel) -> dict[str, np.ndarray]:
    """Change of each weight in one step with the rate 1: its gradient."""
    before = {name: variable.numpy() for name, variable in model.named_variables().items()}
    results = tf.function(model.update, autograph=False)(batch())
    assert results.get("skipped", 0.0) == 0.0
    return {name: before[name] - variable.numpy() for name, variable in model.named_variables().items()}


@pytest.mark.one_of_each("6.103515625e-05-1", "6.103515625e-05-3")
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("weight", [1.0, 2.0**-14])
def test_unscaled_gradients_are_those_of_float32(weight: float, parts: int) -> None:
    # Without a scale, gradients of the small weight would lie below 2^-25 and become 0.
    steps = [steps_of_sgd(training_model(precision, weight, parts)) for precision in ("float32", "float16")]
    norm = np.sqrt(sum(np.sum(np.square(step, dtype=np.float64)) for step in steps[0].values()))
    assert norm > 0.1 * weight
    for name, expected in steps[0].items():
        error = np.linalg.norm(steps[1][name] - expected)
        # Each of about 100 operations between a weight and the loss, forwards and backwards, rounds by up to 2^-11; the
        # roundings are independent. A weight of order 0.1 and a step of 2^-14 of it round by 2^-24 each in float32.
        rounding = 2.0**-24 * np.sqrt(expected.size)
        assert error <= 10 * 2.0**-11 * (np.linalg.norm(expected) + 0.1 * norm) + rounding, name


def test_scale_follows_the_paper() -> None:
    model = training_model("float16")
    optimizer, state = model.optimizer, loss_scale_state(model.optimizer)
    variables = list(model.trained_variables().values())
    scale, counter = FIRST_SCALE, GROWTH - 3
    state["loss_scale/updates"].assign(counter)
    for is_finite in (True, True, True, True, False, False, True, False):
        counter = counter + 1 if is_finite else 0
        if not is_finite:
            scale /= 2
        elif counter == GROWTH:
            scale, counter = 2 * scale, 0
        before = [variable.numpy() for variable in variables]
        gradients = [tf.fill(variable.shape, 0.25 if is_finite else np.inf) for variable in variables]
        skipped = apply_gradients(optimizer, list(zip(gradients, variables, strict=True)))["skipped"]
        assert float(skipped) == (not is_finite)
        assert float(state["loss_scale/scale"]) == scale and int(state["loss_scale/updates"]) == counter
        for old, variable in zip(before, variables, strict=True):
            np.testing.assert_array_equal(variable.numpy(), old - (0.25 if is_finite else 0.0))


def data() -> pb.TaskData:
    train, dev = tiny_finetuning.examples(50, seed=0), tiny_finetuning.examples(20, seed=1)
    return pb.TaskData(task=tiny_finetuning.TASK, train=train, dev=dev)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]


class Stop(tf_keras.callbacks.Callback):
    """Ends the process's part of a run in its third step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2:
            raise KeyboardInterrupt


def test_overflow_skips_updates_and_resumes(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In a batch of 16, the derivative of the loss in a logit is up to 1/16; scaled by 2^20, it overflows 65,504. Others
    # overflow earlier.
    monkeypatch.setattr("tf_keras.src.mixed_precision.loss_scale_optimizer._DEFAULT_INITIAL_SCALE", 2.0**22)
    result = finetune(start, data(), tmp_path / "whole", config=CONFIG, run=RUN)
    skipped = result.skipped_steps
    assert result.steps == 8 and skipped is not None and 2 < skipped < 8
    train = [line for line in lines(tmp_path / "whole") if line["split"] == "train"]
    assert sum(line["skipped"] for line in train) == skipped and train[-1]["loss_scale"] == 2.0 ** (22 - skipped)
    assert f"skipped {int(train[0]['skipped'])} updates, at step 1, 2, " in capsys.readouterr().err
    tensors = load_file(tmp_path / "whole" / "model" / "model.safetensors")
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float32)}
    with pytest.raises(KeyboardInterrupt):
        finetune(start, data(), tmp_path / "parts", config=CONFIG, run=RUN, callbacks=[Stop()])
    with pytest.raises(UserError, match="other options: precision='float16', received 'bfloat16'"):
        finetune(start, data(), tmp_path / "parts", config=CONFIG, run=replace(RUN, precision="bfloat16"))
    resumed = finetune(start, data(), tmp_path / "parts", config=CONFIG, run=RUN)
    assert "resuming after step 2" in capsys.readouterr().err
    assert resumed.skipped_steps == skipped and lines(tmp_path / "parts") == lines(tmp_path / "whole")
    for name, array in load_file(tmp_path / "parts" / "model" / "model.safetensors").items():
        np.testing.assert_array_equal(array, tensors[name])


def test_overflow_without_a_scale_ends_the_run(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tf_keras.src.mixed_precision.loss_scale_optimizer._DEFAULT_INITIAL_SCALE", 2.0)
    loss = Finetuning.loss
    monkeypatch.setattr(Finetuning, "loss", lambda *values: {name: 1e9 * term for name, term in loss(*values).items()})
    with pytest.raises(TrainingFailed, match="gradients must fit into float16; at step 8 some do not"):
        finetune(start, data(), tmp_path / "run", config=CONFIG, run=RUN)


@pytest.mark.nightly
def test_float16_learns_like_float32(start: Path, tmp_path: Path) -> None:
    config, run = replace(CONFIG, epochs=6), replace(RUN, evaluation_steps=4, dropout=0.0)
    results = [
        finetune(start, data(), tmp_path / name, config=config, run=replace(run, precision=name))
        for name in ("float32", "float16")
    ]
    losses = [
        [line["loss"] for line in lines(tmp_path / name) if line["split"] == "train"] for name in ("float32", "float16")
    ]
    assert len(losses[0]) == 6 and losses[0][-1] < 0.95 * losses[0][0]
    # Each of about 100 operations rounds by up to 2^-11, and Adam divides small gradients by themselves.
    np.testing.assert_allclose(losses[1], losses[0], atol=0.03)
    assert results[0].skipped_steps is None and results[1].skipped_steps == 0


@pytest.mark.nightly
def test_replicas_skip_updates_together(tmp_path: Path) -> None:
    command = [*tiny_pretraining.command_line(tmp_path), "--optimizer=adamw", "--precision=float16", "--dropout=0"]
    for name, options in (("one", []), ("two", ["--distribution=mirrored"])):
        forks.run_killed("step:3", [*command, *options, f"--output={tmp_path / name}"], REPLICAS="2")
    one, two = lines(tmp_path / "one"), lines(tmp_path / "two")
    for received, expected in zip(two, one, strict=True):
        assert received.keys() == expected.keys()
        for name in ("loss", "masked_lm", "skipped", "loss_scale"):
            # Two sums in float16 differ by about 2^-11; Adam carries it on.
            assert received.get(name, 0) == pytest.approx(expected.get(name, 0), rel=0.02)
    assert sum("loss_scale" in line for line in one) > 1


def test_options_that_contradict_float16() -> None:
    with pytest.raises(
        UserError, match="precision=float16 needs GPUs or processors; received it with distribution=tpu"
    ):
        RunConfig(precision="float16", distribution="tpu")
    with pytest.raises(UserError, match="qat needs precision=float32; .* precision=float16"):
        RunConfig(precision="float16", qat="dynamic_wi8")
