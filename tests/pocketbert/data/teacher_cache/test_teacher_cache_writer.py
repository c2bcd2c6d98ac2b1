from __future__ import annotations

import dataclasses
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from teacher_caches import (
    EXAMPLES,
    IDENTITY,
    LENGTHS,
    SHARD_BYTES,
    TARGETS,
    batch_of,
    contents,
    fill,
    flip,
    plan,
    writer,
)

from pocketbert.data.teacher_cache import writer as teacher_cache_writer
from pocketbert.data.teacher_cache.layout import plan_shards
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.data.teacher_cache.targets import record_bytes
from pocketbert.data.teacher_cache.writer import open_writers, sizes_text
from pocketbert.errors import UserError


def test_size_is_known_in_advance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "first"
    with writer(folder) as store:
        predicted = store.manifest.size_bytes
        assert not list(folder.glob("shard-*"))
        fill(store)
    assert predicted == sum(path.stat().st_size for path in folder.glob("[!.]*"))
    printed = capsys.readouterr().err
    assert f"{predicted:,} bytes in " in printed
    tokens, pairs = LENGTHS.sum(), (LENGTHS**2).sum()
    assert sizes_text(TARGETS, LENGTHS) == [
        f"12 bytes per token (hidden) x {tokens:,} = {12 * tokens:,} bytes",
        f"6 bytes per pair of tokens (attention) x {pairs:,} = {6 * pairs:,} bytes",
        f"4 bytes per example (logits) x {EXAMPLES:,} = {4 * EXAMPLES:,} bytes",
    ]
    for line in sizes_text(TARGETS, LENGTHS):
        assert line in printed


def test_small_disk_is_refused_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writer(tmp_path / "elsewhere") as store:
        needed = store.manifest.size_bytes
    usage = shutil.disk_usage(tmp_path)

    def free(value: int) -> None:
        monkeypatch.setattr(teacher_cache_writer.shutil, "disk_usage", lambda _: usage._replace(free=value))

    free(needed - 1)
    with (
        pytest.raises(UserError, match=f"must have {needed:,} free bytes; received {needed - 1:,}"),
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


def test_all_caches_must_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second = dataclasses.replace(IDENTITY, stage="second")
    plans = [plan(tmp_path / "first"), plan(tmp_path / "second", identity=second, targets=TARGETS[:2])]
    needed = [plan.manifest().size_bytes for plan in plans]
    usage = shutil.disk_usage(tmp_path)
    for free in (sum(needed) - 1, sum(needed)):
        monkeypatch.setattr(teacher_cache_writer.shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
        if free < sum(needed):
            message = f"first, .*second: the disk must have {sum(needed):,} free bytes; received {free:,}"
            with pytest.raises(UserError, match=message), open_writers(plans):
                pass
            assert not list(tmp_path.iterdir())
        else:
            with open_writers(plans) as writers:
                assert [writer.path.name for writer in writers] == ["first", "second"]


def test_deleted_cache_counts_as_free_space(copied: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = tuple(dataclasses.replace(target, dtype="float32") for target in TARGETS)
    needed = plan(copied, targets=wide).manifest().size_bytes
    there = sum(path.stat().st_size for path in copied.glob("shard-*.bin"))
    usage = shutil.disk_usage(copied)
    monkeypatch.setattr(teacher_cache_writer.shutil, "disk_usage", lambda _: usage._replace(free=needed - there - 1))
    with (
        pytest.raises(UserError, match="the disk must have .* free bytes"),
        writer(copied, targets=wide, overwrite=True),
    ):
        pass
    assert contents(copied) == contents(finished)
    monkeypatch.setattr(teacher_cache_writer.shutil, "disk_usage", lambda _: usage._replace(free=needed - there))
    with writer(copied, targets=wide, overwrite=True):
        assert not list(copied.glob("shard-*.bin"))


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


def test_killed_writer_gives_the_same_bytes(tmp_path: Path, finished: Path) -> None:
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


def test_damaged_shards_are_made_again(copied: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (copied / "shard-00002.bin").stat().st_mtime_ns
    flip(copied / "shard-00001.bin", 5)
    (copied / "shard-00004.bin").unlink()
    with writer(copied) as store:
        assert [shard.name for shard in store.pending] == ["shard-00001.bin", "shard-00004.bin"]
        fill(store)
    assert "making damaged shards again: shard-00001.bin, shard-00004.bin" in capsys.readouterr().err
    assert contents(copied) == contents(finished)
    assert (copied / "shard-00002.bin").stat().st_mtime_ns == before


def test_other_cache_is_not_overwritten(copied: Path, finished: Path) -> None:
    other = dataclasses.replace(IDENTITY, teacher="0" * 64)
    with (
        pytest.raises(UserError, match="has a cache with another teacher .*or pass overwrite=True"),
        writer(copied, identity=other),
    ):
        pass
    wide = tuple(dataclasses.replace(target, dtype="float32") for target in TARGETS)
    with (
        pytest.raises(
            UserError, match=r"has a cache with another layout of 'attention' \(float16 .*; another .*hidden"
        ),
        writer(copied, targets=wide),
    ):
        pass
    with (
        pytest.raises(UserError, match="has a cache with another shard size"),
        writer(copied, shard_bytes=2 * SHARD_BYTES),
    ):
        pass
    assert contents(copied) == contents(finished)
    with writer(copied, targets=wide, overwrite=True) as store:
        assert len(store.pending) == len(store.manifest.shards)
        fill(store)
    assert TeacherCache.open(copied).example(3)["hidden"].dtype == np.float32
    strange = copied.parent / "strange"
    strange.mkdir()
    (strange / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds something else"), writer(strange, overwrite=True):
        pass


@pytest.mark.parametrize("overwrite", [False, True])
def test_finished_cache_is_unchanged_without_overwrite(copied: Path, overwrite: bool) -> None:
    with writer(copied, overwrite=overwrite) as store:
        assert len(store.pending) == (len(store.manifest.shards) if overwrite else 0)


def test_second_writer_is_refused(tmp_path: Path) -> None:
    with (
        writer(tmp_path / "first"),
        pytest.raises(UserError, match="one process at a time"),
        writer(tmp_path / "first"),
    ):
        pass


@pytest.fixture
def content(tmp_path: Path) -> Iterator[teacher_cache_writer.ShardContent]:
    with writer(tmp_path / "first") as store:
        yield store.blank(store.pending[0])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (65505.0, "the target hidden must fit into float16, at most 65504; received 65505; use dtype='float32'"),
        (-7e4, "received 70000"),
        (np.inf, "the target hidden must be finite; received inf"),
        (np.nan, "the target hidden must be finite; received nan"),
    ],
)
def test_value_beyond_float16_is_refused(
    content: teacher_cache_writer.ShardContent, value: float, message: str
) -> None:
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


def test_incomplete_shard_is_not_written(tmp_path: Path) -> None:
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
