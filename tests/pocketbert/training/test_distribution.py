"""Runs on several replicas: results match one device up to rounding, and resumed runs to the bit."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import forks
import numpy as np
import pytest
import tensorflow as tf
import tiny_distillation
import tiny_finetuning
import tiny_pretraining
from safetensors.numpy import load_file

from pocketbert.checkpoints.huggingface import write_config
from pocketbert.configs import EncoderConfig
from pocketbert.errors import UserError
from pocketbert.training.distribution import Distribution, open_distribution

LEARNING_RATE, STEPS = 1e-2, 6


def free_ports(count: int) -> list[str]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("localhost", 0))
    ports = [str(listener.getsockname()[1]) for listener in sockets]
    for value in sockets:
        value.close()
    return ports


def workers(moments: str, command: list[str]) -> list[subprocess.Popen[str]]:
    """Two processes that run one command together; each is killed at the same moments."""
    meeting = tempfile.mkdtemp()
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    return [
        tiny_pretraining.process(
            moments,
            [*command, "--distribution=multi-worker"],
            TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
            MEETING=meeting,
        )
        for index in range(2)
    ]


def write_config_without_dropout(path: Path, config: EncoderConfig) -> Path:
    content = write_config(config.replace(hidden_dropout=0.0, attention_dropout=0.0), ())
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def pretrain_line(folder: Path) -> list[str]:
    """AdamW, whose tolerance can be derived."""
    line = tiny_pretraining.command_line(folder, "--optimizer=adamw", "--micro-batches=1")
    write_config_without_dropout(folder / "config.json", tiny_pretraining.MODEL)
    return line


def distill_line(folder: Path) -> list[str]:
    """Two stages with a live teacher and adapters; 40 examples in batches of 16 are 3 steps, the last one of 8."""
    teacher = tiny_distillation.write_teacher(folder / "teacher")
    train = tiny_finetuning.write_table(folder / "train.csv", tiny_distillation.labelled_by(teacher, 40, seed=0))
    dev = tiny_finetuning.write_table(folder / "dev.csv", tiny_distillation.labelled_by(teacher, 19, seed=1))
    student = write_config_without_dropout(folder / "student.json", tiny_distillation.STUDENT)
    return [
        "distill", "--method=tinybert", f"--teacher={teacher}", f"--student={student}", f"--train-file={train}",
        f"--dev-file={dev}", "--labels=low,high", "--max-length=23", "--intermediate-epochs=1",
        "--prediction-epochs=1", "--intermediate-batch-size=16", "--prediction-batch-size=16",
        f"--intermediate-learning-rate={LEARNING_RATE}", f"--prediction-learning-rate={LEARNING_RATE}", "--seeds=5",
    ]  # fmt: skip


def general_line(folder: Path) -> list[str]:
    """Four epochs of two steps, on text with inputs of different lengths, masked anew in each."""
    teacher = tiny_distillation.write_teacher(folder / "teacher")
    text = tiny_distillation.write_text(folder / "text.txt", sentences=40)
    student = write_config_without_dropout(folder / "student.json", tiny_distillation.STUDENT)
    return [
        "distill", "--method=tinybert", f"--teacher={teacher}", f"--student={student}", f"--text={text}",
        "--max-length=23", "--general-epochs=4", "--general-batch-size=16",
        f"--general-learning-rate={LEARNING_RATE}", "--seeds=5",
    ]  # fmt: skip


def assert_about_the_same(actual: Path, expected: Path, lines: int = 6) -> None:
    logs = [(folder / "metrics.jsonl").read_text("utf-8").splitlines() for folder in (actual, expected)]
    assert len(logs[0]) == len(logs[1]) >= lines
    for received, expected_line in zip(*([json.loads(line) for line in log] for log in logs), strict=True):
        assert set(received) == set(expected_line)
        # The same terms in other sums: a few units in float32's last place, carried on by later steps.
        assert {**received, "stage": 0, "split": 0} == pytest.approx(
            {**expected_line, "stage": 0, "split": 0}, rel=1e-4
        )
    assert_weights_about_the_same(actual, expected)


def assert_weights_about_the_same(actual: Path, expected: Path) -> None:
    arrays, expected_arrays = (load_file(folder / "model" / "model.safetensors") for folder in (actual, expected))
    assert set(arrays) == set(expected_arrays)
    for name in arrays:
        difference = np.abs(arrays[name] - expected_arrays[name])
        # Adam divides by the gradient's own size: where that is rounding, a step may differ by a part of its length.
        assert difference.max() < 0.1 * STEPS * LEARNING_RATE, name
        assert difference.mean() < 1e-5, name


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """A command line without dropout, and what it gives in one process."""
    from pocketbert import cli

    folder = tmp_path_factory.mktemp("inputs")
    command = pretrain_line(folder)
    assert cli.main([*command, f"--output={folder / 'alone'}"]) == 0
    return command, folder / "alone"


@pytest.mark.nightly
def test_two_replicas_match_one(alone: tuple[list[str], Path], tmp_path: Path) -> None:
    command = [*alone[0], "--distribution=mirrored", f"--output={tmp_path / 'run'}"]
    forks.run_killed("", command, REPLICAS="2")
    assert_about_the_same(tmp_path / "run", alone[1])


def test_leaving_tolerates_ended_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: Distribution, answer: bool) -> bool:
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted by: Socket closed")

    monkeypatch.setattr(Distribution, "as_chief_says", closed)
    distribution = open_distribution()
    distribution.leave()
    with pytest.raises(tf.errors.UnavailableError):
        distribution.wait()


@pytest.mark.slow
def test_two_workers_match_one_chief_writes(alone: tuple[list[str], Path], tmp_path: Path) -> None:
    errors = tiny_pretraining.finish(*workers("", [*alone[0], f"--output={tmp_path / 'run'}"]))
    assert_about_the_same(tmp_path / "run", alone[1])
    assert (
        len(errors) == 2 and json.loads((tmp_path / "run" / "run.json").read_text())["distribution"] == "multi-worker"
    )
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    errors = tiny_pretraining.finish(*workers("", [*alone[0], f"--output={tmp_path / 'run'}"]))
    assert all("this run is finished" in text for text in errors)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != ".pocketbert"} == {
        path: time for path, time in before.items() if path.name != ".pocketbert"
    }


@pytest.mark.slow
def test_two_workers_distil_tasks_like_one(tmp_path: Path) -> None:
    from pocketbert import cli

    command = distill_line(tmp_path)
    assert cli.main([*command, f"--output={tmp_path / 'alone'}"]) == 0
    tiny_pretraining.finish(*workers("", [*command, f"--output={tmp_path / 'run'}"]))
    # The second stage trains the task's head, whose dropout draws for each replica.
    assert_weights_about_the_same(*(tmp_path / name / "stages" / "intermediate" for name in ("run", "alone")))
    for name in ("adapters.safetensors", "stages/intermediate/model/model.safetensors", "teacher.json"):
        assert (tmp_path / "run" / name).exists(), name


@pytest.mark.slow
def test_two_workers_distil_text_like_one(tmp_path: Path) -> None:
    from pocketbert import cli

    command = general_line(tmp_path)
    assert cli.main([*command, f"--output={tmp_path / 'alone'}"]) == 0
    tiny_pretraining.finish(*workers("", [*command, f"--output={tmp_path / 'run'}"]))
    # The two have parts of other lengths: the mean of their means is another number.
    assert_about_the_same(tmp_path / "run", tmp_path / "alone", lines=4)


@pytest.mark.slow
def test_killed_runs_with_dropout_resume_exactly(tmp_path: Path) -> None:
    command = tiny_pretraining.command_line(tmp_path)
    mirrored = [*command, "--distribution=mirrored"]
    for name, moments in (("whole", ""), ("killed", "step:3,step:2")):
        output = f"--output={tmp_path / name}"
        forks.run_killed(moments, [*mirrored, output], REPLICAS="2")
        tiny_pretraining.finish(*workers(moments, [*command, f"{output}-workers"]))
    for kind in ("", "-workers"):
        tiny_pretraining.assert_same_run(tmp_path / f"killed{kind}", tmp_path / f"whole{kind}")


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1], ids=["chief", "worker"])
def test_dead_partner_is_one_line(killed: int, tmp_path: Path) -> None:
    command = [*pretrain_line(tmp_path), "--steps=9999", f"--output={tmp_path / 'run'}", "--distribution=multi-worker"]
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "pocketbert", *command],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(forks.SOURCES),
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    log, until = tmp_path / "run" / "metrics.jsonl", time.monotonic() + 180
    try:
        while not (log.exists() and log.read_text("utf-8").count("\n") > 1):
            assert time.monotonic() < until and all(process.poll() is None for process in processes)
            time.sleep(0.1)
        processes[killed].kill()
        output = processes[1 - killed].communicate(timeout=120)[1]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert processes[1 - killed].returncode == 2 and "Traceback" not in output
    assert (
        "another one has ended or cannot be reached; read its error message, then start the same command on" in output
    )


# Devices have to be declared before TensorFlow starts, hence a process of its own.
REPLICAS = """
import sys
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from pocketbert.training.stage_batches import encoded_batches
from pocketbert.data.batches import EncodedExamples
from pocketbert.layers.dropout import Dropout
from pocketbert.training.distribution import Distribution, open_distribution
import toy_method

