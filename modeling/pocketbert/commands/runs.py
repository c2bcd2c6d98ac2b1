"""Shared parts for training commands: output folder, seeds, and result tables."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from pocketbert.commands.command_line import Options
from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_text
from pocketbert.options import DirectoryPath
from pocketbert.training.run_folder import COMMAND_FILE, MODEL_FOLDER, OPTIONS_FILE, REPORT_FILE, read_record


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFolderOptions:
    """Run folder and seeds.

    Attributes:
      output: output folder for the run.
      overwrite: delete a finished run in --output, or one with other options.
      seeds: seeds for new weights, dropout and example order, one run each: 0,1,2 for three runs.
    """

    GROUP: ClassVar = "Run"

    output: DirectoryPath
    overwrite: bool = False
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            received = ",".join(map(str, self.seeds))
            raise UserError(f"--seeds must be one or more different numbers; received {received}")


def check_output(options: Options, *, single: bool) -> None:
    """Refuses an output that cannot become a run, before training.

    Args:
      options: the command's options.
      single: whether the output holds one run, rather than several.
    """
    from pocketbert.output_folders import RUN_KIND, check_held

    output = options[RunFolderOptions].output
    if Path(output).is_file() or (single and len(options[RunFolderOptions].seeds) == 1):
        check_held(output, RUN_KIND)


def answer(options: Options, train: Callable[..., Any], *positional: Any, **arguments: Any) -> int | None:
    """Trains once per seed; prints JSON, and for several seeds a table on stderr; returns 1 if training failed."""

    def make() -> dict[str, Any]:
        seeds = options[RunFolderOptions].seeds
        if len(seeds) == 1:
            return dataclasses.asdict(train(*positional, **arguments))
        from pocketbert.training.trainer import train_seeds

        result = train_seeds(train, seeds, *positional, **arguments)
        _print_table(result)
        return result

    return print_result(options, make)


def print_result(
    options: Options,
    make: Callable[[], dict[str, Any]],
    remarks: Callable[[dict[str, Any]], Iterable[str]] = lambda result: (),
) -> int | None:
    """Prints the result as JSON, and writes options and remarks to the run folder; returns 1 if training failed."""
    try:
        # Stdout has the JSON alone, whatever a library prints.
        with contextlib.redirect_stdout(sys.stderr):
            result = make()
    except TrainingFailed as error:
        from pocketbert.progress import log_info

        log_info(f"pocketbert {options.command}: {error}")
        return 1
    if _is_chief(options):
        output, seeds = Path(options[RunFolderOptions].output), options[RunFolderOptions].seeds
        record = (output if len(seeds) == 1 else output / f"seed-{seeds[0]}") / OPTIONS_FILE
        # The record has the rate chosen for the network.
        if options.command == "finetune" and options.values["learning_rate"] is None and record.exists():
            options.resolve(learning_rate=read_record(record).get("learning_rate"))
        comments = "".join(f"# {line}".rstrip() + "\n" for line in remarks(result))
        write_text(output / COMMAND_FILE, options.to_toml() + comments)
    print(json.dumps(result, indent=2, ensure_ascii=False), flush=True)
    _print_places(options, result)
    return None


def _print_places(options: Options, result: dict[str, Any]) -> None:
    """Logs outcome, page and model as the last lines on stderr."""
    from pocketbert.progress import log_info

    output = Path(options[RunFolderOptions].output)
    best = (result.get("best") or {}).get("run")
    model = result.get("model_directory") or result.get("best_model") or (best and str(output / best / MODEL_FOLDER))
    if outcome := result.get("outcome"):
        log_info(result.get("sentence") or outcome["headline"])
        for warning in outcome["warnings"]:
            log_info(f"warning: {warning}")
        # Remarks on a choice among models, including the outcome's warnings.
        for note in result.get("notes", ()):
            if note not in outcome["warnings"]:
                log_info(note)
    pages = [output / REPORT_FILE, *([Path(model).parent / REPORT_FILE] if model else [])]
    for page in [path for path in pages if path.is_file()][:1]:
        log_info(f"page: {page}")
    if model:
        log_info(f"model: {model}")
    if bundle := result.get("bundle_directory"):
        log_info(f"bundle: {bundle}")


def _is_chief(options: Options) -> bool:
    """Whether this process writes files."""
    if options.values.get("distribution") != "multi-worker":
        return True
    from pocketbert.training.distribution import open_distribution

    return open_distribution("multi-worker").is_chief


def _print_table(summary: dict[str, Any]) -> None:
    """Logs the metrics for several runs, one run per line, with mean and spread."""
    from pocketbert.progress import log_info

    names = list(summary["metrics"])
    log_info("seed    " + "".join(f"{name:>12}" for name in names))
    for result in summary["runs"]:
        log_info(f"{result['seed']:<8}" + "".join(f"{result['metrics'][name]:>12.4f}" for name in names))
    # The same for all runs, since they have the same dev split.
    baseline = summary["runs"][0].get("baseline")
    if baseline:
        log_info(
            "baseline" + "".join(f"{baseline['metrics'][name]:>12.4f}" for name in names) + f"  {baseline['answer']}"
        )
    for row, label in (("mean", "mean"), ("standard_deviation", "± sample")):
        log_info(f"{label:<8}" + "".join(f"{summary['metrics'][name][row]:>12.4f}" for name in names))
