from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from teacher_caches import (
    CONFIG,
    EXAMPLES,
    IDENTITY,
    LENGTHS,
    TARGETS,
    VOCABULARY,
    batch_of,
    encoded,
    fill,
    flip,
    sign,
    values_of,
    writer,
)

from pocketbert.data.batches import plan_batches
from pocketbert.data.teacher_cache import reader as teacher_cache
from pocketbert.data.teacher_cache.layout import TeacherCacheIdentity, dataset_digest
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.errors import UserError


def test_example_round_trips_with_rounding(finished: Path) -> None:
    store = TeacherCache.open(finished, IDENTITY)
    assert len(store) == EXAMPLES and len(list(finished.glob("shard-*.bin"))) > 4
    for example in np.random.default_rng(0).permutation(EXAMPLES):
        values, expected = store.example(int(example)), values_of(int(example))
        assert list(values) == ["attention", "hidden", "logits"]
        for name, value in expected.items():
            np.testing.assert_array_equal(values[name], value.astype(np.float16), strict=True)


def test_cache_describes_the_teacher(copied: Path) -> None:
    from pocketbert.configs import TaskConfig

    store = TeacherCache.open(copied)
    assert store.teacher_config == CONFIG and CONFIG.bottleneck is not None
    assert store.teacher_task is None and store.identity == IDENTITY
    vocabulary = store.vocabulary
    assert vocabulary.path.read_bytes() == VOCABULARY.read_bytes() and vocabulary.options.lowercase is False
    task = TaskConfig(kind="classification", name="mood", labels=("low", "high"))
    with writer(copied, teacher_task=task, overwrite=True) as again:
        fill(again)
    assert TeacherCache.open(copied).teacher_task == task


def test_mapped_shards_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_cache, "MAPPED_SHARDS", 4)
    with writer(tmp_path / "first", shard_bytes=1) as shards:
        fill(shards)
    store = TeacherCache.open(tmp_path / "first", IDENTITY)
    assert len(shards.manifest.shards) == EXAMPLES

    def descriptors() -> int:
        # A mapped file's own; the list has one of the listing too, which is gone when it is looked at.
        open_files = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
        return sum(str(path.resolve()).startswith(str(store.path)) for path in open_files)

    assert descriptors() == 0
    first = store.example(0)
    order = np.random.default_rng(0).permutation(EXAMPLES)
    for example in order:
        values = store.example(int(example))
        assert all(np.array_equal(values[name], value.astype(np.float16)) for name, value in values_of(example).items())
        # Four, and those that an array here is a view of.
        assert descriptors() <= 6
    assert descriptors() >= 4
    del values
    # More of them than are mapped at a time in one batch.
    batch = dict(zip((target.name for target in TARGETS), store.read(order, 17), strict=True))
    for name, value in batch_of(order, 17, filling=0.0).items():
        np.testing.assert_array_equal(batch[name], value.astype(np.float16), strict=True)
    assert descriptors() <= 5
    # What was handed out stays.
    assert np.array_equal(first["hidden"], values_of(0)["hidden"].astype(np.float16))


@pytest.mark.parametrize("start", [0, 3])
def test_dataset_pads_targets_with_zeros(finished: Path, start: int) -> None:
    from pocketbert.data.batches import dataset

    examples = encoded()
    plan = plan_batches(examples.lengths, batch_size=4, seed=2, epoch=1)
    got = list(TeacherCache.open(finished).dataset(examples, plan, start))
    bare = list(dataset(examples, plan, start))
    assert len(got) == len(plan) - start > 3
    for (batch, targets), (inputs, labels), indices in zip(got, bare, plan[start:], strict=True):
        assert set(batch) == {*inputs, "labels"}
        np.testing.assert_array_equal(batch["labels"], labels, strict=True)
        for name, value in inputs.items():
            np.testing.assert_array_equal(batch[name], value, strict=True)
        width = batch["input_mask"].shape[1]
        for name, value in batch_of(indices, width, filling=0.0).items():
            # Half of float16's last place, relative to the value; these are of order 1, far from its subnormals.
            np.testing.assert_allclose(targets[name].numpy(), value, rtol=2**-11, atol=2**-25, strict=True)


def test_dataset_is_traced_once(finished: Path) -> None:
    import tensorflow as tf

    examples = dataclasses.replace(encoded(), labels=None)
    batches = TeacherCache.open(finished).dataset(examples, plan_batches(LENGTHS, batch_size=4, seed=0, epoch=0))
    _, targets = batches.element_spec
    assert {name: spec.shape.as_list() for name, spec in targets.items()} == {
        "attention": [None, 3, None, None],
        "hidden": [None, None, 6],
        "logits": [None, 2],
    }
    traces = []

    @tf.function(input_signature=batches.element_spec)
    def step(batch: dict[str, tf.Tensor], targets: dict[str, tf.Tensor]) -> tf.Tensor:
        traces.append(1)
        return tf.reduce_sum(targets["hidden"])

    widths = {batch["input_mask"].shape[1] for batch, _ in batches}
    assert [step(*batch) for batch in batches] and len(traces) == 1 and len(widths) > 1
    assert "labels" not in batches.element_spec[0]


