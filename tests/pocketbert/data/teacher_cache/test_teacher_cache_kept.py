"""Caches of targets with a row for each kept token: only the rows that an example has are stored."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from teacher_caches import (
    CANDIDATES,
    EXAMPLES,
    IDENTITY,
    KEPT_TARGETS,
    LENGTHS,
    contents,
    encoded,
    kept_batch,
    sign,
    write_kept,
)

from pocketbert.data.batches import plan_batches
from pocketbert.data.teacher_cache.reader import TeacherCache
from pocketbert.data.teacher_cache.targets import TargetSpec, record_bytes
from pocketbert.data.teacher_cache.writer import sizes_text
from pocketbert.errors import UserError

# By hand, for each kept token; 7 of 300 indices have 7 * 5 low bits and 7 + 299 // 32 + 1 places.
UNIT = 1 + 7 + 12 + (35 + 17 + 7) // 8
ROWS = np.minimum(CANDIDATES, 4)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_kept(tmp_path_factory.mktemp("stores") / "first")


def test_only_candidates_have_rows(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = sum(path.stat().st_size for path in kept.glob("shard-*.bin"))
    assert shards == UNIT * ROWS.sum() == record_bytes(KEPT_TARGETS, LENGTHS, CANDIDATES).sum()
    assert shards < record_bytes(KEPT_TARGETS, LENGTHS).sum() == UNIT * 4 * EXAMPLES
    assert sizes_text(KEPT_TARGETS, LENGTHS, CANDIDATES) == [
        f"{UNIT} bytes per kept token (places, scaled, values, widths) x {ROWS.sum()} = {shards:,} bytes"
    ]
    np.testing.assert_array_equal(np.load(kept / "candidates.npy"), CANDIDATES.astype(np.int32), strict=True)


def test_size_with_candidates_is_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_kept(tmp_path / "first")
    size = sum(path.stat().st_size for path in folder.glob("[!.]*"))
    assert f"{size:,} bytes in {len(list(folder.glob('[!.]*')))} files" in capsys.readouterr().err


def test_missing_rows_become_zeros(kept: Path) -> None:
    examples = encoded()
    plan = plan_batches(LENGTHS, batch_size=6, seed=2, epoch=1)
    assert 1 in ROWS and 4 in ROWS and len(list(kept.glob("shard-*.bin"))) > 3
    for (_, targets), indices in zip(TeacherCache.open(kept).dataset(examples, plan), plan, strict=True):
        for name, value in kept_batch(indices, filling=0.0).items():
            np.testing.assert_array_equal(targets[name].numpy(), value)
            assert targets[name].dtype == ("int32" if name in ("places", "widths") else "float32")


def test_example_has_its_rows(kept: Path) -> None:
    store = TeacherCache.open(kept, IDENTITY)
    for example in range(EXAMPLES):
        expected = kept_batch(np.array([example]), filling=0.0)
        for name, value in store.example(example).items():
            np.testing.assert_array_equal(value, expected[name][0, : ROWS[example]])


def test_sizes_group_targets_by_tokens() -> None:
    targets = (*KEPT_TARGETS, TargetSpec(name="wide", shape=(9, 4), dtype="float32", kept=True))
    count = np.minimum(CANDIDATES, 9).sum()
    assert sizes_text(targets, LENGTHS, CANDIDATES)[1] == (
        f"16 bytes per kept token (wide) x {count} = {16 * count:,} bytes"
    )


def test_other_caches_have_no_new_fields(finished: Path, kept: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    assert "candidates" not in manifest and set(manifest["targets"][0]) == {
        "name", "shape", "dtype", "encoding", "limit",
    }  # fmt: skip
    manifest = json.loads((kept / "manifest.json").read_text())
    assert manifest["candidates"]["name"] == "candidates.npy" and manifest["targets"][0]["kept"] is True


def test_example_without_candidates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="every example must have a token to keep; received example 3 without one"):
        write_kept(tmp_path / "first", candidates=np.where(np.arange(EXAMPLES) == 3, 0, CANDIDATES))
    assert not (tmp_path / "first").exists()


@pytest.mark.parametrize(
    ("shape", "changes"),
    [((), {}), ((4, None), {}), ((None, 5), {}), ((4,), {"dtype": "int8", "encoding": "scaled"})],
)
def test_kept_tokens_must_come_first(shape: tuple[int | None, ...], changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="the (shape|encoding) of 'values' must .*; received"):
        TargetSpec(**{"name": "values", "shape": shape, "dtype": "float16", "kept": True, **changes})


def test_other_compression_is_named(kept: Path) -> None:
    before = contents(kept)
    bits = tuple(dataclasses.replace(t, encoding="bits") if t.name == "widths" else t for t in KEPT_TARGETS[1:])
    message = (
        r"has a cache with another layout of 'places' \(uint8 \[4\], plain, kept tokens in the cache, absent here\); "
        r"another layout of 'widths' \(uint16 \[4, 7\] of 300, elias-fano, kept tokens in the cache, "
        r"uint16 \[4, 7\] of 300, bits, kept tokens here\); choose another output"
    )
    with pytest.raises(UserError, match=message):
        write_kept(kept, targets=bits)
    assert contents(kept) == before


def with_candidates(folder: Path, candidates: np.ndarray) -> None:
    """Replaces the candidates, with digests that fit."""
    stream = io.BytesIO()
    np.save(stream, candidates.astype("<i4"))
    content = stream.getvalue()
    (folder / "candidates.npy").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    sign(folder, lambda manifest: manifest["candidates"].update(sha256=digest, size_bytes=len(content)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda counts: counts - 2, "at least 1 candidate, and at most one for each token; received others"),
        (lambda counts: counts + 3, "at least 1 candidate, and at most one for each token; received others"),
        (lambda counts: np.maximum(counts - 1, 1), "the lengths must match the shards; received others"),
        (lambda counts: counts[1:], r"candidates.npy: the file is damaged \(it must be int32 \[29\]"),
    ],
)
def test_contradictory_candidates_are_refused(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    folder = write_kept(tmp_path / "first")
    with_candidates(folder, change(CANDIDATES))
    with pytest.raises(UserError, match=message) as raised:
        TeacherCache.open(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(candidates=None),
        lambda m: [target.update(kept=False) for target in m["targets"]],
    ],
)
def test_candidates_belong_to_kept_tokens(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    folder = write_kept(tmp_path / "first")
    sign(folder, change)
    with pytest.raises(UserError, match="must have candidates for targets with kept tokens, and for no others"):
        TeacherCache.open(folder)


def test_damaged_candidates_are_refused(tmp_path: Path) -> None:
    folder = write_kept(tmp_path / "first")
    content = (folder / "candidates.npy").read_bytes()
    (folder / "candidates.npy").write_bytes(content[:-1] + b"\x01")
    with pytest.raises(UserError, match="candidates.npy is damaged"):
        TeacherCache.open(folder)
    (folder / "candidates.npy").unlink()
    with pytest.raises(UserError, match="candidates.npy is missing"):
        TeacherCache.open(folder)
