"""A trial: options, a seed, and a folder for its result."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pocketbert.errors import UserError
from pocketbert.notation import argument
from pocketbert_runtime.json_reading import parse_json, read_bytes, read_members

RESULT_FILE = "result.json"
# Trains with a point's options and a seed; writes `result.json` with `main_metric` and `metrics` into a folder; raises
# TrainingFailed if the training diverges.
MakeRun = Callable[[Any, int, Path], object]


class Job(NamedTuple):
    """A trial; the folder is an absolute path."""

    point: Mapping[str, Any]
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def log(self) -> Path:
        """Log file for a run in another process."""
        return self.folder.with_suffix(".log")

    @property
    def finished(self) -> bool:
        """Whether the result exists."""
        return (self.folder / RESULT_FILE).exists()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A job's outcome after some seconds; `failure` is the error message after failed training, or empty."""

    job: Job
    seconds: float
    failure: str = ""

    @functools.cached_property
    def result(self) -> dict[str, Any]:
        """Content of `result.json`; empty after a failure."""
        if not self.failure and not self.job.finished:
            raise UserError(
                f"the output must be on storage shared by all machines; {self.job.folder} has no {RESULT_FILE}"
            )
        return {} if self.failure else read_result(self.job.folder / RESULT_FILE)

    @property
    def score(self) -> float | None:
        """The main metric; None after a failure."""
        return None if self.failure else self.result["metrics"][self.result["main_metric"]]


def read_result(path: Path) -> dict[str, Any]:
    """Reads the result of a trial or another run.

    Raises:
      UserError: the file is damaged.
    """
    try:
        result: dict[str, Any] = parse_json(read_bytes(path), path)
        read_members(result, {"main_metric": str | None, "metrics": dict[str, Any]}, str(path))
    except UserError:
        raise UserError(
            f"{path} is damaged: it must have main_metric and metrics, as the run wrote them; pass "
            f"{argument('overwrite', True)} to make it again"
        ) from None
    return result
