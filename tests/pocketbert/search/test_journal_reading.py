"""The journal of a search is read by type and range, and its lines by their digests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample_models import CANDIDATE

from pocketbert.errors import UserError
from pocketbert.search.journal import Candidate, SearchJournal, StageEnd
from pocketbert_runtime.json_reading import from_json


def candidate(**changes: Any) -> Candidate:
    return from_json(Candidate, CANDIDATE | changes, "candidate")


def test_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = SearchJournal(tmp_path / "journal.jsonl", {"seed": 3})
    failed = candidate(index=1, score=None, metrics={}, failure="not finite")
    journal.add(candidate(), failed)
    journal.add(StageEnd(1, "minutes"))
    journal.add(candidate(stage=2))
    again = SearchJournal(tmp_path / "journal.jsonl", {"seed": 3})
    assert again.candidates == journal.candidates == [candidate(), failed, candidate(stage=2)]
    assert again.ended == {1: "minutes"} and again.of_stage(2) == [candidate(stage=2)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": 99}, "score must lie between -1 and 1; received 99"),
        ({"score": "0.5"}, "score must be a number; received '0.5'"),
        ({"score": 0.875}, "score must be one of the metrics"),
        ({"score": None}, "a trial has either a score or a failure"),
        ({"failure": "not finite"}, "a trial has either a score or a failure"),
        ({"metrics": {"accuracy": [0.75]}}, "metrics.accuracy must be a number"),
        ({"metrics": {"accuracy": 0.875}, "score": 0.875}, "its digest must be"),
        ({"stage": 4}, "stage must be one of 1, 2, 3; received 4"),
        ({"stage": True}, "stage must be a whole number; received True"),
        ({"index": 1}, "its digest must be"),
        ({"genotype": "x"}, "genotype must be a list; received 'x'"),
        ({"genotype": [5]}, r"genotype\[0\] must be a string; received 5"),
        ({"genotype": ["x"]}, "expression 'x': an expression needs exactly 2 linear maps"),
        ({"costs": {"parameters": -1.0}}, "costs must not be negative"),
        ({"costs": {"flops": 1.0}}, "its digest must be"),
        ({"more": 1}, "unknown: more"),
    ],
)
def test_changed_candidates_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    SearchJournal(path).add(StageEnd(2, "minutes"), candidate())
    end, line = path.read_text("utf-8").splitlines()
    path.write_text(f"{end}\n{json.dumps(json.loads(line) | change)}\n", encoding="utf-8")
    with pytest.raises(UserError, match=f"journal.jsonl is damaged at line 2; .*{message}") as raised:
        SearchJournal(path)
    assert "\n" not in str(raised.value)


def test_ends_of_stages_have_types(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    SearchJournal(path).add(StageEnd(1, "candidates"))
    path.write_text(path.read_text("utf-8").replace('"stage": 1', '"stage": "1"'), encoding="utf-8")
    with pytest.raises(UserError, match="line 1; .*stage must be a whole number; received '1'"):
        SearchJournal(path)
