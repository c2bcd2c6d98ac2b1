"""Keras callbacks in finetune, distill and pretrain."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_pretraining
import toy_method

import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.data.task_data import TaskData
from pocketbert.errors import UserError
from pocketbert.training import trainer
from pocketbert.training.callbacks import RunCallbacks
from pocketbert.training.config import FinetuneConfig, RunConfig
from pocketbert.training.distribution import Distribution
from pocketbert.training.grids.published import PUBLISHED_HEAD
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.state import write_checkpoint

pytestmark = pytest.mark.usefixtures("eager_module")
# 24 examples in batches of 8: 3 steps per epoch, evaluated after each epoch because of the patience.
CONFIG = FinetuneConfig(**PUBLISHED_HEAD, epochs=3, batch_size=8, max_length=23, learning_rate=1e-2)
RUN = RunConfig(seed=5, patience=9, checkpoint_seconds=0.0)


class Recorder(tf_keras.callbacks.Callback):
    """Notes every event with its number and logs."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, Any, dict[str, float]]] = []

    def note(self, name: str, number: Any, logs: Any) -> None:
        assert all(type(value) is float for value in logs.values())
        assert isinstance(self.model, pb.Model)
        self.events.append((name, number, dict(logs)))

    def on_train_begin(self, logs: Any = None) -> None:
        self.note("train begin", None, logs)

    def on_train_end(self, logs: Any = None) -> None:
        self.note("train end", None, logs)

    def on_stage_begin(self, stage: str, logs: Any = None) -> None:
        self.note("stage begin", stage, logs)

    def on_stage_end(self, stage: str, logs: Any = None) -> None:
        self.note("stage end", stage, logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.note("epoch begin", epoch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.note("epoch end", epoch, logs)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.note("batch begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.note("batch end", batch, logs)

    def named(self, name: str) -> list[tuple[Any, dict[str, float]]]:
        return [(number, logs) for event, number, logs in self.events if event == name]


class Stopper(tf_keras.callbacks.Callback):
    """Ends a stage after the step with a number."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            self.model.stop_training = True


def task_data() -> TaskData:
    train, dev = (tiny_finetuning.examples(count, seed=seed) for seed, count in enumerate((24, 21)))
    return TaskData(task=tiny_finetuning.TASK, train=train, dev=dev)


@pytest.fixture(scope="module")
def plain(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without callbacks."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    pb.finetune(start, task_data(), folder, config=CONFIG, run=RUN)
    return folder


def log_of(folder: Path, split: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if line["split"] == split]


def scalars(folder: Path) -> dict[tuple[str, int], float]:
    values = {}
    for path in folder.iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.HasField("tensor") and value.tensor.dtype == 1:
                    values[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    return values


def assert_same_run(actual: Path, expected: Path) -> None:
    for name in ("model/model.safetensors", "metrics.jsonl"):
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name


def test_events_have_numbers_and_floats(start: Path, plain: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    pb.finetune(start, task_data(), tmp_path / "run", config=CONFIG, run=RUN, callbacks=[recorder])
    assert_same_run(tmp_path / "run", plain)
    epoch = ["epoch begin", *["batch begin", "batch end"] * 3, "epoch end"]
    names = [name for name, *_ in recorder.events]
    assert names == ["train begin", "stage begin", *epoch * 3, "stage end", "train end"]
    assert recorder.named("train begin") == [(None, {"step": 0.0})]
    assert recorder.named("train end") == [(None, {"step": 9.0})]
    assert recorder.named("stage end") == [("", {"step": 9.0})]
    assert [number for number, _ in recorder.named("batch end")] == [*range(3)] * 3
    losses = np.array([logs["loss"] for _, logs in recorder.named("batch end")]).reshape(3, 3)
    ends = recorder.named("epoch end")
    assert [number for number, _ in ends] == [0, 1, 2]
    # The log has the same means.
    assert [line["loss"] for line in log_of(plain, "train")] == pytest.approx(losses.mean(axis=1))
    assert [logs["loss"] for _, logs in ends] == pytest.approx(losses.mean(axis=1), rel=1e-6)
    for (_, logs), line in zip(ends, log_of(plain, "dev"), strict=True):
        assert {name: logs[f"val_{name}"] for name in ("accuracy", "loss")} == {
            name: line[name] for name in ("accuracy", "loss")
        }


@pytest.mark.nightly
@pytest.mark.parametrize("update_freq", ["epoch", 2])
def test_tensorboard_writes_beside_the_log(update_freq: Any, start: Path, plain: Path, tmp_path: Path) -> None:
    board = tf_keras.callbacks.TensorBoard(tmp_path / "board", update_freq=update_freq, profile_batch=0)
    pb.finetune(start, task_data(), tmp_path / "run", config=CONFIG, run=RUN, callbacks=[board])
    assert_same_run(tmp_path / "run", plain)
    board_values = scalars(tmp_path / "board" / "train")
    losses = {step: value for (name, step), value in board_values.items() if name == "epoch_loss"}
    means = [line["loss"] for line in log_of(plain, "train")]
    assert losses == pytest.approx(dict(enumerate(means)), rel=1e-6)
    steps = [] if update_freq == "epoch" else [*range(2, 9, 2)]
    assert [step for name, step in board_values if name == "batch_loss"] == steps
    accuracies = scalars(tmp_path / "board" / "validation")
    assert accuracies["epoch_accuracy", 2] == pytest.approx(log_of(plain, "dev")[2]["accuracy"])
    assert scalars(tmp_path / "run" / "tensorboard") == scalars(plain / "tensorboard")


def test_early_stopping_keeps_the_best_model(start: Path, plain: Path, tmp_path: Path) -> None:
    # No loss falls by 9, so the second epoch is the last one.
    early = tf_keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=9.0, patience=1, restore_best_weights=True)
    result = pb.finetune(start, task_data(), tmp_path / "run", config=CONFIG, run=RUN, callbacks=[early])
    lines = log_of(tmp_path / "run", "dev")
    assert result.steps == 6 and lines == log_of(plain, "dev")[:2]
    assert result.best_step == max(lines, key=lambda line: (line["accuracy"], -line["loss"]))["step"]
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert pb.from_pretrained(result.model_directory).task == result.model.task


@pytest.mark.nightly
def test_stopped_stage_is_evaluated(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder, seen = Recorder(), []
    stop = tf_keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    result = pb.finetune(
        start, task_data(), tmp_path / "run", config=CONFIG, run=RUN, callbacks=[recorder, stop, Stopper(2)]
    )
    assert (result.steps, result.best_step, seen) == (2, 2, [0])
    (line,) = log_of(tmp_path / "run", "dev")
    assert (line["step"], line["accuracy"]) == (2, result.metrics["accuracy"])
    (_, logs) = recorder.named("epoch end")[0]
    assert logs["val_accuracy"] == line["accuracy"]
    assert "stopping after step 2: a callback has set model.stop_training" in capsys.readouterr().err


class Shortener(tf_keras.callbacks.Callback):
    """Ends a stage after some steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def steps_of_stage(self, taken: int, planned: int) -> int:
        """Half of the plan."""
        assert taken <= self._steps < planned
        return self._steps


@pytest.mark.nightly
def test_shortened_stages_have_the_rates_of_short_ones(start: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, warmup_ratio=0.0)
    long, short = (dataclasses.replace(config, epochs=epochs) for epochs in (4, 2))
    pb.finetune(start, task_data(), tmp_path / "short", config=short, run=RUN)
    pb.finetune(start, task_data(), tmp_path / "long", config=long, run=RUN, callbacks=[Shortener(6)])
    for name in ("model/model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "long" / name).read_bytes() == (tmp_path / "short" / name).read_bytes()


@pytest.mark.nightly
def test_shortened_stages_end_within_an_epoch(start: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    result = pb.finetune(
        start, task_data(), tmp_path / "run", config=CONFIG, run=RUN, callbacks=[Shortener(4), recorder]
    )
    # Epochs have 3 steps.
    assert result.steps == 4 and [line["step"] for line in log_of(tmp_path / "run", "dev")] == [3, 4]
    assert [number for number, _ in recorder.named("epoch end")] == [0, 1]


class Interrupted(BaseException):
    pass


@contextlib.contextmanager
def interrupted_after(checkpoints: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Expects a run that ends after it has written some checkpoints."""
    calls = []

    def interrupting(*arguments: Any) -> None:
        write_checkpoint(*arguments)
        calls.append(arguments)
        if len(calls) == checkpoints:
            raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(trainer, "write_checkpoint", interrupting)
        yield


class Hesitant(Shortener):
    """Does not know at first after how many steps a stage ends."""

    def __init__(self, steps: int, silent: int) -> None:
        super().__init__(steps)
        self._silent = silent

    def steps_of_stage(self, taken: int, planned: int) -> int | None:  # type: ignore[override]
        """None for some calls, then half of the plan."""
        self._silent -= 1
        return None if self._silent >= 0 else super().steps_of_stage(taken, planned)


@pytest.mark.nightly
def test_resumed_stages_keep_their_shortened_rates(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, epochs=4)
    pb.finetune(start, task_data(), tmp_path / "whole", config=config, run=RUN, callbacks=[Hesitant(6, 0)])
    arguments: Any = (start, task_data(), tmp_path / "run")
    with interrupted_after(2, monkeypatch):
        pb.finetune(*arguments, config=config, run=RUN, callbacks=[Hesitant(6, 0)])
    pb.finetune(*arguments, config=config, run=RUN, callbacks=[Hesitant(6, 3)])
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_resumed_run_begins_with_its_step(
    start: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: Any = (start, task_data(), tmp_path / "run")
    with interrupted_after(4, monkeypatch):
        pb.finetune(*arguments, config=CONFIG, run=RUN, callbacks=[Recorder()])
    recorder = Recorder()
    pb.finetune(*arguments, config=CONFIG, run=RUN, callbacks=[recorder])
    assert_same_run(tmp_path / "run", plain)
    assert recorder.named("train begin") == [(None, {"step": 4.0})]
    # The rest of the second epoch.
    assert [number for number, _ in recorder.named("epoch begin")] == [1, 2]
    assert [number for number, _ in recorder.named("batch end")] == [1, 2, *range(3)]
    # Nothing is left to see.
    finished = Recorder()
    pb.finetune(*arguments, config=CONFIG, run=RUN, callbacks=[finished])
    assert finished.events == []


def test_distillation_has_stages(tmp_path: Path) -> None:
    teacher = tiny_distillation.write_teacher(tmp_path / "teacher")
    data, recorder = tiny_distillation.task_data(teacher), Recorder()
    method = toy_method.toy()
    result = pb.distill(
        tiny_distillation.STUDENT, data, tmp_path / "run", teacher=teacher, method=method, run=RunConfig(seed=4),
        callbacks=[recorder, Stopper(3)],
    )  # fmt: skip
    # The stage ends, and the next one trains the head.
    assert [stage["name"] for stage in result.stages] == ["hidden", "labels"]
    first, second = (stage["steps"] for stage in result.stages)
    assert first == 3 and second > 3
    assert [name for name, _ in recorder.named("stage begin")] == ["hidden", "labels"]
    assert recorder.named("stage end") == [("hidden", {"step": 3.0}), ("labels", {"step": float(3 + second)})]
    losses = [logs for _, logs in recorder.named("batch end")]
    assert set(losses[0]) == {"loss", "hidden"} and set(losses[-1]) == {"loss", "labels"}
    # Epochs are counted over the run.
    numbers = [number for number, _ in recorder.named("epoch begin")]
    assert len(set(numbers)) == len(numbers) and numbers == sorted(numbers)


@pytest.mark.nightly
def test_pretraining_has_callbacks(tmp_path: Path) -> None:
    data, recorder = PretrainingData.open(tiny_pretraining.write_data(tmp_path / "data")), Recorder()
    config = PretrainConfig(steps=2, batch_size=32, learning_rate=1e-2, warmup_steps=1)
    pb.pretrain(tiny_pretraining.MODEL, data, tmp_path / "run", config=config, callbacks=[recorder])
    assert recorder.named("stage begin") == [("pretraining", {"step": 0.0})]
    assert set(recorder.named("batch end")[0][1]) == {"loss", "masked_lm", "next_sentence"}
    assert recorder.named("train end") == [(None, {"step": 2.0})]


def test_only_the_chief_calls(start: Path) -> None:
    model = pb.from_pretrained(start)
    for is_chief in (True, False):
        recorder = Recorder()
        distribution = Distribution(tf.distribute.get_strategy(), is_chief=is_chief)
        callbacks = RunCallbacks([recorder, Stopper(1)], model, distribution)
        callbacks.begin(0, 5)
        callbacks.begin_stage("", ["loss"], 0, [])
        callbacks.begin_epoch(0)
        assert callbacks.end_step(0, 1, tf.constant([0.5])) is is_chief
        callbacks.end_epoch(0)
        assert bool(recorder.events) is is_chief


def test_other_classes_are_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"objects of tf_keras.callbacks.Callback, .*; received builtins.function"):
        pb.finetune(start, task_data(), tmp_path / "run", config=CONFIG, callbacks=[lambda: None])  # type: ignore[list-item]
    assert not (tmp_path / "run").exists()
