from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pocketbert.data import feature_writer
from pocketbert.data.batches import EncodedExamples, plan_batches
from pocketbert.data.feature_layout import StoreIdentity, TargetSpec, dataset_digest, plan_shards, record_bytes
from pocketbert.data.feature_store import FeatureStore
from pocketbert.data.feature_writer import StoreWriter, open_writer, sizes_text
from pocketbert.errors import UserError
from pocketbert.presets import preset

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
IDENTITY = StoreIdentity(
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


def writer(path: Path, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "identity": IDENTITY,
        "teacher_config": CONFIG,
        "teacher_task": None,
        "vocabulary": VOCABULARY,
        "lowercase": False,
        "targets": TARGETS,
        "lengths": LENGTHS,
        "shard_bytes": SHARD_BYTES,
    }
    return open_writer(path, **options | changes)


def fill(store: StoreWriter) -> None:
    for shard in store.pending:
        content = store.blank(shard)
        # In an order of its own, and in two batches, as buckets give it.
        order = np.random.default_rng(shard.first).permutation(shard.examples)
        for rows in filter(len, (order[:2], order[2:])):
            # Not a number in the padding: what nobody reads may be anything.
            content.put(rows, batch_of(rows + shard.first, int(LENGTHS.max()) + 3, filling=np.nan))
        store.write(content)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "first"
    with writer(folder) as store:
        fill(store)
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "first"))


def encoded() -> EncodedExamples:
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    words = np.random.default_rng(2).integers(5, 90, offsets[-1]).astype(np.int32)
    return EncodedExamples(
        word_ids=words, type_ids=words % 2, offsets=offsets, labels=np.arange(EXAMPLES, dtype=np.int32),
        max_length=17, pad_token_id=3,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_example_comes_back_as_it_was_rounded(finished: Path) -> None:
    store = FeatureStore.open(finished, IDENTITY)
    assert len(store) == EXAMPLES and len(list(finished.glob("shard-*.bin"))) > 4
    for example in np.random.default_rng(0).permutation(EXAMPLES):
        found, expected = store.example(int(example)), values_of(int(example))
        assert list(found) == ["attention", "hidden", "logits"]
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value.astype(np.float16), strict=True)


def test_what_is_known_of_the_teacher_without_it(copied: Path) -> None:
    from pocketbert.configs import TaskConfig

    store = FeatureStore.open(copied)
    assert store.teacher_config == CONFIG and CONFIG.bottleneck is not None
    assert store.teacher_task is None and store.identity == IDENTITY
    vocabulary, lowercase = store.vocabulary
    assert vocabulary.read_bytes() == VOCABULARY.read_bytes() and lowercase is False
    task = TaskConfig(kind="classification", name="mood", labels=("low", "high"))
    with writer(copied, teacher_task=task, overwrite=True) as again:
        fill(again)
    assert FeatureStore.open(copied).teacher_task == task


@pytest.mark.parametrize("start", [0, 3])
def test_the_dataset_gives_the_plans_batches_padded_with_zeros(finished: Path, start: int) -> None:
    from pocketbert.data.batches import dataset

    examples = encoded()
    plan = plan_batches(examples.lengths, batch_size=4, seed=2, epoch=1)
    got = list(FeatureStore.open(finished).dataset(examples, plan, start))
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


def test_a_function_of_the_dataset_is_traced_once(finished: Path) -> None:
    import tensorflow as tf

    examples = dataclasses.replace(encoded(), labels=None)
    batches = FeatureStore.open(finished).dataset(examples, plan_batches(LENGTHS, batch_size=4, seed=0, epoch=0))
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
    assert [step(*each) for each in batches] and len(traces) == 1 and len(widths) > 1
    assert "labels" not in batches.element_spec[0]


def test_other_examples_than_the_stores_are_refused(finished: Path) -> None:
    shorter = dataclasses.replace(encoded(), offsets=encoded().offsets[:-1])
    with pytest.raises(UserError, match="received 28 examples of other lengths than the store's 29"):
        FeatureStore.open(finished).dataset(shorter, [np.array([0])])


def test_nothing_but_real_tokens_is_stored(finished: Path) -> None:
    # By hand: an example of l tokens has 3 heads x l x l, l x 6 and 2 numbers of two bytes.
    by_hand = sum(2 * (3 * length * length + 6 * length + 2) for length in LENGTHS.tolist())
    shards = sum(path.stat().st_size for path in finished.glob("shard-*.bin"))
    assert shards == by_hand == int(record_bytes(TARGETS, LENGTHS).sum())


