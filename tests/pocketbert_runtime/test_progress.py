from __future__ import annotations

import io
import re

import pytest

from pocketbert_runtime import progress


class Clock:
    """A clock that is moved by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("terminal", [True, False])
def test_time_left_ignores_traced_steps(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, written = Clock(), io.StringIO()
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr(written, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(progress.tqdm, "monitor_interval", 0)
    bar = progress.bar(100, "train", "step")
    bar._time = clock
    bar.start_t = bar.last_print_t = clock.now
    # A minute for the first step, two seconds each for the others: 45 steps are 90 s of work.
    for seconds in [60.0] + [2.0] * 54:
        clock.now += seconds
        bar.update()
    lines = [line for line in re.split(r"[\r\n]", written.getvalue()) if "step" in line]
    left = re.findall(r"(\d+)/100 \[[\d:]+<([\d:?]+)", "\n".join(lines))
    assert ("1", "?") in left or not terminal
    shown = {int(done): value for done, value in left if value != "?"}
    assert shown, written.getvalue()
    for done, value in shown.items():
        minutes, seconds = map(int, value.split(":"))
        assert 60 * minutes + seconds == pytest.approx(2 * (100 - done), abs=2), lines
