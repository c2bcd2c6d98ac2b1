"""The flags of commands that search a grid, and how they say what was found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from absl import flags

from pocketbert.commands import run_flags
from pocketbert.errors import raise_if_any
from pocketbert.progress import log_info
from pocketbert.training.grid import STATISTICS, Grid, parse_grid
from pocketbert.training.published_grids import PUBLISHED, check_kind

_ONLY_WITH_A_GRID = ("choose", "parallel", "ray")


def define(flag_values: flags.FlagValues) -> None:
    """Defines `--grid`, `--choose`, `--parallel` and `--ray`."""
    sources = "; ".join(f"{name} ({grid.source})" for name, grid in PUBLISHED.items())
    flags.DEFINE_multi_string(
        "grid",
        None,
        f"option=value,value to try each value, or the grid of a paper: {sources}; several make every combination, and "
        "an option's own values take the place of a paper's",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "choose",
        "median",
        list(STATISTICS),
        "with --grid, of the seeds' main metrics: the point where it is highest is the best",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "parallel", 1, "with --grid: runs at a time, each with its share of the cores", flag_values=flag_values
    )
    flags.DEFINE_string(
        "ray",
        None,
        "with --grid: the address of a Ray cluster to work on, for example auto; its machines share the storage of "
        "--output, --model and files of questions",
        flag_values=flag_values,
    )


def read(flag_values: flags.FlagValues, options: type, *, fixed: Collection[str]) -> Grid | None:
    """The grid that the command line names; None if it names none.

    Args:
      flag_values: parsed.
      options: the dataclass whose fields may vary; their flags have hyphens.
      fixed: fields of it that may not.

    Raises:
      UserError: lists what cannot be read, and what contradicts.
    """
    if not flag_values.grid:
        alone = [f"--{name}" for name in _ONLY_WITH_A_GRID if flag_values[name].present]
        raise_if_any([f"{', '.join(alone)} go with --grid; received no grid"] if alone else [], "flags")
        return None
    grid = parse_grid(flag_values.grid, options, fixed=fixed)
    twice = [f"--{name}" for name in (key.replace("_", "-") for key in grid.values) if flag_values[name].present]
    problems = []
    if twice:
        problems.append(f"what a grid names has its values there alone; received {', '.join(twice)} too")
    if flag_values.parallel < 1:
        problems.append(f"--parallel must be positive; received {flag_values.parallel}")
    raise_if_any(problems, "grid")
    for name in _papers(flag_values):
        log_info("; ".join(text for text in (f"{name}: {PUBLISHED[name].source}", PUBLISHED[name].note) if text))
    numbers = run_flags.seeds(flag_values)
    if len(numbers) == 1 and numbers[0]:
        log_info(f"one run a point, with seed {numbers[0]}; --seeds=0,1,2 would make three")
    return grid


def search(flag_values: flags.FlagValues, kind: str) -> dict[str, Any]:
    """`choose` and `workers` for `pocketbert.training.grid_run.run_grid`.

    Args:
      flag_values: parsed.
      kind: the task's.

    Raises:
      UserError: a paper's grid is not for such tasks, or Ray is not installed.
    """
    from pocketbert.training.grid_workers import InTurn, Processes, Ray, Workers

    check_kind(_papers(flag_values), kind)
    parallel, address = flag_values.parallel, flag_values.ray
    workers: Workers = InTurn() if parallel == 1 else Processes(parallel)
    return {"choose": flag_values.choose, "workers": Ray(parallel, address) if address else workers}


def _papers(flag_values: flags.FlagValues) -> list[str]:
    return [name for name in flag_values.grid if name in PUBLISHED]


def answer(command: str, make: Callable[[], dict[str, Any]]) -> int | None:
    """Searches; prints the result as JSON, and a table on stderr.

    Args:
      command: the command's name, for the message of a search that failed.
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

    return run_flags.print_result(command, searched)
