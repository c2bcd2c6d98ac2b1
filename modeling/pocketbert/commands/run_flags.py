"""The flags of commands that make runs: their folder, their seeds, and a table of several runs' results."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

from absl import flags

from pocketbert.errors import TrainingFailed, UserError


def define(flag_values: flags.FlagValues) -> None:
    """Defines `--output`, `--overwrite` and `--seeds`."""
    flags.DEFINE_string("output", None, "the run's folder", flag_values=flag_values)
    flags.DEFINE_boolean(
        "overwrite", False, "throw away a finished run in --output, or one with other options", flag_values=flag_values
    )
    flags.DEFINE_list(
        "seeds",
        ["0"],
        "the seeds themselves, of fresh weights, dropout and order: 0,1,2 makes three runs, 3 makes one",
        flag_values=flag_values,
    )


def seeds(flag_values: flags.FlagValues) -> list[int]:
    """The numbers of `--seeds`.

    Raises:
      UserError: they are not different whole numbers.
    """
    texts = flag_values.seeds
    try:
        numbers = [int(text) for text in texts]
    except ValueError:
        raise UserError(
            "--seeds must be the seeds themselves, whole numbers with commas between them; received "
            f"{','.join(texts)}; for three runs pass --seeds=0,1,2"
        ) from None
    if not numbers or len(set(numbers)) != len(numbers):
        raise UserError(f"--seeds must be at least one number, all different; received {','.join(texts)}")
    return numbers


def answer(
    command: str, numbers: list[int], train: Callable[[], Any], train_seeds: Callable[[], dict[str, Any]]
) -> int | None:
    """Trains and prints the result as JSON; of several seeds, a table on stderr too.

    Args:
      command: the command's name, for the message of a training that failed.
      numbers: the seeds.
      train: makes the run of one seed; its result is a dataclass.
      train_seeds: makes the runs of several.

    Returns:
      1 if training failed, else None.
    """

    def make() -> dict[str, Any]:
        if len(numbers) == 1:
            return dataclasses.asdict(train())
        result = train_seeds()
        _print_table(result)
        return result

    return print_result(command, make)


def print_result(command: str, make: Callable[[], dict[str, Any]]) -> int | None:
    """Prints what `make` returns as JSON.

    Returns:
      1 if training failed, else None.
    """
    try:
        result = make()
    except TrainingFailed as error:
        print(f"pocketbert {command}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2, ensure_ascii=False))
    return None


def _print_table(summary: dict[str, Any]) -> None:
    """Says the metrics of several runs, one run a line, then their mean and spread."""
    from pocketbert.progress import log_info

    names = list(summary["metrics"])
    log_info("seed    " + "".join(f"{name:>12}" for name in names))
    for result in summary["runs"]:
        log_info(f"{result['seed']:<8}" + "".join(f"{result['metrics'][name]:>12.4f}" for name in names))
    # The same for all, since all are scored on the same examples.
    baseline = summary["runs"][0].get("baseline")
    if baseline:
        log_info(
            "baseline" + "".join(f"{baseline['metrics'][name]:>12.4f}" for name in names) + f"  {baseline['answer']}"
        )
    for row, label in (("mean", "mean"), ("standard_deviation", "± sample")):
        log_info(f"{label:<8}" + "".join(f"{summary['metrics'][name][row]:>12.4f}" for name in names))
