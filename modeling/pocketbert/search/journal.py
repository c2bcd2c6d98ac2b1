"""The journal of a search: one line per candidate, in the order of suggestion."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import TrainingFailed, UserError
from pocketbert.files import write_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate.

    Attributes:
      stage: number of the stage.
      index: number within the stage, from 0.
      genotype: one expression per layer.
      costs: name of a cost → value, such as `parameters`.
      score: the main metric on the examples for scores; None if the training failed.
      metrics: all metrics.
      failure: error message of a failed training, or empty.
    """

    stage: int
    index: int
    genotype: tuple[str, ...]
    costs: dict[str, float]
    score: float | None
    metrics: dict[str, float]
    failure: str = ""


class Journal:
    """Lines of a file. They have no times, so the journal of a resumed search equals that of an uninterrupted one.

    Args:
      path: the file; it may be missing.

    Raises:
      UserError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.candidates: list[Candidate] = []
        # Stage → why it ended.
        self.ended: dict[int, str] = {}
        lines = path.read_bytes().splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                self._read(json.loads(line.decode("utf-8")))
            except (ValueError, TypeError, KeyError) as error:
                received = line[:80].decode("utf-8", "replace")
                raise UserError(
                    f"{path} is damaged at line {number}; received {received!r} ({error}); pass --overwrite to repeat "
                    "the search, or choose another output"
                ) from None

    def of_stage(self, stage: int) -> list[Candidate]:
        """The candidates of a stage in order."""
        return [candidate for candidate in self.candidates if candidate.stage == stage]

    @property
    def comparable(self) -> list[Candidate]:
        """All candidates; those of stage 3 after it, since they are scored without training."""
        return self.of_stage(3) or self.candidates

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Appends candidates."""
        self.candidates += candidates
        self._write()

    def end(self, stage: int, reason: str) -> None:
        """Records the end of a stage, so that a resumed search does not continue it."""
        self.ended[stage] = reason
        self._write()

    def _read(self, line: dict[str, Any]) -> None:
        if "end" in line:
            self.ended[int(line["stage"])] = str(line["end"])
        else:
            self.candidates.append(Candidate(**{**line, "genotype": tuple(line["genotype"])}))

    def _write(self) -> None:
        lines: list[dict[str, Any]] = []
        for stage in dict.fromkeys([*(candidate.stage for candidate in self.candidates), *self.ended]):
            lines += [dataclasses.asdict(candidate) for candidate in self.of_stage(stage)]
            if stage in self.ended:
                lines.append({"stage": stage, "end": self.ended[stage]})
        # Written aside and renamed: a killed search never leaves half a line.
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in lines))


def front(candidates: Sequence[Candidate], cost: str) -> list[Candidate]:
    """Candidates that no other one beats in both score and cost, from cheap to expensive.

    Args:
      candidates: candidates of any stage; failed ones are left out.
      cost: a key of `Candidate.costs`.
    """
    found: list[Candidate] = []
    scored = [candidate for candidate in candidates if candidate.score is not None]
    for candidate in sorted(scored, key=lambda each: (each.costs[cost], -(each.score or 0.0))):
        assert candidate.score is not None
        if not found or candidate.score > (found[-1].score or 0.0):
            found.append(candidate)
    return found


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate with the highest score.

    Raises:
      TrainingFailed: no candidate has a score.
    """
    scored = [candidate for candidate in candidates if candidate.score is not None]
    if not scored:
        raise TrainingFailed(f"the training of every candidate failed; the first: {candidates[0].failure}")
    return max(scored, key=lambda each: each.score or 0.0)
