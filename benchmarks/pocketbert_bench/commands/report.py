"""Draws plots and one self-contained HTML page from result files.

RESULT is what `pocketbert bench --output`, a phone or `make bench` wrote. Comparisons are made inside a run, never
across runs: several runs, and our exports on several runtimes, get a section each. Beside a phone's figures stand those
of the MobileBERT paper, marked as the paper's.

Example:
  pocketbert report runs/sst2_int8.json --output=runs/report
  pocketbert report runs/sst2_int8.json runs/phones/pixel_4_3fa2c1.json --output=runs/both
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags

from pocketbert import json_reading
from pocketbert.errors import UserError

POSITIONAL = "RESULT…"
_CHECK_FIELDS = ("name", "passed", "measured", "bound", "reason", "runtime")


def define(flag_values: flags.FlagValues) -> None:
    """Declares the flags."""
    flags.DEFINE_string("output", None, "folder to make: report.html, plots, results", flag_values=flag_values)
    flags.DEFINE_string("title", "PocketBERT report", "the page's heading", flag_values=flag_values)
    flags.DEFINE_list("bundles", [], "bundles whose verification to show", flag_values=flag_values)
    flags.DEFINE_bool("overwrite", False, "replace the folder", flag_values=flag_values)


def run(flag_values: flags.FlagValues, positional: Sequence[str]) -> None:
    """Runs the command."""
    if not positional:
        raise UserError("report needs at least one result file; received none; pocketbert bench --output writes one")
    if not flag_values.output:
        raise UserError("report needs --output, the folder to make; received none")

    from pocketbert_bench import report, results

    page = report.build_report(
        [results.read(path) for path in positional],
        Path(flag_values.output),
        verification={Path(bundle).resolve().name: _verification(Path(bundle)) for bundle in flag_values.bundles},
        title=flag_values.title,
        overwrite=flag_values.overwrite,
    )
    print(page)


def _verification(bundle: Path) -> dict[str, Any]:
    path = bundle / "verification.json"
    content = json_reading.read_json(path)
    try:
        return {"checks": [{name: check[name] for name in _CHECK_FIELDS} for check in content["checks"]]}
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: checks must be a list of objects with {', '.join(_CHECK_FIELDS)}; "
            "run pocketbert verify on the bundle again"
        ) from None