distribution = open_distribution("mirrored")
assert distribution.replicas == 2 and distribution.is_chief

# Each replica draws for itself, and both draw the same again from the one state that a checkpoint holds.
with distribution.scope():
    dropout = Dropout(0.5)
draw = tf.function(lambda: distribution.strategy.run(lambda: dropout(tf.ones([64]), training=True)))
state = dropout.generator.state.numpy()
first = [part.numpy() for part in distribution.strategy.experimental_local_results(draw())]
assert not np.array_equal(*first)
copies = distribution.strategy.experimental_local_results(dropout.generator.state)
assert np.array_equal(*(copy.numpy() for copy in copies)) and not np.array_equal(copies[0].numpy(), state)
dropout.generator.state.assign(state)
again = [part.numpy() for part in distribution.strategy.experimental_local_results(draw())]
assert all(map(np.array_equal, first, again))

# 25 labelled examples in batches of 8: the last step has one, which two replicas cannot share.
offsets = np.arange(26)
encoded = EncodedExamples(np.arange(25, dtype=np.int32), np.zeros(25, np.int32), offsets, 23, 0)
data = encoded_batches(toy_method.label_stage(batch_size=8), encoded, 0, distribution.replicas)
plan = data.rows(0)
assert [len(row) for row in plan] == [8, 8, 8]
batches = distribution.batches(plan, lambda rows: data.elements(rows, 0))
seen = []
for batch, row in zip(batches, plan, strict=True):
    parts = distribution.strategy.experimental_local_results(batch["input_word_ids"])
    assert [len(part) for part in parts] == [4, 4]
    assert np.array_equal(np.concatenate([part[:, 0] for part in parts]), row)
