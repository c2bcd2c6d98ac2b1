"""HSK's speed study: sides take turns, and the memory of a reading process is printed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import teacher_caches

from studies.hsk import reading, speed


def test_sides_take_turns_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def step(name: str) -> speed.Step:
        return lambda: len(order.append(name) or "")  # type: ignore[func-returns-value]

    clock = iter(range(100))
    monkeypatch.setattr(speed.time, "perf_counter", lambda: float(next(clock)))
    sides = {"s": step("s"), "o": step("o")}
    seconds = speed._seconds(sides, {"s": 3}, 2, lambda: order.append("read"), warm_up=1)
    assert "".join(order) == "so" + "osssread" + "sssoread"
    # The clock ticks once for a side of a pair.
    assert seconds == {"s": [1 / 3, 1 / 3], "o": [1.0, 1.0]}


def test_reading_process_prints_its_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = teacher_caches.write_kept(tmp_path / "store")
    reading.main([str(folder), "5", "20"])
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["before"] <= found["peak"] and found["mapped"] > 0


def test_memory_matches_the_system() -> None:
    array = np.ones(1 << 22)
    private, mapped = reading.memory()
    # Pages of memory: size, resident, and shared with files.
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    assert private > array.nbytes
    # Both are read one after the other, and shared memory without a file counts in one of them only.
    assert private == pytest.approx((resident - shared) * page, abs=1 << 20)
    assert mapped == pytest.approx(shared * page, abs=1 << 22)
