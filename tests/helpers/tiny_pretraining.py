"""Tiny pretraining data, and the architectures that learn from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import forks
import numpy as np
import tiny

from pocketbert.checkpoints.huggingface import write_config

MAX_LENGTH = 21
# Every kind of random state is in use: dropout on attention and hidden states, masks and order.
MODEL = tiny.BERT.replace(num_layers=1, initializer_range=0.05)
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()
PIECES += [f"word{number}" for number in range(MODEL.vocab_size - len(PIECES))]


def write_vocabulary(path: Path, pieces: list[str] = PIECES) -> Path:
    """A vocab.txt of these tokens."""
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return path


def write_data(
    folder: Path, documents: int = 50, seed: int = 0, max_length: int = MAX_LENGTH, vocabulary: Path | None = None
) -> Path:
    """A folder of nearly three times as many examples: text that counts in 12 words, round and round.

    The words are the first 12 of `vocabulary`, behind its five special tokens; None for one of `PIECES`.
    """
    import pocketbert as pb
    from pocketbert.data.pretraining.options import PretrainingOptions
    from pocketbert.data.pretraining.run import write_pretraining_data

    vocabulary = vocabulary or write_vocabulary(folder.parent / f"{folder.name}-vocab.txt")
    words = vocabulary.read_text("utf-8").split()[5:17]
    random = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        word, sentences = int(random.integers(len(words))), []
        for length in random.integers(3, 8, 6):
            sentences.append(" ".join(words[(word + index) % len(words)] for index in range(length)))
            word += length
        texts.append("\n".join(sentences))
    text = folder.parent / f"{folder.name}.txt"
    text.write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    options = PretrainingOptions(max_length=max_length, seed=seed)
    write_pretraining_data(text, pb.WordPieceTokenizer(vocabulary), folder, options, shards=2, workers=1)
    return folder


def write_model_config(path: Path) -> Path:
    """The model's config.json."""
    path.write_text(json.dumps(write_config(MODEL, ())), encoding="utf-8")
    return path


def command_line(folder: Path, *more: str) -> list[str]:
    """A `pretrain` of 6 steps, over more than one epoch. `folder` gets what it reads."""
    data, dev = folder / "data", folder / "dev"
    return [
        "pretrain", f"--model={write_model_config(folder / 'config.json')}", f"--data={write_data(data)}",
        f"--dev-data={write_data(dev, documents=27, seed=1)}", "--steps=6", "--batch-size=32", "--micro-batches=2",
        "--learning-rate=1e-2", "--seeds=5", "--evaluation-batches=2", "--evaluation-steps=5",
        "--checkpoint-seconds=0", *more,
    ]  # fmt: skip


def process(moments: str, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
    """`killed_runs.py` with these arguments, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, str(forks.HELPERS / "killed_runs.py"), moments, *command],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(forks.SOURCES), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes: subprocess.Popen[str], timeout: float = 240.0) -> list[str]:
    """Waits for processes that must succeed; what they said on stderr."""
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [process.returncode for process in processes]
    assert codes == [0] * len(codes), f"{codes}\n" + "\n".join(text[-3000:] for text in errors)
    return errors


def assert_same_run(actual: Path, expected: Path) -> None:
    """The same weights, log and result, to the bit; nothing is left of an unfinished writing."""
    for name in ("model/model.safetensors", "metrics.jsonl", "run.json"):
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in (actual, expected)]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}
    assert not [path for path in actual.rglob(".*") if path.name != ".pocketbert"]
