"""Grid search options and output."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Literal

from pocketbert.commands import runs
from pocketbert.commands.command_line import Options
from pocketbert.errors import raise_if_any
from pocketbert.options import option
from pocketbert.progress import log_info
from pocketbert.training.grids.points import Grid, parse_grid
from pocketbert.training.grids.published import PUBLISHED, check_kind

_ONLY_WITH_A_GRID = ("choose", "parallel", "ray")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Grid search options.

    Attributes:
      grid: search option=value,value or a paper's grid such as bert; repeat it for combinations. Your values replace
        the paper's.
      choose: with --grid: statistic over seeds for choosing the best point.
      parallel: with --grid: parallel runs; they share the cores.
      ray: with --grid: address of a Ray cluster, for example auto; its machines must share the storage of --output,
        --model and question files.
    """

    GROUP: ClassVar = "Grid"
    COMMON: ClassVar = ("grid",)

    grid: tuple[str, ...] = option((), repeated=True)
    choose: Literal["mean", "median", "max"] = "median"
    parallel: int = 1
    ray: str | None = None


def read(options: Options, varied: tuple[type, ...], *, fixed: Collection[str]) -> Grid | None:
    """Reads the grid from the command line; None without a grid.

    Args:
      options: the command's options, with `GridOptions` and `RunFolderOptions`.
      varied: dataclasses with fields to vary.
      fixed: fields that may not vary.
    Raises:
      UserError: lists invalid and contradictory options.
    """
    search = options[GridOptions]
    if not search.grid:
        alone = options.changed(*_ONLY_WITH_A_GRID)
        raise_if_any([f"{', '.join(alone)} must be used with --grid; received no grid"] if alone else [], "flags")
        return None
    grid = parse_grid(search.grid, varied, fixed=fixed)
    twice = [f"--{name.replace('_', '-')}" for name in grid.values if options.given(name)]
    problems = []
    if twice:
        problems.append(f"an option in --grid must not be a flag too; received {', '.join(twice)}")
    if search.parallel < 1:
        problems.append(f"--parallel must be positive; received {search.parallel}")
    raise_if_any(problems, "grid")
    for name in _papers(search):
        log_info("; ".join(text for text in (f"{name}: {PUBLISHED[name].source}", PUBLISHED[name].note()) if text))
    numbers = options[runs.RunFolderOptions].seeds
    if len(numbers) == 1 and numbers[0]:
        log_info(f"one run per point, with seed {numbers[0]}; pass --seeds=0,1,2 for three")
    return grid


def search(options: GridOptions, kind: str) -> dict[str, Any]:
    """Returns `choose` and `workers` for `pocketbert.training.grids.run.run_grid`.

    Raises:
      UserError: a paper's grid does not apply to the task, or Ray is not installed.
    """
    from pocketbert.trials.workers import InTurn, Processes, Ray, Workers

    check_kind(_papers(options), kind)
    workers: Workers = InTurn() if options.parallel == 1 else Processes(options.parallel)
    return {"choose": options.choose, "workers": Ray(options.parallel, options.ray) if options.ray else workers}


def _papers(options: GridOptions) -> list[str]:
    return [name for name in options.grid if name in PUBLISHED]


def answer(options: Options, make: Callable[[], dict[str, Any]]) -> int | None:
    """Runs the search; prints the result as JSON and a table on stderr; returns 1 if training failed at all points.

    Args:
      options: the command's options.
      make: runs the search; returns the result of `pocketbert.training.grids.run.run_grid`.
    """
    from pocketbert.training.grids.report import sentence, table

    def searched() -> dict[str, Any]:
        summary = make()
        for line in [*table(summary), sentence(summary)]:
            log_info(line)
        for warning in summary["warnings"]:
            log_info(f"warning: {warning}")
        return summary

    return runs.print_result(options, searched)
