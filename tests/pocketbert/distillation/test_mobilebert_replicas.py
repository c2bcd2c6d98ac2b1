"""MobileBERT's transfer on two replicas, each with rows as wide as it needs: what one device gives, to rounding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tiny_mobilebert
import tiny_pretraining
from safetensors.numpy import load_file

import pocketbert as pb
from pocketbert import cli
from pocketbert.checkpoints.huggingface import write_config
from pocketbert.data.pretraining import PretrainingData
from pocketbert.distillation.stage_data import PretrainingSource

LAYERS, BATCH_SIZE, SEED = 2, 16, 5
TEACHER, STUDENT = (each.replace(num_layers=LAYERS) for each in (tiny_mobilebert.TEACHER, tiny_mobilebert.STUDENT))
WORDS = "mobilebert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    tiny_pretraining.write_data(folder / "data")
    tokenizer = pb.WordPieceTokenizer(folder / "data-vocab.txt")
    pb.build(TEACHER, tiny_mobilebert.HEADS, tokenizer, seed=12).save_pretrained(folder / "teacher")
    (folder / "student.json").write_text(json.dumps(write_config(STUDENT, ())), encoding="utf-8")
    return folder


def command_line(inputs: Path, *more: str) -> list[str]:
    """Rates at which each stage goes far; every step is logged."""
    return [
        "distill", "--method=mobilebert", f"--teacher={inputs / 'teacher'}", f"--student={inputs / 'student.json'}",
        f"--pretraining-data={inputs / 'data'}", f"--max-length={tiny_pretraining.MAX_LENGTH}", "--transfer-steps=6",
        "--distillation-steps=4", f"--transfer-batch-size={BATCH_SIZE}", f"--distillation-batch-size={BATCH_SIZE}",
        "--transfer-learning-rate=1e-2", "--distillation-learning-rate=3e-2", "--micro-batches=2", f"--seeds={SEED}",
        "--evaluation-steps=1", *more,
    ]  # fmt: skip


def log_of(folder: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{**line, "stage": 0, "split": 0} for line in lines if line["split"] == "train"]


def test_halves_of_a_batch_differ_in_width(inputs: Path) -> None:
    """Or the tests below would not see what padding does."""
    data = PretrainingData.open(inputs / "data")
    widths = []
    for row in PretrainingSource(data, SEED, LAYERS).plan(BATCH_SIZE, 0)[:4]:
        longest = [data.lengths[half].max() for half in np.split(row, 2)]
        widths.append(tuple(-(-length // 8) for length in longest))
    assert any(first != second for first, second in widths)


@pytest.mark.parametrize(
    "transfer",
    [
        ["--strategy=progressive", "--lower-layers=reduced"],
        pytest.param(["--strategy=joint"], marks=pytest.mark.slow),
    ],
    ids=["progressive", "joint"],
)
def test_two_replicas_transfer_as_one_does(transfer: list[str], inputs: Path, tmp_path: Path) -> None:
    command = command_line(inputs, *transfer)
    assert cli.main([*command, f"--output={tmp_path / 'alone'}"]) == 0
    mirrored = [*command, "--distribution=mirrored", f"--output={tmp_path / 'run'}"]
    tiny_pretraining.finish(tiny_pretraining.process("", mirrored, REPLICAS="2"))
    logs = [log_of(tmp_path / name) for name in ("run", "alone")]
    assert len(logs[0]) == len(logs[1]) == 10
    for ours, theirs in zip(*logs, strict=True):
        # The same terms in other sums: a few units in float32's last place, carried on by later steps.
        assert ours == pytest.approx(theirs, rel=1e-4)
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "alone"))
    assert set(ours) == set(theirs)
    for name, expected in theirs.items():
        # LAMB takes a step of a weight's own size into the direction of its gradient; of the keys' biases, which
        # softmax does not see, the direction is rounding. All steps together are about as long as the weight.
        if not name.endswith("key.bias"):
            assert np.linalg.norm(ours[name] - expected) <= 1e-3 * np.linalg.norm(expected), name
    # Padding's row, which the teacher's is copied to, and which words were learned beside.
    for weights in (ours, theirs):
        assert not weights[WORDS][STUDENT.pad_token_id].any() and weights[WORDS].any()
