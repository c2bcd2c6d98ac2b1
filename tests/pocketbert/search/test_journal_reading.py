"""The journal of a search is read by type and range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sample_models import CANDIDATE

from pocketbert.errors import UserError
from pocketbert.search.journal import Journal


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_good_journal_is_read(tmp_path: Path) -> None:
    failed = CANDIDATE | {"index": 1, "score": None, "metrics": {}, "failure": "not finite"}
    path = written(
        tmp_path / "journal.jsonl", CANDIDATE, failed, {"stage": 1, "end": "minutes"}, CANDIDATE | {"stage": 2}
    )
    journal = Journal(path, ["parameters"])
    assert [(candidate.stage, candidate.index, candidate.score) for candidate in journal.candidates] == [
        (1, 0, 0.75),
        (1, 1, None),
        (2, 0, 0.75),
    ]
    assert journal.ended == {1: "minutes"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": 99}, "score must lie between -1 and 1; received 99"),
        ({"score": "0.5"}, "score must be a number; received '0.5'"),
        ({"score": 0.875}, "score must be one of the metrics"),
        ({"score": None}, "a candidate without a score must have a failure"),
        ({"metrics": {"accuracy": [0.75]}}, "metrics.accuracy must be a number"),
        ({"stage": 4}, "stage must be one of 1, 2, 3; received 4"),
        ({"stage": True}, "stage must be a whole number; received True"),
        ({"index": 1}, "index must be 0 here; received 1"),
        ({"genotype": "x"}, "genotype must be a list; received 'x'"),
        ({"genotype": [5]}, r"genotype\[0\] must be a string; received 5"),
        ({"genotype": ["x"]}, "expression 'x': an expression needs exactly 2 linear maps"),
        ({"costs": {"parameters": -1.0}}, "costs must not be negative"),
        ({"costs": {"flops": 1.0}}, "must have the costs parameters; received flops"),
        ({"more": 1}, "unknown: more"),
    ],
)
def test_damaged_candidates_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "journal.jsonl", {"stage": 2, "end": "minutes"}, CANDIDATE | change)
    with pytest.raises(UserError, match=f"journal.jsonl is damaged at line 2; .*{message}") as raised:
        Journal(path, ["parameters"])
    assert "\n" not in str(raised.value)


def test_ends_of_stages_have_types(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 1; .*stage must be a whole number; received '1'"):
        Journal(written(tmp_path / "journal.jsonl", {"stage": "1", "end": "candidates"}))
