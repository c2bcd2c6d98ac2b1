"""Stands in for `pocketbert.data.pretraining` where that is not there yet: the same API on one small file."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.files import sha256

FILE = "examples.npz"


@dataclass(frozen=True)
class PretrainingData:
    folder: Path
    encoded: Any
    next_sentence_labels: np.ndarray
    lowercase: bool = True
    masked: bool = False

    @classmethod
    def open(cls, folder: Any, *, verify: bool = True) -> PretrainingData:
        from pocketbert.data.batches import EncodedExamples
        from pocketbert.errors import UserError

        folder = Path(folder)
        if not (folder / FILE).exists():
            raise UserError(f"{folder}: pretraining's examples must be in a folder of pretrain-data; there are none")
        with np.load(folder / FILE) as stored:
            encoded = EncodedExamples(
                stored["word_ids"], stored["type_ids"], stored["offsets"], None, int(stored["max_length"]), 0
            )
            return cls(folder, encoded, stored["next_sentence_labels"])

    @property
    def max_length(self) -> int:
        return self.encoded.max_length

    @property
    def pad_token_id(self) -> int:
        return self.encoded.pad_token_id

    @property
    def vocab_path(self) -> Path:
        return self.folder / "vocab.txt"

    @property
    def identity(self) -> str:
        return sha256(self.folder / FILE)

    @property
    def lengths(self) -> np.ndarray:
        return self.encoded.lengths

    def __len__(self) -> int:
        return len(self.encoded)

    def plan(self, *, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
        from pocketbert.data.batches import plan_batches
        from pocketbert.errors import UserError

        if len(self) < batch_size:
            raise UserError(f"{self.folder}: a step takes {batch_size} examples; the data has {len(self)}")
        plan = plan_batches(self.lengths, batch_size=batch_size, seed=seed, epoch=epoch)
        return [row for row in plan if len(row) == batch_size]

    def dataset(self, plan: Any, *, seed: int, epoch: int, start: int = 0, masking: Any = None) -> Any:
        import tensorflow as tf

        import pocketbert as pb
        from pocketbert.data.masking import MaskingOptions, masked_dataset

        rest = list(plan[start:])
        masked = masked_dataset(
            self.encoded, rest, pb.WordPieceTokenizer(self.vocab_path), seed=seed, epoch=epoch,
            options=masking or MaskingOptions(max_predictions=5), predictions=True,
        )  # fmt: skip
        rows = tf.RaggedTensor.from_row_lengths(np.concatenate(rest), [len(row) for row in rest])
        labels = tf.data.Dataset.from_tensor_slices(rows).map(lambda row: tf.gather(self.next_sentence_labels, row))
        return tf.data.Dataset.zip((masked, labels)).map(
            lambda masked, sentences: {
                **masked[0],
                "masked_lm_labels": masked[1],
                "next_sentence_labels": tf.ensure_shape(sentences, [None]),
            }
        )


def write(folder: Path, vocabulary: Path, count: int, seed: int, max_length: int) -> Path:
    """Pairs of counting words of 12: the next one follows, which both losses can learn."""
    random = np.random.default_rng(seed)
    size = 5 + 12
    words, types, lengths, labels = [], [], [], []
    for _ in range(count):
        label = int(random.integers(2))
        halves = random.integers(2, (max_length - 3) // 2 + 1, 2)
        first = int(random.integers(5, size))
        second = int(random.integers(5, size)) if label else first + halves[0]
        parts = [
            (start + np.arange(half) - 5) % (size - 5) + 5 for start, half in zip((first, second), halves, strict=True)
        ]
        row = [2, *parts[0], 3, *parts[1], 3]
        words += row
        types += [0] * (halves[0] + 2) + [1] * (halves[1] + 1)
        lengths.append(len(row))
        labels.append(label)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_bytes(vocabulary.read_bytes())
    np.savez(
        folder / FILE, word_ids=np.array(words, np.int32), type_ids=np.array(types, np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]), next_sentence_labels=np.array(labels, np.int32),
        max_length=max_length,
    )  # fmt: skip
    return folder


def install() -> None:
    """Makes this module importable under the real one's name."""
    module: Any = types.ModuleType("pocketbert.data.pretraining")
    module.PretrainingData = PretrainingData
    sys.modules.setdefault(module.__name__, module)
