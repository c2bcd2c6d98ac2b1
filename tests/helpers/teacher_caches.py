"""A small store of made-up targets, its writer and its readers' fixtures."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pocketbert.configs import TokenizerConfig
from pocketbert.data.batches import EncodedExamples
from pocketbert.data.teacher_cache.layout import TeacherCacheIdentity
from pocketbert.data.teacher_cache.targets import TargetSpec
from pocketbert.data.teacher_cache.writer import TeacherCachePlan, TeacherCacheWriter, open_writers
from pocketbert.presets import preset
from pocketbert_runtime.tokenizers.vocabulary import Vocabulary

# Any file will do.
VOCABULARY = Path(__file__).resolve()
CONFIG = preset("mobilebert").config
# 6 features, 3 heads and 2 classes for 29 examples of 3 to 17 tokens.
TARGETS = (
    TargetSpec(name="attention", shape=(3, None, None), dtype="float16"),
    TargetSpec(name="hidden", shape=(None, 6), dtype="float16"),
    TargetSpec(name="logits", shape=(2,), dtype="float16"),
)
EXAMPLES = 29
LENGTHS = np.random.default_rng(1).integers(3, 18, EXAMPLES)
# Eight shards or so.
SHARD_BYTES = 3000
IDENTITY = TeacherCacheIdentity(
    teacher="a" * 64,
    tokenizer="b" * 64,
    dataset="c" * 64,
    method="mimicry",
    stage="first",
    features={"hidden_states": (0, 3), "logits": ()},
    options={"options.mapping": "uniform"},
)


def values_of(example: int, dtype: str = "float32") -> dict[str, np.ndarray]:
    generator = np.random.default_rng([5, example])
    return {
        target.name: generator.standard_normal(target.shape_of(int(LENGTHS[example]))).astype(dtype)
        for target in TARGETS
    }


def batch_of(indices: np.ndarray, width: int, filling: float) -> dict[str, np.ndarray]:
    """What the live path gives: rows padded to the batch's width with whatever the teacher computes there."""
    batch = {t.name: np.full((len(indices), *t.shape_of(width)), filling, np.float32) for t in TARGETS}
    for row, example in enumerate(indices):
        for name, value in values_of(int(example)).items():
            batch[name][(row, *map(slice, value.shape))] = value
    return batch


def plan(path: Path, **changes: Any) -> TeacherCachePlan:
    options: dict[str, Any] = {
        "identity": IDENTITY,
        "teacher_config": CONFIG,
        "teacher_task": None,
        "vocabulary": Vocabulary(path=VOCABULARY, config=TokenizerConfig(lowercase=False)),
        "targets": TARGETS,
        "lengths": LENGTHS,
        "shard_bytes": SHARD_BYTES,
    }
    return TeacherCachePlan(path=path, **options | changes)


@contextlib.contextmanager
def writer(path: Path, *, overwrite: bool = False, **changes: Any) -> Iterator[TeacherCacheWriter]:
    with open_writers([plan(path, **changes)], overwrite=overwrite) as (store,):
        yield store


def fill(store: TeacherCacheWriter) -> None:
    for shard in store.pending:
        content = store.blank(shard)
        # In an order of its own, and in two batches, as buckets give it.
        order = np.random.default_rng(shard.first).permutation(shard.examples)
        for rows in filter(len, (order[:2], order[2:])):
            # Not a number in the padding: what nobody reads may be anything.
            content.put(rows, batch_of(rows + shard.first, int(LENGTHS.max()) + 3, filling=np.nan))
        store.write(content)


def encoded() -> EncodedExamples:
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    words = np.random.default_rng(2).integers(5, 90, offsets[-1]).astype(np.int32)
    return EncodedExamples(
        word_ids=words, type_ids=words % 2, offsets=offsets, labels=np.arange(EXAMPLES, dtype=np.int32),
        max_length=17, pad_token_id=3,
    )  # fmt: skip


# Rows for the first tokens of at most 4: 1 to 15 candidates, and numbers that float16 has.
KEPT_TARGETS = (
    TargetSpec(name="places", shape=(4,), dtype="uint8", kept=True),
    TargetSpec(name="scaled", shape=(4, 5), dtype="int8", encoding="scaled", kept=True),
    TargetSpec(name="values", shape=(4, 2, 3), dtype="float16", kept=True),
    TargetSpec(name="widths", shape=(4, 7), dtype="uint16", encoding="elias-fano", limit=300, kept=True),
)
CANDIDATES = LENGTHS - 2


def kept_batch(indices: np.ndarray, filling: float) -> dict[str, np.ndarray]:
    """Targets of examples, with something else in the rows that they lack."""
    batch = {t.name: np.full((len(indices), *t.shape_of(0)), filling, np.float32) for t in KEPT_TARGETS}
    for row, example in enumerate(indices):
        random, rows = np.random.default_rng([6, example]), min(4, int(CANDIDATES[example]))
        batch["places"][row, :rows] = np.sort(random.permutation(200)[:rows])
        # A largest magnitude of 127/4 gives a scale of 1/4.
        quarters = np.append(random.integers(-127, 128, (rows, 4)), np.full((rows, 1), -127), axis=1)
        batch["scaled"][row, :rows] = quarters / 4
        batch["values"][row, :rows] = random.integers(-999, 1000, (rows, 2, 3)) / 8
        batch["widths"][row, :rows] = [np.sort(random.permutation(300)[:7]) for _ in range(rows)]
    return batch


def write_kept(path: Path, **changes: Any) -> Path:
    with writer(path, **{"targets": KEPT_TARGETS, "candidates": CANDIDATES, "shard_bytes": 900, **changes}) as store:
        for shard in store.pending:
            content = store.blank(shard)
            content.put(np.arange(shard.examples), kept_batch(np.arange(shard.examples) + shard.first, np.nan))
            store.write(content)
    return path


def sign(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest, whose digest fits again."""
    content = json.loads((folder / "manifest.json").read_text())
    del content["manifest_sha256"]
    change(content)
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(content | {"manifest_sha256": digest}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