def test_hidden_states_cost_their_numbers_and_hardly_more(tmp_path: Path) -> None:
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


def test_the_size_is_known_before_the_first_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "first"
    with writer(folder) as store:
        predicted = store.manifest.size_bytes
        assert not list(folder.glob("shard-*"))
        fill(store)
    assert predicted == sum(path.stat().st_size for path in folder.iterdir())
    printed = capsys.readouterr().err
    assert f"{predicted:,} bytes in " in printed
    tokens, pairs = LENGTHS.sum(), (LENGTHS**2).sum()
    assert sizes_text(TARGETS, LENGTHS) == [
        f"12 bytes a token (hidden) x {tokens:,} = {12 * tokens:,} bytes",
        f"6 bytes a pair of tokens (attention) x {pairs:,} = {6 * pairs:,} bytes",
        f"4 bytes an example (logits) x {EXAMPLES:,} = {4 * EXAMPLES:,} bytes",
    ]
    for line in sizes_text(TARGETS, LENGTHS):
        assert line in printed


def test_too_small_a_disk_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path / "elsewhere") as store:
        needed = store.manifest.size_bytes
    usage = shutil.disk_usage(tmp_path)

    def free(value: int) -> None:
        monkeypatch.setattr(feature_writer.shutil, "disk_usage", lambda _: usage._replace(free=value))

    free(needed - 1)
    with (
        pytest.raises(UserError, match=f"room for {needed:,} more bytes; it has {needed - 1:,}"),
        writer(tmp_path / "first"),
    ):
        pass
    assert not (tmp_path / "first").exists()
    free(needed)
    with writer(tmp_path / "first") as store:
        content = store.blank(store.pending[0])
        content.filled[:] = True
        store.write(content)
    # What is there already needs no room.
    free(needed - store.manifest.shards[0].size_bytes)
    with writer(tmp_path / "first") as store:
        assert len(store.pending) == len(store.manifest.shards) - 1


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_damage_is_refused_by_name(copied: Path) -> None:
    def refused(message: str, verify: bool = True) -> None:
        with pytest.raises(UserError, match=message) as caught:
            FeatureStore.open(copied, IDENTITY, verify=verify)
        assert "\n" not in str(caught.value)

    third, original = copied / "shard-00003.bin", (copied / "shard-00003.bin").read_bytes()
    flip(third, len(original) // 2)
    refused(r"shard-00003.bin is damaged \(its SHA-256 differs")
    # Sizes alone cannot tell.
    FeatureStore.open(copied, IDENTITY, verify=False)
    third.write_bytes(original[:-1])
    size = len(original)
    refused(f"shard-00003.bin must have {size} bytes; received {size - 1}", verify=False)
    third.unlink()
    (copied / "shard-00001.bin").unlink()
    refused("shard-00001.bin is missing.*shard-00003.bin is missing", verify=False)


@pytest.mark.parametrize("name", ["lengths.npy", "manifest.json", "vocab.txt"])
def test_a_flipped_byte_in_the_other_files_is_found(copied: Path, name: str) -> None:
    content = (copied / name).read_bytes()
    tried = 0
    for place in range(0, len(content), 1 + len(content) // 50):
        # White space between the parts of a JSON text is no part of what it says.
        if name == "manifest.json" and content[place : place + 1].isspace():
            continue
        flip(copied / name, place)
        with pytest.raises(UserError):
            FeatureStore.open(copied, IDENTITY)
        (copied / name).write_bytes(content)
        tried += 1
    assert tried > 1
    FeatureStore.open(copied, IDENTITY)


def test_an_unfinished_store_is_refused(tmp_path: Path) -> None:
    with writer(tmp_path / "first") as store:
        content = store.blank(store.pending[1])
        content.filled[:] = True
        store.write(content)
    count = len(store.manifest.shards)
    with pytest.raises(UserError, match=f"must be finished; received 1 of {count} shards"):
        FeatureStore.open(tmp_path / "first")


def test_what_is_no_store_is_refused(tmp_path: Path, copied: Path) -> None:
    with pytest.raises(UserError, match="received .*, which has none; make it with pocketbert teacher-dump"):
        FeatureStore.open(tmp_path / "nothing")
    manifest = json.loads((copied / "manifest.json").read_text())
    for change, message in (
        ({"format": "photographs"}, "no feature store's manifest; received format 'photographs'"),
        ({"version": 2}, "must be of version 1; received 2"),
    ):
        (copied / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(UserError, match=message):
            FeatureStore.open(copied)


@pytest.mark.parametrize(("field", "known"), [("encoding", "plain"), ("dtype", "float16, float32")])
def test_formats_of_later_versions_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, known: str
) -> None:
    later = dataclasses.replace(TARGETS[2], **{field: "bits"})
    monkeypatch.setitem(feature_writer.DTYPES, "bits", np.dtype("<f2"))
    with writer(tmp_path / "first", targets=(later,)):
        pass
    monkeypatch.undo()
    with pytest.raises(UserError, match=f"the {field} of logits must be one of {known}; received bits; a newer"):
        FeatureStore.open(tmp_path / "first")


DIFFERENT = {
    "teacher": ("0" * 64, "another teacher .SHA-256 aaaaaaaaaaaa… in the store, 000000000000… here"),
    "tokenizer": ("0" * 64, "another tokenizer"),
    "dataset": ("0" * 64, "another dataset"),
    "method": ("imitation", "another method .mimicry in the store, imitation here"),
    "stage": ("second", "another stage .first in the store, second here"),
    "features": ({"hidden_states": (0, 2)}, r"other features of the teacher .*\[0, 3\].*\[0, 2\]"),
    "options": ({"options.mapping": "top"}, "another value of options.mapping .'uniform' in the store, 'top' here"),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(StoreIdentity)])
def test_what_differs_is_named(finished: Path, name: str) -> None:
    value, message = DIFFERENT[name]
    with pytest.raises(UserError, match=f"cannot stand for the teacher here: {message}") as caught:
        FeatureStore.open(finished, dataclasses.replace(IDENTITY, **{name: value}))
    assert len(re.findall("in the store", str(caught.value))) == 1


def test_all_differences_are_listed_and_what_is_not_known_is_not_compared(finished: Path) -> None:
    everything = {name: value for name, (value, _) in DIFFERENT.items()}
    with pytest.raises(UserError) as caught:
        FeatureStore.open(finished, StoreIdentity(**everything))
    assert len(re.findall("in the store", str(caught.value))) == len(DIFFERENT)
    # A run without the teacher's folder, and an option that this store's targets do not depend on.
    options = {**IDENTITY.options, "options.temperature": 2.0}
    FeatureStore.open(finished, dataclasses.replace(IDENTITY, teacher=None, tokenizer=None, options=options))


def test_the_datasets_digest_sees_ids_segments_and_borders() -> None:
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


def kill_at(event: str, number: int) -> None:
    """Makes this process kill itself before (`aside`) or after (`placed`) its N-th rename."""
    replace, left = os.replace, number

    def counted(source: Any, target: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0 and event == "placed":
            replace(source, target)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = counted  # type: ignore[assignment]


def attempt(folder: Path, event: str, number: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            kill_at(event, number)
            with writer(folder) as store:
                fill(store)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_at_any_rename_it_ends_with_the_same_bytes(tmp_path: Path, finished: Path) -> None:
    # An attempt renames the manifest, the two small files, then two files a shard; each gets a little further.
    folder = tmp_path / "first"
    for event in ("aside", "placed"):
        for number in (1, 2, 3, 4, 5, 6, 7):
            assert attempt(folder, event, number) == -signal.SIGKILL
    with writer(folder) as store:
        done = len(store.manifest.shards) - len(store.pending)
        assert 0 < done < len(store.manifest.shards)
        fill(store)
    assert contents(folder) == contents(finished)


def test_what_is_finished_is_kept_and_what_is_damaged_made_again(
    copied: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copied / "shard-00002.bin").stat().st_mtime_ns
    flip(copied / "shard-00001.bin", 5)
    (copied / "shard-00004.bin").unlink()
    with writer(copied) as store:
        assert [shard.name for shard in store.pending] == ["shard-00001.bin", "shard-00004.bin"]
        fill(store)
    assert "damaged and made again: shard-00001.bin, shard-00004.bin" in capsys.readouterr().err
    assert contents(copied) == contents(finished)
    assert (copied / "shard-00002.bin").stat().st_mtime_ns == before


def test_another_store_is_not_written_over(copied: Path, finished: Path) -> None:
    other = dataclasses.replace(IDENTITY, teacher="0" * 64)
    with (
        pytest.raises(UserError, match="holds a store with another teacher .*or pass --overwrite"),
        writer(copied, identity=other),
    ):
        pass
    wide = tuple(dataclasses.replace(target, dtype="float32") for target in TARGETS)
    with (
        pytest.raises(UserError, match="holds a store with targets of other names, shapes or types"),
        writer(copied, targets=wide),
    ):
        pass
    with (
        pytest.raises(UserError, match="holds a store with shards of another size"),
        writer(copied, shard_bytes=2 * SHARD_BYTES),
    ):
        pass
    assert contents(copied) == contents(finished) | {".lock": b""}
    with writer(copied, targets=wide, overwrite=True) as store:
        assert len(store.pending) == len(store.manifest.shards)
        fill(store)
    assert FeatureStore.open(copied).example(3)["hidden"].dtype == np.float32
    strange = copied.parent / "strange"
    strange.mkdir()
    (strange / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds something else"), writer(strange, overwrite=True):
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_finished_store_is_left_as_it_is_without_overwrite(copied: Path, overwrite: bool) -> None:
    with writer(copied, overwrite=overwrite) as store:
        assert len(store.pending) == (len(store.manifest.shards) if overwrite else 0)


def test_two_writers_do_not_share_a_store(tmp_path: Path) -> None:
    with (
        writer(tmp_path / "first"),
        pytest.raises(UserError, match="one process at a time"),
        writer(tmp_path / "first"),
    ):
        pass


@pytest.fixture
def content(tmp_path: Path) -> Iterator[feature_writer.ShardContent]:
    with writer(tmp_path / "first") as store:
        yield store.blank(store.pending[0])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (65505.0, "the target hidden must fit float16, at most 65504; received 65505; store it with --dtype=float32"),
        (-7e4, "received 70000"),
        (np.inf, "the target hidden must be finite; received inf"),
        (np.nan, "the target hidden must be finite; received nan"),
    ],
)
def test_what_float16_cannot_hold_is_an_error(content: feature_writer.ShardContent, value: float, message: str) -> None:
    batch = batch_of(np.array([0]), 20, filling=np.inf)
    batch["hidden"][0, LENGTHS[0] - 1, 2] = value
    with pytest.raises(UserError, match=message):
        content.put(np.array([0]), batch)
    batch["hidden"][0, LENGTHS[0] - 1, 2] = 65504.0
    content.put(np.array([0]), batch)


def test_float32_holds_more(tmp_path: Path) -> None:
    wide = tuple(dataclasses.replace(target, dtype="float32") for target in TARGETS)
    with writer(tmp_path / "first", targets=wide) as store:
        batch = batch_of(np.array([0]), 20, filling=0.0)
        batch["logits"][0] = 1e30
        store.blank(store.pending[0]).put(np.array([0]), batch)


def test_a_shard_without_all_its_examples_is_not_written(tmp_path: Path) -> None:
    with writer(tmp_path / "first") as store:
        with pytest.raises(ValueError, match="shard-00000.bin: .* examples have no targets"):
            store.write(store.blank(store.pending[0]))


def test_shards_cover_all_examples_in_order() -> None:
    for size in (1, 700, 3000, 10**9):
        shards = plan_shards(TARGETS, LENGTHS, size)
        assert shards[0].first == 0 and sum(shard.examples for shard in shards) == EXAMPLES
        for before, after in zip(shards, shards[1:], strict=False):
            assert after.first == before.first + before.examples
        assert sum(shard.size_bytes for shard in shards) == record_bytes(TARGETS, LENGTHS).sum()
    assert len(plan_shards(TARGETS, LENGTHS, 1)) == EXAMPLES
    assert len(plan_shards(TARGETS, LENGTHS, 10**9)) == 1


def test_reading_imports_no_model() -> None:
    program = (
        "import sys, pocketbert.data.feature_store as s\n"
        "names = [n for n in sys.modules if n.startswith('pocketbert.')]\n"
        "allowed = ('pocketbert.data', 'pocketbert.configs', 'pocketbert.presets', 'pocketbert.errors',"
        " 'pocketbert.files', 'pocketbert.progress')\n"
        "print([n for n in names if not n.startswith(allowed)], 'tensorflow' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[] False"
