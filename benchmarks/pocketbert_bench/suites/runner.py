"""Runs suites: modules of this folder with `run(quick: bool) -> dict`, a result file's content."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert import files, progress
from pocketbert.errors import UserError, raise_if_any
from pocketbert_bench import results

Run = Callable[[bool], dict[str, Any]]


def suites() -> dict[str, Run]:
    """Name → `run` of every suite."""
    package = importlib.import_module("pocketbert_bench.suites")
    found = {}
    for each in pkgutil.iter_modules(package.__path__):
        if each.name not in ("runner", "__main__"):
            module = importlib.import_module(f"pocketbert_bench.suites.{each.name}")
            if hasattr(module, "run"):
                found[each.name] = module.run
    return found


def run_suites(names: Sequence[str], output: Path, *, quick: bool) -> dict[str, Path]:
    """Runs suites one after another and writes each one's result file.

    Args:
      names: suites; all of them if empty.
      output: folder of the result files; files of the same name are replaced.
      quick: shortened runs.
    Returns:
      Suite → its file. A suite that cannot run here (data or a peer is absent) is named on stderr and left out.
    Raises:
      UserError: a name that is no suite.
    """
    _keep_torch_out()
    known = suites()
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"a suite is one of {', '.join(known)}; received {', '.join(unknown)}")
    written = {}
    for name in names or known:
        progress.say(f"suite {name}")
        try:
            content = known[name](quick)
        except (UserError, ImportError) as error:
            progress.say(f"suite {name} is left out: {error}")
            continue
        path = output / f"{name}.json"
        raise_if_any(results.problems(content), str(path))
        files.write_json(path, content)
        written[name] = path
    return written


def summary(content: dict[str, Any]) -> list[str]:
    """A result file's comparisons and notes, a line each."""
    lines = []
    for ratio in content["ratios"]:
        low, high = ratio["interval"]
        line = f"{ratio['name']}: {ratio['value']:.3f} (95 % {low:.3f} to {high:.3f})"
        if ratio["target"] is not None:
            sign = "<=" if ratio["better"] == "lower" else ">="
            line += f", target {sign} {ratio['target']}: {'met' if ratio['met'] else 'MISSED'}"
        lines.append(line)
    return lines + list(content["notes"])


def main(run: Run) -> None:
    """A suite as a program: prints its result file on stdout; `--quick` shortens it."""
    _keep_torch_out()
    flag_values = flags.FlagValues()
    flags.DEFINE_bool("quick", False, "a shortened run, good for a look", flag_values=flag_values)
    try:
        if rest := flag_values(sys.argv)[1:]:
            raise UserError(f"a suite takes --quick alone; received {' '.join(rest)}")
        content = run(flag_values.quick)
    except (UserError, flags.Error) as error:
        sys.exit(f"{error}")
    for line in summary(content):
        progress.say(line)
    print(json.dumps(content, indent=2))


def _keep_torch_out() -> None:
    """Transformers would import torch where it is installed, and torch and TensorFlow in one process abort."""
    os.environ["USE_TORCH"] = "0"
