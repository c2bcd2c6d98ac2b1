"""The journal of a compression: one line for each trial, in order."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from pocketbert.errors import UserError, raise_if_any
from pocketbert.files import write_text
from pocketbert.json_reading import from_json, parse_json, read_bytes
from pocketbert.notation import argument


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A finished trial.

    Attributes:
      candidate: name of the candidate.
      rung: number of the round: 0 for the first short training, 1 for the second, longer one.
      epochs: passes over the training examples in all rungs.
      score: main metric on the dev split, from -1 to 1; None if the training failed.
      metrics: all metrics.
      seconds: duration of this rung.
      failure: error message of a failed training, or empty.

    Raises:
      UserError: a value is outside its range.
    """

    candidate: str
    rung: int
    epochs: int
    score: float | None
    metrics: dict[str, float]
    seconds: float
    failure: str = ""

    def __post_init__(self) -> None:
        problems = []
        if self.score is not None and not -1 <= self.score <= 1:
            problems.append(f"score must lie between -1 and 1; received {self.score}")
        if self.score is not None and self.score not in self.metrics.values():
            problems.append(f"score must be one of the metrics, {self.metrics}; received {self.score}")
        if (self.score is None) is not bool(self.failure):
            problems.append("a trial has either a score or a failure")
        if self.rung < 0 or self.epochs < 1 or not self.seconds >= 0:
            problems.append("rung, epochs and seconds must not be negative")
        raise_if_any(problems, "trial")


class TrialJournal:
    """Lines of a file, each with a digest of itself and of all lines before it.

    Args:
      path: the file; it may be missing.

    Raises:
      UserError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trials: list[Trial] = []
        self._lines: list[str] = []
        for number, line in enumerate(read_bytes(path).splitlines() if path.exists() else [], 1):
            where = (
                f"{path} is damaged at line {number}; pass {argument('overwrite', True)} to repeat the run, or choose "
                "another output"
            )
            content = parse_json(line, where)
            digest = content.pop("digest", None) if isinstance(content, dict) else None
            self._append(from_json(Trial, content, where))
            if json.loads(self._lines[-1])["digest"] != digest:
                raise UserError(where)

    @property
    def scored(self) -> bool:
        """Whether a trial has a score."""
        return any(trial.score is not None for trial in self.trials)

    def add(self, trial: Trial) -> None:
        """Appends a trial; written aside and renamed, so that a kill never leaves half a line."""
        self._append(trial)
        write_text(self._path, "".join(f"{line}\n" for line in self._lines))

    def finished(self, candidate: str, rung: int) -> Trial | None:
        """The trial of a candidate in a rung, or None."""
        return next((trial for trial in self.trials if (trial.candidate, trial.rung) == (candidate, rung)), None)

    def _append(self, trial: Trial) -> None:
        content: dict[str, Any] = dataclasses.asdict(trial)
        earlier = json.loads(self._lines[-1])["digest"] if self._lines else ""
        digest = hashlib.sha256(f"{earlier}{json.dumps(content, sort_keys=True)}".encode()).hexdigest()
        self.trials.append(trial)
        self._lines.append(json.dumps(content | {"digest": digest}))
