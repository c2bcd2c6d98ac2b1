"""What a run has measured, for a later run that repeats its choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError
from pocketbert.files import write_json
from pocketbert.json_reading import from_json, read_json
from pocketbert.notation import argument
from pocketbert.training.run_folder import OPTIONS_FILE, RESULT_FILE, read_record
from pocketbert_bench.compression.outcome import Measured

# Costs of structures, predicted from measured networks; and costs of exported candidates.
COSTS_FILE, MEASURED_FILE = "costs.json", "measurements.json"


def check_measurements(run: Path, networks: Mapping[str, Any]) -> None:
    """Checks that a run has measured networks like those of this one.

    Args:
      run: folder of the earlier run.
      networks: what the networks depend on, as the run records it.

    Raises:
      UserError: it has not finished, is a run of another command, or has other networks.
    """
    name, files = argument("measurements", str(run)), (OPTIONS_FILE, RESULT_FILE, COSTS_FILE, MEASURED_FILE)
    if missing := [file for file in files if not (run / file).is_file()]:
        raise UserError(f"{name} must be a finished run of pocketbert compress; it has no {', '.join(missing)}")
    record = read_record(run / OPTIONS_FILE)
    if other := [key for key, value in networks.items() if record.get(key) != value]:
        raise UserError(
            f"{name} must have the networks of this run; it has other {', '.join(other)}; leave it out to measure them"
        )


def read_measured(folder: Path) -> dict[str, Measured]:
    """Name of an exported candidate → its costs.

    Raises:
      UserError: the file is damaged.
    """
    path = folder / MEASURED_FILE
    return from_json(dict[str, Measured], read_json(path), str(path)) if path.exists() else {}


def write_measured(measured: Mapping[str, Measured], folder: Path) -> None:
    """Writes the costs of exported candidates."""
    write_json(folder / MEASURED_FILE, {name: dataclasses.asdict(costs) for name, costs in measured.items()})
