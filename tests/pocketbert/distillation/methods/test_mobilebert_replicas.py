"""MobileBERT's transfer on two replicas with different widths; it matches one device up to rounding."""

from __future__ import annotations

import json
from pathlib import Path

import forks
import numpy as np
import pytest
import tiny_mobilebert
import tiny_pretraining
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.huggingface import write_config
from pocketbert.data.pretraining.reader import PretrainingData
from pocketbert.training.objectives.pretraining import pretraining_stage
from pocketbert.training.pretrain_config import PretrainConfig
from pocketbert.training.stage_batches import pretraining_batches

# A seed by which a batch of the distillation has halves of two widths.
LAYERS, BATCH_SIZE, STEPS, SEED = 2, 16, 5, 7
TEACHER, STUDENT = (config.replace(num_layers=LAYERS) for config in (tiny_mobilebert.TEACHER, tiny_mobilebert.STUDENT))
WORDS = "mobilebert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    tiny_pretraining.write_data(folder / "data")
    tokenizer = pb.WordPieceTokenizer(folder / "data-vocab.txt")
    pb.from_preset(TEACHER, tiny_mobilebert.HEADS, tokenizer, seed=12).save_pretrained(folder / "teacher")
    (folder / "student.json").write_text(json.dumps(write_config(STUDENT, ())), encoding="utf-8")
    return folder


def command_line(inputs: Path, *more: str) -> list[str]:
    """Rates at which each stage goes far; every step is logged."""
    return [
        "distill", "--method=mobilebert", f"--teacher={inputs / 'teacher'}", f"--student={inputs / 'student.json'}",
        f"--pretraining-data={inputs / 'data'}", f"--max-length={tiny_pretraining.MAX_LENGTH}", f"--seeds={SEED}",
        "--transfer-steps=6", f"--transfer-batch-size={BATCH_SIZE}", "--transfer-learning-rate=1e-2",
        f"--distillation-steps={STEPS}", f"--distillation-batch-size={BATCH_SIZE}",
        "--distillation-learning-rate=3e-2", "--micro-batches=2", "--evaluation-steps=1", *more,
    ]  # fmt: skip


def log_of(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{**line, "stage": 0, "split": 0} for line in lines if line["split"] == "train"]


@pytest.mark.slow
def test_unpadded_rows_join_longer_batches(inputs: Path) -> None:
    """Or the tests below would not see what padding does: that row has some in a batch that is not shared out."""
    data = PretrainingData.open(inputs / "data")
    # But for the last step, which no other follows.
    stage = pretraining_stage(PretrainConfig(batch_size=BATCH_SIZE), data.max_length)
    plan = pretraining_batches(stage, data, SEED, index=LAYERS).rows(0)[1 : STEPS - 1]
    halves = [[data.lengths[half] for half in np.split(row, 2)] for row in plan]
    assert any(16 in first and max(first) == 16 < max(second) for first, second in halves)


# Devices have to be declared before TensorFlow starts, hence a process of its own.
RATES = """
import sys
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from pocketbert.distillation.transfer_rates import TransferRates
from pocketbert.training.distribution import open_distribution
from pocketbert.training.optimizers import LAMB

STEPS, NAMES = 4, [f"mobilebert.encoder.layer.{layer}.output.dense.weight" for layer in range(3)]
random = np.random.default_rng(3)
# A -0.0 shows a step of length 0.
starts = {name: np.append(random.normal(size=[11, 4]), [[-0.0] * 4], 0).astype(np.float32) for name in NAMES}
gradients = random.normal(size=[STEPS, 3, 12, 4]).astype(np.float32)

def run(strategy, shares):
    distribution = open_distribution(strategy)
    assert distribution.replicas == len(shares)
    with distribution.scope():
        variables = {name: tf.Variable(start) for name, start in starts.items()}
        rates = TransferRates(first=2, last=2, steps=STEPS, lower=True)
        optimizer = LAMB(0.1, bias_correction=False, clip_norm=1.0, multiplier=rates, named_variables=variables)
        optimizer.build(list(variables.values()))

    def replica(step):
        share = tf.gather(shares, tf.distribute.get_replica_context().replica_id_in_sync_group)
        whole = tf.gather(gradients, step)
        optimizer.apply_gradients([(whole[place] * share, variables[name]) for place, name in enumerate(NAMES)])

    on_all = tf.function(lambda step: distribution.strategy.run(replica, (step,)))
    first = None
    for step in range(STEPS):
        on_all(tf.constant(step))
        first = first or {name: variables[name].numpy() for name in NAMES}
    copies = {name: distribution.strategy.experimental_local_results(variables[name]) for name in NAMES}
    assert all(np.array_equal(each.numpy(), several[0].numpy()) for several in copies.values() for each in several)
    return first, {name: several[0].numpy() for name, several in copies.items()}

# Halves that are exact in binary, so that their sum is the whole to the bit.
alone, shared = run("one", [1.0]), run("mirrored", [0.25, 0.75])
lower, current, above = NAMES
for first, last in (alone, shared):
    # In a phase's first step the multiplier is 0, and for layers above always.
    assert all(first[name].tobytes() == starts[name].tobytes() for name in NAMES)
    assert last[above].tobytes() == starts[above].tobytes()
    moved = {name: np.linalg.norm(last[name] - starts[name]) / np.linalg.norm(starts[name]) for name in NAMES}
    # Three steps of 0.1 times 0.3 and 3 times about 0.95, each into another direction.
    assert 0.03 < moved[lower] < 0.09 and 0.3 < moved[current] < 0.9, moved
for name in NAMES:
    # A few roundings of numbers of order 1 a step.
    np.testing.assert_allclose(shared[1][name], alone[1][name], rtol=0, atol=1e-5)
"""


def test_step_multipliers_match_on_replicas() -> None:
    forks.run_on_devices(RATES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "transfer",
    [["--strategy=progressive", "--lower-layers=reduced"], ["--strategy=joint"]],
    ids=["progressive", "joint"],
)
def test_two_replicas_transfer_like_one(transfer: list[str], inputs: Path, tmp_path: Path) -> None:
    command = command_line(inputs, *transfer)
    assert cli.main([*command, f"--output={tmp_path / 'alone'}"]) == 0
    mirrored = [*command, "--distribution=mirrored", f"--output={tmp_path / 'run'}"]
    forks.run_killed("", mirrored, REPLICAS="2")
    logs = [log_of(tmp_path / name) for name in ("run", "alone")]
    assert len(logs[0]) == len(logs[1]) == 6 + STEPS
    for line, reference in zip(*logs, strict=True):
        # The same terms in other sums: a few units in float32's last place, carried on by later steps.
        assert line == pytest.approx(reference, rel=1e-4)
    line, reference = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "alone"))
    assert set(line) == set(reference)
    for name, expected in reference.items():
        # LAMB takes a step of a weight's own size into the direction of its gradient; of the keys' biases, which
        # softmax does not see, the direction is rounding. All steps together are about as long as the weight.
        if not name.endswith("key.bias"):
            assert np.linalg.norm(line[name] - expected) <= 1e-3 * np.linalg.norm(expected), name
    # Padding's row, which the teacher's is copied to, and which words were learned beside.
    for weights in (line, reference):
        assert not weights[WORDS][STUDENT.pad_token_id].any() and weights[WORDS].any()
