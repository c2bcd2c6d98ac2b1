"""The options of commands that search a grid, and how they say what was found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Literal

from pocketbert.commands import runs
from pocketbert.commands.command_line import Options
from pocketbert.errors import raise_if_any
from pocketbert.options import option
from pocketbert.progress import log_info
from pocketbert.training.grid import Grid, parse_grid
from pocketbert.training.published_grids import PUBLISHED, check_kind

_ONLY_WITH_A_GRID = ("choose", "parallel", "ray")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GridOptions:
    """A search over options.

    Attributes:
      grid: option=value,value to search, or the name of a paper's grid such as bert; repeat it to search combinations.
        Your values replace the paper's.
      choose: with --grid: statistic over seeds that selects the best point.
      parallel: with --grid: number of parallel runs, which share the cores.
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
    """The grid that the command line names; None if it names none.

    Args:
      options: the command's, with `GridOptions` and `RunFolderOptions`.
      varied: the dataclasses whose fields may vary.
      fixed: fields that may not.

    Raises:
      UserError: lists what cannot be read, and what contradicts.
    """
    search = options[GridOptions]
    if not search.grid:
        alone = options.changed(*_ONLY_WITH_A_GRID)
        raise_if_any([f"{', '.join(alone)} go with --grid; received no grid"] if alone else [], "flags")
        return None
    grid = parse_grid(search.grid, varied, fixed=fixed)
    twice = [f"--{name.replace('_', '-')}" for name in grid.values if options.given(name)]
    problems = []
    if twice:
        problems.append(f"what a grid names has its values there alone; received {', '.join(twice)} too")
    if search.parallel < 1:
        problems.append(f"--parallel must be positive; received {search.parallel}")
    raise_if_any(problems, "grid")
    for name in _papers(search):
        log_info("; ".join(text for text in (f"{name}: {PUBLISHED[name].source}", PUBLISHED[name].note) if text))
    numbers = options[runs.RunFolderOptions].seeds
    if len(numbers) == 1 and numbers[0]:
        log_info(f"one run a point, with seed {numbers[0]}; --seeds=0,1,2 would make three")
    return grid


def search(options: GridOptions, kind: str) -> dict[str, Any]:
    """`choose` and `workers` for `pocketbert.training.grid_run.run_grid`.

    Args:
      options: with a grid.
      kind: the task's.

    Raises:
      UserError: a paper's grid is not for such tasks, or Ray is not installed.
    """
    from pocketbert.training.grid_workers import InTurn, Processes, Ray, Workers

    check_kind(_papers(options), kind)
    workers: Workers = InTurn() if options.parallel == 1 else Processes(options.parallel)
    return {"choose": options.choose, "workers": Ray(options.parallel, options.ray) if options.ray else workers}


def _papers(options: GridOptions) -> list[str]:
    return [name for name in options.grid if name in PUBLISHED]


def answer(options: Options, make: Callable[[], dict[str, Any]]) -> int | None:
    """Searches; prints the result as JSON, and a table on stderr.

    Args:
      options: the command's.
      make: makes the search; its result is that of `pocketbert.training.grid_run.run_grid`.

    Returns:
      1 if training failed at every point, else None.
    """
    from pocketbert.training.grid_report import sentence, table

    def searched() -> dict[str, Any]:
        summary = make()
        for line in [*table(summary), sentence(summary)]:
            log_info(line)
        for warning in summary["warnings"]:
            log_info(f"warning: {warning}")
        return summary

    return runs.print_result(options, searched)