def test_other_examples_are_refused(finished: Path) -> None:
    shorter = dataclasses.replace(encoded(), offsets=encoded().offsets[:-1])
    with pytest.raises(UserError, match="received 28 examples with other lengths than the 29 in the cache"):
        TeacherCache.open(finished).dataset(shorter, [np.array([0])])


def test_only_real_tokens_are_stored(finished: Path) -> None:
    # By hand: an example of l tokens has 3 heads x l x l, l x 6 and 2 numbers of two bytes.
    by_hand = sum(2 * (3 * length * length + 6 * length + 2) for length in LENGTHS.tolist())
    shards = sum(path.stat().st_size for path in finished.glob("shard-*.bin"))
    assert shards == by_hand == int(record_bytes(TARGETS, LENGTHS).sum())


def test_hidden_states_have_little_overhead(tmp_path: Path) -> None:
    # Four layers of 768, sentences like SST-2's: everything in the folder, against the numbers alone.
    lengths = np.minimum(2 + np.random.default_rng(0).geometric(1 / 11, 50), 66)
    targets = tuple(TargetSpec(name=f"hidden_{i}", shape=(None, 768), dtype="float16") for i in range(4))
    with writer(tmp_path / "s", targets=targets, lengths=lengths, shard_bytes=2**20) as store:
        for shard in store.pending:
            content = store.blank(shard)
            content.filled[:] = True
            store.write(content)
    total = sum(path.stat().st_size for path in (tmp_path / "s").iterdir())
    assert total - VOCABULARY.stat().st_size <= 1.03 * 4 * 768 * 2 * lengths.sum()


