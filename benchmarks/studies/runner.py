"""Find and run studies: modules of this package with `run(quick: bool) -> dict`, the content of a result file."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pocketbert import files, progress
from pocketbert.errors import UserError, raise_if_any
from pocketbert_bench import results
from studies.closed import CLOSED, LAST_COMMIT, command

Run = Callable[[bool], dict[str, Any]]

_PACKAGE = Path(__file__).resolve().parent
RESULTS = _PACKAGE / "results"


def studies() -> list[str]:
    """Names of all studies, such as `tasks/recipes`."""
    # Read instead of imported: a study may need a library that is not installed.
    return [
        str(path.relative_to(_PACKAGE).with_suffix(""))
        for path in sorted(_PACKAGE.rglob("*.py"))
        if "\ndef run(quick: bool) " in path.read_text(encoding="utf-8")
    ]


def run_of(name: str) -> Run:
    """Returns the function of a study."""
    return importlib.import_module(f"studies.{name.replace('/', '.')}").run


def run_studies(names: Sequence[str], output: Path, *, quick: bool) -> dict[str, Path]:
    """Runs studies in sequence and writes their result files.

    Args:
      names: names of the studies.
      output: folder of the result files; existing files are replaced.
      quick: shortened runs.
    Returns:
      Study → result file. Studies without their data or libraries are skipped with a message on stderr.
    Raises:
      UserError: an unknown name, or a closed measurement.
    """
    if closed := [name for name in names if name in CLOSED]:
        raise UserError(
            f"a study must have its code in the checkout; received {', '.join(closed)}, which are closed; "
            f"check out commit {LAST_COMMIT} and run: {'; '.join(map(command, closed))}"
        )
    known = studies()
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"a study is one of {', '.join(known)}; received {', '.join(unknown)}")
    written = {}
    for name in names:
        progress.log_info(f"study {name}")
        try:
            content = run_of(name)(quick)
        except (UserError, ImportError) as error:
            progress.log_info(f"study {name} is left out: {error}")
            continue
        path = output / f"{name}.json"
        raise_if_any(results.problems(content), str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, content)
        written[name] = path
    return written


def summary(content: results.ResultFile) -> list[str]:
    """Ratios and notes of a result file, one line each."""
    lines = []
    for ratio in content.ratios:
        low, high = ratio.interval
        line = f"{ratio.name}: {ratio.value:.3f} (95 % {low:.3f} to {high:.3f})"
        if ratio.target is not None:
            sign = "<=" if ratio.better == "lower" else ">="
            line += f", target {sign} {ratio.target}: {'met' if ratio.met else 'MISSED'}"
        lines.append(line)
    return lines + list(content.notes)