"""


# Keras' own loop on one device and on two, whose halves have 9 and 3 masked tokens.
KERAS = """
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import tiny
import pocketbert as pb
from pocketbert._keras import tf_keras
from pocketbert.training.distribution import open_distribution

config = tiny.BERT.replace(num_layers=1, hidden_dropout=0.0, attention_dropout=0.0)
tasks = [pb.TaskConfig(kind="masked_lm"), pb.TaskConfig(kind="next_sentence")]
batch = {name: np.tile(value, [4 // 3 + 1, 1])[:4] for name, value in tiny.batch(config).items()}
words = np.random.default_rng(0).integers(1, 97, [4, 7])
for row, count in enumerate((6, 3, 1, 2)):
    words[row, count:] = -100
labels = {"prediction_logits": words, "seq_relationship_logits": np.array([0, 1, 1, 0])}
found = []
# A mirrored strategy must work in a process in which one has summed.
earlier = open_distribution("mirrored").strategy
summed = tf.function(lambda: earlier.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([2]))))
assert [part.numpy().tolist() for part in earlier.experimental_local_results(summed())] == [[2, 2]] * 2
for strategy in ("one", "mirrored"):
    distribution = open_distribution(strategy)
    with distribution.scope():
        model = pb.from_preset(config, tasks, seed=3)
        model.compile(tf_keras.optimizers.SGD(0.5))
    history = model.fit(batch, labels, batch_size=4, epochs=2, shuffle=False, verbose=0).history
    found.append((history, {name: value.numpy() for name, value in model.named_variables().items()}))
assert distribution.replicas == 2
start = {name: value.numpy() for name, value in pb.from_preset(config, tasks, seed=3).named_variables().items()}
history, weights = found[1]
for name, values in found[0][0].items():
    np.testing.assert_allclose(history[name], values, rtol=1e-5, err_msg=name)
for name, value in found[0][1].items():
    # The gradients are summed in another order.
    atol = 1e-5 * max(np.abs(value - start[name]).max(), 1.0)
    np.testing.assert_allclose(weights[name], value, rtol=0, atol=atol, err_msg=name)
"""


@pytest.mark.nightly
def test_keras_fit_on_two_replicas_matches() -> None:
    forks.run_on_devices(KERAS)


def test_replicas_draw_their_own_dropout() -> None:
    forks.run_on_devices(REPLICAS)


def test_one_device_reads_whole_rows() -> None:
    distribution = open_distribution()
    rows = [np.array([4, 1, 7]), np.array([2])]
    models: list[Any] = []

    def make(pieces: list[np.ndarray]) -> tf.data.Dataset:
        models.extend(pieces)
        return tf.data.Dataset.from_tensor_slices(tf.ragged.constant([list(piece) for piece in pieces]))

    batches = distribution.batches(rows, make)
    assert [list(row) for row in models] == [[4, 1, 7], [2]] and len(list(batches)) == 2
    assert distribution.as_chief_says(True) and not distribution.as_chief_says(False)


@pytest.mark.parametrize(
    "config",
    [
        None,
        "worker 0",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
    ],
)
def test_missing_cluster_is_refused(config: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if config is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UserError, match="needs the cluster in the environment variable TF_CONFIG, for example"):
        open_distribution("multi-worker")