def test_damage_is_refused_by_name(copied: Path) -> None:
    def refused(message: str, verify: bool = True) -> None:
        with pytest.raises(UserError, match=message) as caught:
            TeacherCache.open(copied, IDENTITY, verify=verify)
        assert "\n" not in str(caught.value)

    third, original = copied / "shard-00003.bin", (copied / "shard-00003.bin").read_bytes()
    flip(third, len(original) // 2)
    refused(r"shard-00003.bin is damaged \(its SHA-256 differs")
    # Sizes alone cannot tell.
    TeacherCache.open(copied, IDENTITY, verify=False)
    third.write_bytes(original[:-1])
    size = len(original)
    refused(f"shard-00003.bin must have {size} bytes; received {size - 1}", verify=False)
    third.unlink()
    (copied / "shard-00001.bin").unlink()
    refused("shard-00001.bin is missing.*shard-00003.bin is missing", verify=False)


@pytest.mark.parametrize("name", ["lengths.npy", "manifest.json", "vocab.txt"])
def test_flipped_byte_is_found(copied: Path, name: str) -> None:
    content = (copied / name).read_bytes()
    tried = 0
    for offset in range(0, len(content), 1 + len(content) // 50):
        # White space between the parts of a JSON text is no part of what it says.
        if name == "manifest.json" and content[offset : offset + 1].isspace():
            continue
        flip(copied / name, offset)
        with pytest.raises(UserError):
            TeacherCache.open(copied, IDENTITY)
        (copied / name).write_bytes(content)
        tried += 1
    assert tried > 1
    TeacherCache.open(copied, IDENTITY)


def test_unfinished_cache_is_refused(tmp_path: Path) -> None:
    with writer(tmp_path / "first") as store:
        content = store.blank(store.pending[1])
        content.filled[:] = True
        store.write(content)
    count = len(store.manifest.shards)
    with pytest.raises(UserError, match=f"must be finished; received 1 of {count} shards"):
        TeacherCache.open(tmp_path / "first")


def test_other_folders_are_refused(tmp_path: Path, copied: Path) -> None:
    with pytest.raises(UserError, match="received .* without one; make it with pocketbert cache-teacher"):
        TeacherCache.open(tmp_path / "nothing")
    manifest = json.loads((copied / "manifest.json").read_text())
    for change, message in (
        ({"format": "photographs"}, "must be pocketbert teacher cache, version 1; received 'photographs'"),
        ({"version": 2}, "received 'pocketbert teacher cache', version 2; make the folder again"),
    ):
        (copied / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(UserError, match=message):
            TeacherCache.open(copied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["targets"][2].update(encoding="huffman"), "encoding of 'logits' must be one of plain, .* a newer"),
        (lambda m: m["targets"][2].update(dtype="bits"), "dtype of 'logits' must be one of float16, float32, .*newer"),
        (lambda m: m["targets"][2].update(shape=[-2]), "shape of 'logits' must have positive sizes"),
        (lambda m: m["targets"][2].update(shape=[2**40]), "shape of 'logits' must have positive sizes"),
        (lambda m: m["targets"][2].update(shape=2), r"targets\[2\].shape must be a list; received 2"),
        (lambda m: m.update(extra=1), "it must have the fields .*; unknown: extra"),
        (lambda m: m.pop("lowercase"), "it must have the fields .*; missing: lowercase"),
        (lambda m: m["identity"].pop("stage"), "identity must have the fields .*; missing: stage"),
        (lambda m: m["identity"].update(features={"logits": ["0"]}), r"identity.features.logits\[0\] must be a whole"),
        (lambda m: m["teacher_config"].update(num_layers=True), "num_layers must be a whole number; received True"),
        (lambda m: m["teacher_config"].update(bottleneck=[]), "teacher_config.bottleneck must be an object; received"),
        (lambda m: m["shards"].clear(), "shards must have consecutive examples"),
        (lambda m: m["shards"][1].update(first=0), "shards must have consecutive examples"),
        (lambda m: m["shards"][1].update(name="../shard"), "the name must be a file name without a folder"),
        (lambda m: m["shards"][1].update(sha256="no"), "the SHA-256 must be 64 hexadecimal digits; received 'no'"),
        (lambda m: m["lengths"].update(size_bytes=-1), "the size must not be negative; received -1"),
        (lambda m: m.update(vocabulary=None), "vocabulary must be an object; received None"),
    ],
)
def test_foreign_manifest_is_one_line(copied: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    sign(copied, change)
    with pytest.raises(UserError, match=f"manifest.json: the manifest is damaged: .*{message}") as raised:
        TeacherCache.open(copied)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shape", [(10**12,), (EXAMPLES + 1,), (EXAMPLES, 1)])
def test_array_header_that_lies_is_refused(copied: Path, shape: tuple[int, ...]) -> None:
    path = copied / "lengths.npy"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": shape})
    content = header.getvalue() + LENGTHS.astype("<i4").tobytes()
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    sign(copied, lambda manifest: manifest["lengths"].update(size_bytes=len(content), sha256=digest))
    with pytest.raises(UserError, match=r"lengths.npy: the file is damaged \(it must be int32 \[29\]; received"):
        TeacherCache.open(copied)


DIFFERENT = {
    "teacher": ("0" * 64, "another teacher .SHA-256 aaaaaaaaaaaa… in the cache, 000000000000… here"),
    "tokenizer": ("0" * 64, "another tokenizer"),
    "dataset": ("0" * 64, "another dataset"),
    "method": ("imitation", "another method .mimicry in the cache, imitation here"),
    "stage": ("second", "another stage .first in the cache, second here"),
    "features": ({"hidden_states": (0, 2)}, r"other features of the teacher .*\[0, 3\].*\[0, 2\]"),
    "options": ({"options.mapping": "top"}, "another value of options.mapping .'uniform' in the cache, 'top' here"),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(TeacherCacheIdentity)])
def test_difference_is_named(finished: Path, name: str) -> None:
    value, message = DIFFERENT[name]
    with pytest.raises(UserError, match=f"must match this run; received {message}") as caught:
        TeacherCache.open(finished, dataclasses.replace(IDENTITY, **{name: value}))
    assert len(re.findall("in the cache", str(caught.value))) == 1
    assert "pass the options of cache-teacher again, including dev=" in str(caught.value)


def test_all_known_differences_are_listed(finished: Path) -> None:
    everything = {name: value for name, (value, _) in DIFFERENT.items()}
    with pytest.raises(UserError) as caught:
        TeacherCache.open(finished, TeacherCacheIdentity(**everything))
    assert len(re.findall("in the cache", str(caught.value))) == len(DIFFERENT)
    # A run without the teacher's folder, and an option that this store's targets do not depend on.
    options = {**IDENTITY.options, "options.temperature": 2.0}
    TeacherCache.open(finished, dataclasses.replace(IDENTITY, teacher=None, tokenizer=None, options=options))


def test_dataset_digest_covers_ids_segments_offsets() -> None:
    base = encoded()
    moved = base.offsets.copy()
    moved[4] += 1
    digests = {
        dataset_digest(base),
        dataset_digest(dataclasses.replace(base, word_ids=base.word_ids + 1)),
        dataset_digest(dataclasses.replace(base, type_ids=1 - base.type_ids)),
        dataset_digest(dataclasses.replace(base, offsets=moved)),
    }
    assert len(digests) == 4
    # Labels are the student's business, and int64 ids are the same ids.
    same = dataclasses.replace(base, labels=None, word_ids=base.word_ids.astype(np.int64))
    assert dataset_digest(same) == dataset_digest(base)


def test_reading_imports_no_model() -> None:
    program = (
        "import sys, pocketbert.data.teacher_cache.reader as s\n"
        "names = [n for n in sys.modules if n.startswith('pocketbert.')]\n"
        "allowed = ('pocketbert.data', 'pocketbert.configs', 'pocketbert.feedforward', 'pocketbert.presets',"
        " 'pocketbert.errors', 'pocketbert.files', 'pocketbert.progress', 'pocketbert.json', 'pocketbert.tokenizers',"
        " 'pocketbert.notation', 'pocketbert._runtime', 'pocketbert.block_configs',"
        " 'pocketbert.heads_config')\n"
        "print([n for n in names if not n.startswith(allowed)], 'tensorflow' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[] False"
