"""The clock of all attempts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pocketbert.errors import UserError
from pocketbert.trials import clock
from pocketbert.trials.clock import RunClock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_seconds_inside_blocks_add_up_over_attempts(now: list[float], tmp_path: Path) -> None:
    path = tmp_path / "time.json"
    for attempt in (1, 2):
        timer = RunClock(path)
        for _ in range(2):
            with timer:
                timer.start_saving()
                now[0] += 3
                assert timer.record("start", lambda: now[0]) == 103
            # Outside a block, time does not count.
            now[0] += 50
        assert timer.seconds == 6 * attempt
        assert json.loads(path.read_text("utf-8")) == {"start": 103.0, "seconds": 6.0 * attempt}


def test_nothing_is_written_before_the_start_of_saving(now: list[float], tmp_path: Path) -> None:
    with RunClock(tmp_path / "time.json") as timer:
        now[0] += 2
    assert timer.seconds == 2 and not list(tmp_path.iterdir())


def test_killed_attempts_lose_only_the_time_since_the_last_save(
    monkeypatch: pytest.MonkeyPatch, now: list[float], tmp_path: Path
) -> None:
    monkeypatch.setattr(clock, "_SAVED_EVERY", 0.01)
    timer = RunClock(tmp_path / "time.json")
    with timer:
        now[0] += 7
        timer.start_saving()
        while not (tmp_path / "time.json").exists():
            pass
        # What the next attempt finds if this one is killed here.
        assert RunClock(tmp_path / "time.json").seconds == 7


def test_durations_are_recorded_once(now: list[float], tmp_path: Path) -> None:
    for seconds in (4.0, 5.0):
        with RunClock(tmp_path / "time.json") as timer:
            timer.start_saving()
            with timer.timed("export"):
                now[0] += seconds
            assert timer.recorded["export"] == 4
    assert timer.record("limit", lambda: float("inf")) == 1e12


@pytest.mark.parametrize("content", ["{}", "[]", "3", '["seconds"]', '{"seconds": "3"}', '{"seconds": 3, "more": "x"}'])
def test_damaged_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "time.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"time.json is damaged; pass overwrite=True to repeat the run: ") as raised:
        RunClock(tmp_path / "time.json")
    assert "\n" not in str(raised.value)
