"""Runs of a grid that train nothing, for tests; functions of a module, since other processes get them pickled."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.training.grids.points import Grid, Point, point_name
from pocketbert.training.grids.run import run_grid

GRID = Grid({"rate": (3, 1.5), "kind": ("a", "long")})
SEEDS = (7, 2, 4)
RECORDED = {"data": "some"}


def score(point: Point, seed: int) -> float:
    """A number that differs from run to run."""
    return round(0.5 + float(point["rate"]) / 10 + len(str(point["kind"])) / 100 + seed / 1000, 6)  # type: ignore[arg-type]


def finish(folder: Path, seed: int, **metrics: float) -> None:
    """Leaves what a finished run leaves."""
    folder.mkdir(parents=True, exist_ok=True)
    result = {"main_metric": next(iter(metrics)), "metrics": metrics, "seed": seed, "seconds": 2.5}
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def note(log: Path, what: str) -> None:
    """Adds a line; lines of several processes do not mix."""
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(f"{what}\n")


def make(log: Path, point: Point, seed: int, folder: Path, *, company: int = 1) -> None:
    """A run that says who made it, and gives `score`; it ends only after so many have begun."""
    note(log, f"begin {point_name(point)} {seed} {os.getpid()} {os.environ.get('OMP_NUM_THREADS')}")
    print("training says this", file=sys.stderr)
    until = time.monotonic() + 30
    while log.read_text("utf-8").count("begin") < company:
        assert time.monotonic() < until, "nobody came"
        time.sleep(0.01)
    if company > 1:
        # One too many would have the time to come.
        time.sleep(0.3)
    finish(folder, seed, accuracy=score(point, seed))
    note(log, f"end {point_name(point)} {seed} {os.getpid()}")


def die(log: Path, times: int, point: Point, seed: int, folder: Path) -> None:
    """A run with seed 2 is killed so many times; others finish."""
    note(log, f"begin {point_name(point)} {seed}")
    if seed == 2 and log.read_text("utf-8").count(" 2\n") <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    finish(folder, seed, accuracy=score(point, seed))


def fail(how: str, point: Point, seed: int, folder: Path) -> None:
    """A run that ends without a result."""
    if how == "raised":
        raise ZeroDivisionError
    if how == "refused":
        raise UserError("the input must be good; received bad")
    raise TrainingFailed(f"the loss of {folder.name} must stay finite")


def wait(log: Path, point: Point, seed: int, folder: Path) -> None:
    """A run that takes for ever."""
    note(log, str(os.getpid()))
    time.sleep(600)


def search(output: Path, make_run: Any, **changes: Any) -> dict[str, Any]:
    """`run_grid` of `GRID` and `SEEDS`."""
    return run_grid(
        **{"grid": GRID, "seeds": SEEDS, "output": output, "recorded": RECORDED, "make_run": make_run, **changes}
    )


def begun(log: Path) -> list[str]:
    """Point and seed of each run that has begun."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    return [" ".join(line.split()[1:3]) for line in lines if line.startswith("begin")]
