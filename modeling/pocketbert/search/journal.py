"""The journal of a search: one line per candidate, in the order of suggestion."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pocketbert.errors import TrainingFailed, UserError, raise_if_any
from pocketbert.feedforward import parse
from pocketbert.files import write_text
from pocketbert.json_reading import from_json, parse_json, read_bytes
from pocketbert.notation import argument
from pocketbert.search.config import STAGES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One candidate.

    Attributes:
      stage: number of the stage.
      index: number within the stage, from 0.
      genotype: one expression per layer.
      costs: name of a cost → value, such as `parameters`.
      score: the main metric on the examples for scores, from -1 to 1; None if the training failed.
      metrics: all metrics.
      failure: error message of a failed training, or empty.

    Raises:
      UserError: a value is outside its range, or a text is no expression.
    """

    stage: int
    index: int
    genotype: tuple[str, ...]
    costs: dict[str, float]
    score: float | None
    metrics: dict[str, float]
    failure: str = ""

    def __post_init__(self) -> None:
        problems = []
        if self.stage not in STAGES:
            problems.append(f"stage must be one of {', '.join(map(str, STAGES))}; received {self.stage}")
        if self.score is not None and not -1 <= self.score <= 1:
            problems.append(f"score must lie between -1 and 1; received {self.score}")
        if self.score is not None and self.score not in self.metrics.values():
            problems.append(f"score must be one of the metrics, {self.metrics}; received {self.score}")
        if self.score is None and not self.failure:
            problems.append("a candidate without a score must have a failure; received none")
        if wrong := {name: cost for name, cost in self.costs.items() if not cost >= 0}:
            problems.append(f"costs must not be negative; received {wrong}")
        for text in self.genotype:
            try:
                parse(text)
            except UserError as error:
                problems.append(str(error))
        raise_if_any(problems, "candidate")


@dataclasses.dataclass(frozen=True)
class _End:
    """The end of a stage, with its reason."""

    stage: int
    end: str


class Journal:
    """Lines of a file. They have no times, so the journal of a resumed search equals that of an uninterrupted one.

    Args:
      path: the file; it may be missing.
      costs: names of the costs that all candidates must have; empty for any.

    Raises:
      UserError: the file is damaged.
    """

    def __init__(self, path: Path, costs: Collection[str] = ()) -> None:
        self._path, self._costs = path, frozenset(costs)
        self.candidates: list[Candidate] = []
        # Stage → why it ended.
        self.ended: dict[int, str] = {}
        lines = read_bytes(path).splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            where = (
                f"{path} is damaged at line {number}; pass {argument('overwrite', True)} to repeat the search, or "
                "choose another output"
            )
            self._read(parse_json(line, where), where)

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

    def _read(self, line: Any, where: str) -> None:
        if isinstance(line, dict) and "end" in line:
            end = from_json(_End, line, where)
            self.ended[end.stage] = end.end
            return
        candidate = from_json(Candidate, line, where)
        costs = self._costs or frozenset(self.candidates[0].costs if self.candidates else candidate.costs)
        if candidate.costs.keys() != costs:
            raise UserError(
                f"{where}: a candidate must have the costs {', '.join(sorted(costs))}; received "
                f"{', '.join(sorted(candidate.costs)) or 'none'}"
            )
        if candidate.index != (expected := len(self.of_stage(candidate.stage))):
            raise UserError(f"{where}: index must be {expected} here; received {candidate.index}")
        self.candidates.append(candidate)

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
    members: list[Candidate] = []
    scored = [candidate for candidate in candidates if candidate.score is not None]
    for candidate in sorted(scored, key=lambda item: (item.costs[cost], -(item.score or 0.0))):
        assert candidate.score is not None
        if not members or candidate.score > (members[-1].score or 0.0):
            members.append(candidate)
    return members


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate with the highest score.

    Raises:
      TrainingFailed: no candidate has a score.
    """
    scored = [candidate for candidate in candidates if candidate.score is not None]
    if not scored:
        raise TrainingFailed(f"the training of every candidate failed; the first: {candidates[0].failure}")
    return max(scored, key=lambda candidate: candidate.score or 0.0)
